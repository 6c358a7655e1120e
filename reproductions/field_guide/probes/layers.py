"""How long one layer takes by the length of the text, kinds of layers in turns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.bench.by_length import store
from common.bench.timing import interleaved, seconds_of
from common.nn.sparse.layer import Factory


@dataclass(frozen=True, kw_only=True)
class Layers:
    """`forward_ms` by length, without gradients. layers: row -> factory."""

    layers: Mapping[str, Factory]
    lengths: Sequence[int]
    batch: int
    d_model: int
    heads: int
    repeats: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        made = {row: factory(self.d_model, self.heads, 0, 1) for row, factory in self.layers.items()}
        texts = (torch.randn(self.batch, length, self.d_model) for length in self.lengths)
        return forward_times(made, texts, self.repeats)


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
