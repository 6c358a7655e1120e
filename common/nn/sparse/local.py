"""Local attention of the Long Range Arena: blocks that do not overlap (Tay et al. 2021, section 2.3 and table 2)."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from common import attention as core
from common.nn.sparse.layer import Layer, Settings, among, refuse_global, without_padding


@dataclass(frozen=True, kw_only=True)
class Local(Settings):
    """Factory. block: tokens in a block."""

    block: int
    causal: bool = False

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block: got {self.block}, expected 1 or more")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "LocalAttention":
        return LocalAttention(d_model, heads, self)


class LocalAttention(Layer):
    """A token sees the real tokens of its own block, the last of which may be shorter. Padding stands on the right, as
    blocks count from the first token. Stages change nothing."""

    def __init__(self, d_model: int, heads: int, of: Local) -> None:
        super().__init__(d_model, heads, of)
        self.block, self.causal = of.block, of.causal

    def mask(self, time: int) -> core.Mask:
        own = _own_block(-(-time // self.block), self.block)
        return core.Causal() & own if self.causal else own

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        refuse_global(is_global, "local attention")
        x = without_padding(x, real)
        q, k, v = self.project(x)
        mask = among(self.mask(x.shape[1]), real)
        return self.merge(self.attend(q, k, v, mask))


@lru_cache(maxsize=32)
def _own_block(blocks: int, size: int) -> core.Blocks:
    """One object for all layers and calls, as such masks are compared by identity."""
    return core.Blocks(torch.eye(blocks, dtype=torch.bool), size)
