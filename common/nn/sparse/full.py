"""Full attention with the interface of the sparse ones: what they are measured against."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from common import attention as core
from common.attention.cache import CacheShape, GrowingCache
from common.nn.sparse.layer import Layer, Relative, among, without_padding


@dataclass(frozen=True, kw_only=True)
class Full(Relative):
    """Factory."""

    causal: bool = False

    extra_tokens = 0
    uses_global = False

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "FullAttention":
        return FullAttention(d_model, heads, self)


class FullAttention(Layer):
    """Every token sees every real one, or those up to its own. is_global and stage change nothing: all is seen already."""

    counts_as_written_out = True
    """Its FLOPs are counted as those of the reference, whoever computes it."""

    def __init__(self, d_model: int, heads: int, of: Full) -> None:
        super().__init__(d_model, heads, of)
        self.mask: core.Mask = core.Causal() if of.causal else core.Full()

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        q, k, v = self.project(x)
        mask = among(self.mask, real)
        return self.merge(self.attend(q, k, v, mask))

    def step(self, x: Tensor, memory: "Remembered | None") -> tuple[Tensor, "Remembered"]:
        """Keys and values pass no gradient on: this is for decoding."""
        if not isinstance(self.mask, core.Causal):
            return super().step(x, memory)
        place = torch.tensor([0 if memory is None else memory.keys.shape[2]], device=x.device)
        q, k, v = self.query(x, self.w_q, place), self.key(x, self.w_k, place), self.split(self.w_v(x))
        after = Remembered.of(k, v) if memory is None else memory.extended(k, v)
        return self.merge(self.attend(q, after.keys, after.values, core.Full())), after


class Remembered(NamedTuple):
    """keys, values: (B, H, T, .) of the positions so far, views of the cache that they and later ones are kept in."""

    keys: Tensor
    values: Tensor
    cache: GrowingCache

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "Remembered":
        batch, heads, _, key_dim = keys.shape
        shape = CacheShape(kv_heads=heads, key_dim=key_dim, value_dim=values.shape[3], dtype=keys.dtype)
        cache = GrowingCache(shape, sequences=batch, device=keys.device)
        cache.append(keys, values)
        return cls(*cache.read()[:2], cache)

    def extended(self, keys: Tensor, values: Tensor) -> "Remembered":
        """With those of the positions after."""
        if self.cache.lengths[0] > self.keys.shape[2]:  # another text went on from here, and what it wrote is its own
            return Remembered.of(self.keys, self.values).extended(keys, values)
        self.cache.append(keys, values)
        return Remembered(*self.cache.read()[:2], self.cache)
