"""Full attention with the interface of the sparse ones: what they are measured against."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common import attention as core
from common.attention.cache import CacheShape, Remembered
from common.nn.sparse.kept import Kept, extended
from common.nn.sparse.layer import Layer, Relative, among, without_padding


@dataclass(frozen=True, kw_only=True)
class Full(Relative, Kept):
    """Factory.

    kv_heads: heads of keys and values, as many as heads unless given; 1: multi-query (Shazeer 2019); between: grouped-query
    attention (Ainslie et al. 2023), query head i reads keys and values of head i // (heads / kv_heads). Relative positions
    are still of each query head. rotary: queries and keys are turned by their positions (Su et al. 2021), which
    rotary_scaling stretches for texts longer than those of training. Other positions: `common.nn.positioned`.
    """

    causal: bool = False
    kv_heads: int | None = None
    rotary: bool = False
    rotary_scaling: core.RotaryScaling | None = None

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary and self.relative:
            raise ValueError(
                "rotary: got True, expected False with relative=True: one kind of positions for the scores"
            )
        if self.rotary_scaling is not None and not self.rotary:
            raise ValueError(f"rotary_scaling: got {self.rotary_scaling}, expected None without rotary=True")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "FullAttention":
        return FullAttention(d_model, heads, self)


class FullAttention(Layer):
    """Every token sees every real one, or those up to its own. is_global and stage change nothing: all is seen already."""

    counts_as_written_out = True
    """Its FLOPs are counted as those of the reference, whoever computes it."""

    def __init__(self, d_model: int, heads: int, of: Full) -> None:
        super().__init__(d_model, heads, of, kv_heads=of.kv_heads)
        self.mask: core.Mask = core.Causal() if of.causal else core.Full()
        self.rotary, self.rotary_scaling, self.stored = of.rotary, of.rotary_scaling, of.stored
        if self.rotary and self.head_dim % 2:
            raise ValueError(f"head_dim: got {self.head_dim}, expected an even one for rotary positions")

    def query(self, x: Tensor, w_q: nn.Linear, positions: Tensor) -> Tensor:
        q = super().query(x, w_q, positions)
        return core.rotary(q, positions, scaling=self.rotary_scaling) if self.rotary else q

    def key(self, x: Tensor, w_k: nn.Linear, positions: Tensor) -> Tensor:
        k = super().key(x, w_k, positions)
        return core.rotary(k, positions, scaling=self.rotary_scaling) if self.rotary else k

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        q, k, v = self.project(x)
        mask = among(self.mask, real)
        return self.merge(self.attend(q, k, v, mask))

    def step(self, x: Tensor, memory: Remembered | None) -> tuple[Tensor, Remembered]:
        """Keys and values pass no gradient on: this is for decoding."""
        if not isinstance(self.mask, core.Causal):
            return super().step(x, memory)
        q, after = self.following(x, memory)
        return self.merge(self.attend(q, after.keys, after.values, core.Full())), after

    def following(self, x: Tensor, memory: Remembered | None, window: int | None = None) -> tuple[Tensor, Remembered]:
        """The query of the next position, (B, H, 1, .), and the keys and values up to its own. x: (B, 1, d_model); window: how
        many are kept at most, None: all."""
        place = torch.tensor([0 if memory is None else memory.seen], device=x.device)
        q, k, v = self.query(x, self.w_q, place), self.key(x, self.w_k, place), self.split(self.w_v(x))
        return q, extended(memory, self.cache_shape(k.dtype), k, v, window)

    def cache_shape(self, dtype: torch.dtype) -> CacheShape:
        """What `step` keeps of a token, keys and values being computed in `dtype`: 2 kv_heads head_dim numbers, and of
        relative positions `size` more for each key."""
        of_positions = 0 if self.relative is None else self.relative.size
        return CacheShape(
            kv_heads=self.kv_heads,
            key_dim=self.head_dim + of_positions,
            value_dim=self.head_dim,
            dtype=dtype,
            stored=self.stored,
        )
