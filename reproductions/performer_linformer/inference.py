"""Linformer, Table 3: how much faster a Transformer reads a text, and how much less memory that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from common.bench.by_length import refuse, store
from common.bench.memory import peak_bytes
from common.bench.timing import interleaved, seconds_of
from common.nn.linformer import Linformer
from common.nn.long import Trunk
from common.nn.sparse import Full

FUSED = "_fused"


@dataclass(frozen=True, kw_only=True)
class Inference:
    """By the length of the text, of one forward pass of an encoder without gradients: `times_faster` than softmax attention
    written out, as the paper's was, and `memory_saving`, the peak of that over its own: what fits into a memory is memory over
    peak, so that this is the ratio of the largest batches too, as long as weights are small beside it. `times_faster_fused`,
    `memory_saving_fused`: against softmax attention by a kernel that stores no matrix.

    rows: row -> rank k, layerwise sharing as in the paper. written_out, fused: backends.
    """

    rows: Mapping[str, int]
    lengths: Sequence[int]
    batch: int
    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    written_out: str
    fused: str
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
            exact = {"": self.encoder(Full(backend=self.written_out)), FUSED: self.encoder(Full(backend=self.fused))}
            models: dict[str, Trunk] = exact | {
                row: self.encoder(Linformer(backend=self.fused, rank=rank, max_length=length, sharing="layerwise"))
                for row, rank in ranks.items()
            }
            calls = {name: partial(model, tokens) for name, model in models.items()}
            timers = {name: partial(seconds_of, call) for name, call in calls.items()}
            seconds = interleaved(timers, repeats=self.repeats)
            peaks = {name: peak_bytes(call, device=self.device) for name, call in calls.items()}
            for beside, row in product(exact, self.rows):
                quantities = f"times_faster{beside}", f"memory_saving{beside}"
                if row not in ranks:
                    for quantity in quantities:
                        refuse(found, row, quantity, length, "more rows than half the text has", "times")
                    continue
                times = [e / s for e, s in zip(seconds[beside], seconds[row], strict=True)]
                store(found, row, quantities[0], length, "times").extend(times)
                store(found, row, quantities[1], length, "times").append(peaks[beside] / peaks[row])
        return found

    def encoder(self, attention: Full | Linformer) -> Trunk:
        trunk = Trunk(self.vocabulary, self.layers, self.d_model, self.heads, self.d_ff, attention=attention,
                      positions="sinusoidal")  # fmt: skip
        return trunk.to(self.device).eval()
