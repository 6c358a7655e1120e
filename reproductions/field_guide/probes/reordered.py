"""Whether attention follows words that stand in another order in the other language."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.bench.by_length import store
from common.lit.seq2seq import Seq2Seq
from reproductions.reading import read
from reproductions.stored import opened


@dataclass(frozen=True, kw_only=True)
class Reordered:
    """`tau`, a sample for each test sentence of two words or more: Kendall's tau, from -1 to 1, of the order of the target's
    words and that in which the source words that each looks at most stand from the end. 1: it reads backwards, word by word.
    `tau_mean`: the same of the mean place that each looks at, which moves even where no word has most of the weight.

    of: row -> {run: folder of a translator of reversed sentences}.
    """

    of: Mapping[str, Mapping[str, str]]
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.of}
        for row, run in self.of.items():
            found = opened(run["run"])
            assert isinstance(found.module, Seq2Seq)
            for _, weights in read(found.module, found.data, "test", np.arange(found.data.size("test"))):
                words = weights[:-1, :-1]  # without the marks of the end
                if len(words) > 1:
                    store(rows, row, "tau", "test", "of 1").append(tau(-words.argmax(-1)))
                    store(rows, row, "tau_mean", "test", "of 1").append(tau(-mean_place(words)))
        return rows


def mean_place(weights: Tensor) -> Tensor:
    """(T,), in words from the first, which is 0. weights: (T, S), of which a row need not sum to 1."""
    places = torch.arange(weights.shape[-1], dtype=weights.dtype)
    return (weights @ places) / weights.sum(-1)


def tau(values: Tensor) -> float:
    """Pairs that rise minus pairs that fall, over all pairs. values: (N,), N of 2 or more."""
    later, earlier = torch.tril_indices(len(values), len(values), -1)
    return (values[later] - values[earlier]).sign().double().mean().item()
