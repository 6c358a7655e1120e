"""Linformer, Table 3: how much faster a Transformer reads a text, and how much less memory that takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from common.bench.by_length import refuse, store
from common.bench.memory import peak_bytes
from common.bench.timing import interleaved, seconds_of
from common.nn.linformer import Linformer
from common.nn.long import Trunk
from common.nn.sparse import Full


@dataclass(frozen=True, kw_only=True)
class Inference:
    """By the length of the text, of one forward pass of an encoder without gradients: `times_faster` than softmax attention
    and `memory_saving`, the peak of softmax attention over its own. What fits into a memory is memory over peak, so that this
    is the ratio of the largest batches too, as long as weights are small beside it.

    rows: row -> rank k, layerwise sharing as in the paper. exact: the backend of softmax attention.
    """

    rows: Mapping[str, int]
    lengths: Sequence[int]
    batch: int
    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    exact: str
    device: str
    repeats: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        found: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        for length in self.lengths:
            print(f"{length:,} tokens", flush=True)
            tokens = torch.randint(self.vocabulary, (self.batch, length)).to(self.device)
            ranks = {row: rank for row, rank in self.rows.items() if 2 * rank <= length}
            for row in self.rows.keys() - ranks.keys():
                for quantity in ("times_faster", "memory_saving"):
                    refuse(found, row, quantity, length, "more rows than half the text has", "times")
            exact = self.encoder(Full(backend=self.exact))
            models = {
                row: self.encoder(Linformer(backend=self.exact, rank=rank, max_length=length, sharing="layerwise"))
                for row, rank in ranks.items()
            }
            calls: dict[str, Callable[[], object]] = {"exact": partial(exact, tokens)}
            calls |= {row: partial(model, tokens) for row, model in models.items()}
            seconds = interleaved(
                {name: partial(seconds_of, call) for name, call in calls.items()}, repeats=self.repeats
            )
            peaks = {name: peak_bytes(call, device=self.device) for name, call in calls.items()}
            for row in ranks:
                times = [e / s for e, s in zip(seconds["exact"], seconds[row], strict=True)]
                store(found, row, "times_faster", length, "times").extend(times)
                store(found, row, "memory_saving", length, "times").append(peaks["exact"] / peaks[row])
        return found

    def encoder(self, attention: Full | Linformer) -> Trunk:
        trunk = Trunk(self.vocabulary, self.layers, self.d_model, self.heads, self.d_ff, attention=attention,
                      positions="sinusoidal")  # fmt: skip
        return trunk.to(self.device).eval()
