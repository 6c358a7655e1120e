"""Self-attention of an image's pixels: what the layers share, their factories' interface, and full attention."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from common import attention as core
from common.nn.multihead import MultiHead
from common.nn.sparse.layer import Settings


class GridAttention(nn.Module, ABC):
    """Multi-head attention of pixels to some of the pixels of their image. Pixels are whatever stands on the grid, patches
    too."""

    def __init__(self, d_model: int, heads: int, of: Settings) -> None:
        super().__init__()
        self.multihead = MultiHead(
            d_model,
            heads,
            head_dim_k=of.head_dim,
            head_dim_v=of.head_dim,
            backend=of.backend,
            dropout=of.dropout,
            linear_bias=of.linear_bias,
        )

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x: (B, H, W, d_model) to the same."""

    @abstractmethod
    def pairs(self, height: int, width: int) -> int:
        """Scores that a head computes for an image, masked ones too: at 2 (d + dv) FLOPs each, as `common.bench.flops`
        credits them."""


class Factory(Protocol):
    """Makes the layers of a model. layer: the layer's number, from 0."""

    @property
    def backend(self) -> str: ...
    def __call__(self, d_model: int, heads: int, layer: int) -> GridAttention: ...


@dataclass(frozen=True, kw_only=True)
class Full(Settings):
    """Factory."""

    def __call__(self, d_model: int, heads: int, layer: int) -> "FullAttention":
        return FullAttention(d_model, heads, self)


class FullAttention(GridAttention):
    """Every pixel sees every pixel (Dosovitskiy et al. 2021, section 3.1): n^2 scores for n pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return self.multihead(x.flatten(1, 2), mask=core.Full()).unflatten(1, x.shape[1:3])

    def pairs(self, height: int, width: int) -> int:
        return (height * width) ** 2
