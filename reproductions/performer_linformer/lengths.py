"""From which length on linear attention pays: one layer's attention against the length of the text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.attention import Causal, Full, Mask
from common.attention.features import elu, gaussian
from common.attention.linear import linear_attention
from common.bench.by_length import ByLength, Case, refuse, store
from common.bench.contestants import Attend, prepare
from common.bench.workload import Inputs, Shape
from common.nn.linear import random_features

LINEAR = ("favor", "elu")


@dataclass(frozen=True, kw_only=True)
class Lengths(ByLength):
    """A method may be favor (Performer, `features` positive ones) or elu (the Linear Transformer), their features counted.
    `forward_ms`, `both_ms`, `memory_mb`; and of each linear method, for each repeat, `crossover`: the length from which on
    forward and backward are faster than `exact`, between measured ones by straight lines of the logarithms; refused where a
    repeat has none.
    """

    exact: str
    features: int
    causal: bool

    def cases(self) -> Iterator[Case]:
        for row in self.methods:
            for passes in ("forward", "both"):
                yield Case(row, f"{passes}_ms", passes, self.budget)

    def attend(self, case: Case, shape: Shape, one: Inputs, seed: int) -> Attend | str:
        method = self.methods[case.row]
        if method == "favor":
            draw = gaussian(self.features, shape.head_dim, torch.Generator().manual_seed(seed)).to(one.q.device)
            return partial(favor, draw=draw, causal=self.causal)
        if method == "elu":
            return partial(linear_transformer, causal=self.causal)
        mask: Mask = Causal() if self.causal else Full()
        found = prepare(method, one, mask, 0.0, seed)
        return f"{method} {found}" if isinstance(found, str) else found

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        rows = super().__call__(seed)
        exact = rows[self.exact]["both_ms"]["at"]
        for row, method in self.methods.items():
            if method not in LINEAR:
                continue
            both = rows[row]["both_ms"]["at"]
            shared = [length for length in map(str, sorted(self.lengths)) if length in exact and length in both]
            ratios = [[exact[n][repeat] / both[n][repeat] for n in shared] for repeat in range(self.repeats)]
            places = [crossover([int(n) for n in shared], of_repeat) for of_repeat in ratios]
            found = [place for place in places if place is not None]
            if len(found) == len(places):
                store(rows, row, "crossover", "default", "tokens").extend(found)
            else:
                reason = f"faster at the longest length in {len(found)} of {len(places)} repeats"
                refuse(rows, row, "crossover", "default", reason, "tokens")
        return rows


def favor(q: Tensor, k: Tensor, v: Tensor, *, draw: Tensor, causal: bool) -> Tensor:
    of_q, of_k, log = random_features("positive", q, k, draw)
    return linear_attention(of_q, of_k, v, causal=causal, log=log).output


def linear_transformer(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return linear_attention(elu(q), elu(k), v, causal=causal).output


def crossover(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Where ratios rise above 1 for good, on straight lines between their logarithms; the first length where all are above,
    None where the last is not."""
    below = [i for i, ratio in enumerate(ratios) if ratio <= 1]
    if not ratios or (below and below[-1] == len(ratios) - 1):
        return None
    if not below:
        return float(lengths[0])
    i = below[-1]
    low, high = math.log(ratios[i]), math.log(ratios[i + 1])
    share = -low / (high - low)
    return math.exp((1 - share) * math.log(lengths[i]) + share * math.log(lengths[i + 1]))
