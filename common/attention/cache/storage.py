"""In which numbers keys and values are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

STORED = (None, torch.bfloat16, torch.int8)
LEVELS = 127


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """What one layer keeps of a token: kv_heads keys of key_dim and values of value_dim numbers, given and read in `dtype`.

    stored: None, as given; torch.bfloat16; or torch.int8, with an fp32 scale for each token and head, its absolute maximum /
    127. In int8 a number is off by at most absmax / 254 + 1e-6, before it is rounded to dtype, a token of zeros stays one,
    and one that isn't finite is read as not finite.

    Raises ValueError for sizes below 1 and for dtypes that aren't these.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    stored: torch.dtype | None = None

    def __post_init__(self) -> None:
        for name in ("kv_heads", "key_dim", "value_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected 1 or more")
        if not self.dtype.is_floating_point:
            raise ValueError(f"dtype: got {self.dtype}, expected floating point")
        if self.stored not in STORED:
            raise ValueError(f"stored: got {self.stored}, expected None (as given), torch.bfloat16 or torch.int8")

    @property
    def planes(self) -> list[tuple[int, torch.dtype]]:
        """Numbers a token and head, and their dtype, of each tensor that is kept: keys, values, in int8 the scales of both."""
        kept = [(width, self.stored or self.dtype) for width in (self.key_dim, self.value_dim)]
        return kept + [(1, torch.float32)] * 2 if self.stored == torch.int8 else kept

    @property
    def bytes_per_token(self) -> int:
        return self.kv_heads * sum(width * dtype.itemsize for width, dtype in self.planes)

    def encode(self, keys: Tensor, values: Tensor) -> list[Tensor]:
        """(B, H, T, .) each, to the planes, (B, H, T, width) each."""
        if self.stored == torch.int8:
            (k, k_scale), (v, v_scale) = quantise(keys), quantise(values)
            return [k, v, k_scale, v_scale]
        return [x.to(self.stored or self.dtype) for x in (keys, values)]

    def decode(self, planes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """What `encode` was given, or near to it; no copy where it is stored as given."""
        if self.stored == torch.int8:
            planes = [steps * scale for steps, scale in zip(planes[:2], planes[2:], strict=True)]
        keys, values = (plane.to(self.dtype) for plane in planes)
        return keys, values


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """(.., D) to int8 (.., D) and the fp32 scale (.., 1) that its numbers are steps of."""
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True) / LEVELS
    steps = torch.where(scale > 0, x / scale, 0.0)  # of a NaN the scale is NaN, and so is what is read
    return steps.round().clamp(-LEVELS, LEVELS).to(torch.int8), scale
