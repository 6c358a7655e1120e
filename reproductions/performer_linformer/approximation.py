"""Performer, Figure 4: how far attention by random features is from attention itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from common.attention import Full, attention
from common.attention.features import gaussian
from common.attention.linear import linear_attention
from common.bench.by_length import store
from common.nn.linear import Kind, random_features


@dataclass(frozen=True, kw_only=True)
class Approximation:
    """`error` by the number of features, a sample a draw: mean squared difference between the outputs of softmax attention
    and of its approximation, both fp32. Queries, keys and values of one head are N(0, 1), new with each draw.

    rows: row -> {kind, orthogonal}.
    """

    rows: Mapping[str, Mapping[str, Any]]
    length: int
    head_dim: int
    features: Sequence[int]
    draws: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        generator = torch.Generator().manual_seed(seed)
        found: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        for _ in range(self.draws):
            q, k, v = (torch.randn(1, 1, self.length, self.head_dim, generator=generator) for _ in range(3))
            exact = attention(q, k, v, mask=Full(), backend="sdpa")
            for count in self.features:
                for row, about in self.rows.items():
                    draw = gaussian(count, self.head_dim, generator, orthogonal=about["orthogonal"])
                    kind: Kind = about["kind"]
                    of_q, of_k, log = random_features(kind, q, k, draw)
                    close = linear_attention(of_q, of_k, v, log=log).output
                    error = (close - exact).square().mean().item()
                    store(found, row, "error", count, "mean square").append(error)
        return found
