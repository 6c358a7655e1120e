"""Language models on texts longer than those that they were trained on (Press et al. 2022, section 2.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from common.attention import RotaryScaling
from common.bench.by_length import refuse, store
from common.nn.sparse.full import FullAttention
from reproductions.items import scored_items
from reproductions.stored import opened, prepared


@dataclass(frozen=True, kw_only=True)
class Longer:
    """A sample for each of the test text's first `blocks` blocks of 1,024 bytes, by the length of the sequences that it is
    read in, none knowing what stands before it: `nll` in nats a byte, and `excess`, by how much that is more than in
    sequences of the first of `lengths`, those of training.

    models: row -> {run: folder of a language model of bytes, scaling: how rotary positions are stretched, if at all}. What a
    model refuses is refused with its reason.
    """

    models: Mapping[str, Mapping[str, Any]]
    lengths: Sequence[int]
    blocks: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.models}
        first = self.lengths[0]
        one = next(iter(self.models.values()))["run"]
        texts = {n: prepared(one, eval_length=n, eval_step=n) for n in self.lengths}
        for row, of in self.models.items():
            module = opened(of["run"], texts[first]).module
            for length in self.lengths:
                stretch(module, of.get("scaling"), max(1.0, length / first))
                try:
                    records = scored_items(module, texts[length], "test", self.blocks)
                except ValueError as reason:
                    for name in ("nll", "excess"):
                        refuse(rows, row, name, length, str(reason), "nats a byte")
                    continue
                found = [record["nll"] / record["targets"] for record in records]
                store(rows, row, "nll", length, "nats a byte").extend(found)
                base = rows[row]["nll"]["at"][str(first)]
                excess = [long - short for long, short in zip(found, base, strict=True)]
                store(rows, row, "excess", length, "nats a byte").extend(excess)
        return rows


def stretch(module: nn.Module, kind: Literal["interpolation", "ntk"] | None, factor: float) -> None:
    for layer in module.modules():
        if kind and isinstance(layer, FullAttention):
            layer.rotary_scaling = RotaryScaling(kind, factor)
