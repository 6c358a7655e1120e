"""How sharp the weights of a trained model are, and how alike its heads (Li et al. 2018, section 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from common.bench.by_length import store
from common.nn.diversity import cosines, entropies, off_diagonal, watched
from reproductions.stored import reader


@dataclass(frozen=True, kw_only=True)
class Maps:
    """A sample for each of `sequences` texts, the mean over layers, at `tested` and at `drawn`, before the first update:
    `entropy`, over its largest, the mean over heads; `alike_maps` and `alike_outputs`, the mean cosine of two heads' weights
    and of what they hand on.

    models: row -> {run: folder of a language model or an encoder with full attention}.
    """

    models: Mapping[str, Mapping[str, str]]
    sequences: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.models}
        for row, of in self.models.items():
            found = reader(of["run"], self.sequences)
            for when, model in (("tested", found.tested), ("drawn", found.drawn)):
                for text in found.tokens.split(1):
                    for name, value in measured(model, text).items():
                        store(rows, row, name, when, "of 1").append(value)
        return rows


def measured(model: nn.Module, tokens: Tensor) -> dict[str, float]:
    """By quantity, the mean over layers. tokens: int64 (B, T)."""
    with watched(model, "positions") as maps, watched(model, "outputs") as outputs:
        model(tokens)
    length = tokens.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool)
    seen = seen.tril() if model.trunk.causal else seen  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "entropy": _mean([entropies(layer.heads, seen).mean() for layer in maps]),
        "alike_maps": _mean([off_diagonal(cosines(layer.heads)) for layer in maps]),
        "alike_outputs": _mean([off_diagonal(cosines(layer.heads)) for layer in outputs]),
    }


def _mean(values: list[Tensor]) -> float:
    return torch.stack(values).mean().item()
