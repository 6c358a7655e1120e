"""Performer, Figure 4: how far attention by random features is from attention itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from common.attention import Full, attention
from common.attention.features import gaussian
from common.attention.linear import linear_attention
from common.bench.by_length import store
from common.nn.linear import Kind, random_features

UNIT = "mean square"


@dataclass(frozen=True, kw_only=True)
class Approximation:
    """By the number of features, a sample a draw: mean squared difference between the outputs of softmax attention and of its
    approximation, both fp32. Values of one head are N(0, 1), queries and keys N(0, s^2), new with each draw: what random
    features are worth depends on s. For comparison, `uniform` attends to nothing in particular: its output is the mean.

    rows: row -> {kind, orthogonal}. sizes: quantity -> s. uniform: a row.
    """

    rows: Mapping[str, Mapping[str, Any]]
    uniform: str
    sizes: Mapping[str, float]
    length: int
    head_dim: int
    features: Sequence[int]
    draws: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        generator = torch.Generator().manual_seed(seed)
        found: dict[str, dict[str, Any]] = {row: {} for row in (*self.rows, self.uniform)}
        for _, (quantity, size) in product(range(self.draws), self.sizes.items()):
            q, k, v = (torch.randn(1, 1, self.length, self.head_dim, generator=generator) for _ in range(3))
            q, k = q * size, k * size
            exact = attention(q, k, v, mask=Full(), backend="sdpa")
            for count in self.features:
                error = (v.mean(2, keepdim=True) - exact).square().mean().item()
                store(found, self.uniform, quantity, count, UNIT).append(error)
                for row, about in self.rows.items():
                    draw = gaussian(count, self.head_dim, generator, orthogonal=about["orthogonal"])
                    kind: Kind = about["kind"]
                    of_q, of_k, log = random_features(kind, q, k, draw)
                    close = linear_attention(of_q, of_k, v, log=log).output
                    store(found, row, quantity, count, UNIT).append((close - exact).square().mean().item())
        return found
