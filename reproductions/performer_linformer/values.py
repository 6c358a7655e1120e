"""Performer, Figure 3: the line of attention that costs nothing."""

from dataclasses import dataclass

from torch import Tensor

from common.nn.linear import Linear
from common.nn.sparse.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Values(Linear):
    """Factory of layers that attend to nothing: each position's output is its own value."""

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "ValuesAlone":
        return ValuesAlone(d_model, heads, self)


class ValuesAlone(Layer):
    """Has the projections of queries and keys, unused, so that sizes are equal."""

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        return self.merge(self.split(self.w_v(x)))
