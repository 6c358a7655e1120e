"""What one layer costs by the length of the text, kinds of layers in turns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.bench.by_length import store
from common.bench.memory import peak_bytes
from common.bench.timing import interleaved, seconds_of
from common.nn.sparse.layer import Factory


@dataclass(frozen=True, kw_only=True)
class Layers:
    """By length, `forward_ms` without gradients and `both_ms`, forward and backward; `forward_mb` and `both_mb`, what either
    takes at its peak beyond weights and input. layers: row -> factory. both: lengths of the latter, out of lengths."""

    layers: Mapping[str, Factory]
    lengths: Sequence[int]
    both: Sequence[int]
    batch: int
    d_model: int
    heads: int
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        made = {row: factory(self.d_model, self.heads, 0, 1) for row, factory in self.layers.items()}
        texts = {length: torch.randn(self.batch, length, self.d_model) for length in self.lengths}
        with torch.no_grad():
            rows = forward_times(made, texts.values(), self.repeats)
            for row, layer in made.items():
                for length, x in texts.items():
                    store(rows, row, "forward_mb", length, "MB").append(peak_bytes(partial(layer, x)) / 1e6)
        for length in self.both:
            steps = {row: partial(forward_and_backward, layer, texts[length]) for row, layer in made.items()}
            for row, step in steps.items():
                step()  # gradients of weights are there from now on
                store(rows, row, "both_mb", length, "MB").append(peak_bytes(step) / 1e6)
            timers = {row: partial(seconds_of, step) for row, step in steps.items()}
            for row, seconds in interleaved(timers, repeats=self.repeats).items():
                store(rows, row, "both_ms", length).extend(1e3 * s for s in seconds)
        return rows


def forward_and_backward(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    layer(x.detach().requires_grad_()).sum().backward()


def forward_times(
    made: Mapping[str, Callable[[Tensor], Tensor]], texts: Iterable[Tensor], repeats: int
) -> dict[str, dict[str, Any]]:
    """`forward_ms` by length of the texts, (B, T, .), all rows in turns."""
    rows: dict[str, dict[str, Any]] = {row: {} for row in made}
    for x in texts:
        timers = {row: partial(seconds_of, partial(layer, x)) for row, layer in made.items()}
        for row, seconds in interleaved(timers, repeats=repeats).items():
            store(rows, row, "forward_ms", x.shape[1]).extend(1e3 * s for s in seconds)
    return rows
