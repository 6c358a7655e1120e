"""Full attention with the interface of the sparse ones: what they are measured against."""

from dataclasses import dataclass

from torch import Tensor

from common import attention as core
from common.nn.sparse.layer import Layer, among, without_padding


@dataclass(frozen=True, kw_only=True)
class Full:
    """Factory. relative: Transformer-XL's relative positions, of `relative_size` dimensions, d_model unless given."""

    backend: str
    causal: bool = False
    relative: bool = False
    relative_size: int | None = None
    head_dim: int | None = None
    dropout: float = 0.0
    linear_bias: bool = True

    extra_tokens = 0
    uses_global = False

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "FullAttention":
        return FullAttention(d_model, heads, self)


class FullAttention(Layer):
    """Every token sees every real one, or those up to its own. is_global and stage change nothing: all is seen already."""

    def __init__(self, d_model: int, heads: int, of: Full) -> None:
        super().__init__(
            d_model,
            heads,
            backend=of.backend,
            head_dim=of.head_dim,
            dropout=of.dropout,
            linear_bias=of.linear_bias,
            relative=(of.relative_size or d_model) if of.relative else None,
        )
        self.mask: core.Mask = core.Causal() if of.causal else core.Full()

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        q, k, v = self.project(x)
        mask = among(self.mask, real)
        return self.merge(
            core.attention(q, k, v, mask=mask, backend=self.backend, scale=self.scale, dropout_p=self.dropout_p)
        )
