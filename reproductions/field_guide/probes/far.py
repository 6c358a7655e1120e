"""How much of a gradient reaches a symbol from far behind it (Pascanu et al. 2013, section 2), by kind of layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from common.bench.by_length import store
from common.nn.sparse.layer import Factory


@dataclass(frozen=True, kw_only=True)
class Far:
    """`gradient` by distance k, a sample a draw of weights and text: the size of d y_T / d x_(T-k) v over that of k = 1, with
    a random v, of one layer as it is drawn. layers: row -> factory.
    """

    layers: Mapping[str, Factory]
    distances: Sequence[int]
    d_model: int
    heads: int
    draws: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.layers}
        for draw in range(self.draws):
            torch.manual_seed(seed * self.draws + draw)
            # fp64, as what fades at each step is nothing in fp32 after 64 of them
            x = torch.randn(1, max(self.distances) + 1, self.d_model, dtype=torch.float64, requires_grad=True)
            asked = torch.randn(self.d_model, dtype=torch.float64)
            for row, factory in self.layers.items():
                y = factory(self.d_model, self.heads, 0, 1).double()(x)
                (found,) = torch.autograd.grad(y[0, -1] @ asked, x)
                size = found[0].norm(dim=-1)
                for k in self.distances:
                    store(rows, row, "gradient", k, "of that at 1").append((size[-1 - k] / size[-2]).item())
        return rows
