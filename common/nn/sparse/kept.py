"""What layers keep of each token while a text is written, and in which numbers.

layer = Full(backend="sdpa", causal=True, kv_heads=8, cache="int8")(4096, 32, 0, 1)
Plan(layers=32, shape=layer.cache_shape(torch.bfloat16)).longest(16 * 2**30)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from common.attention.cache import CacheShape, Remembered
from common.nn.sparse.layer import Settings

Stored = Literal["bf16", "int8"]
DTYPES: dict[Stored | None, torch.dtype | None] = {None: None, "bf16": torch.bfloat16, "int8": torch.int8}


@dataclass(frozen=True, kw_only=True)
class Kept(Settings):
    """cache: in which numbers `step` keeps a token (`CacheShape.stored`), None: as computed. `forward`, and training with
    it, keeps nothing and is the same with any."""

    cache: Stored | None = None

    def __post_init__(self) -> None:
        if self.cache not in DTYPES:
            raise ValueError(f"cache: got {self.cache!r}, expected None (as computed), bf16 or int8")

    @property
    def stored(self) -> torch.dtype | None:
        return DTYPES[self.cache]


def extended(
    memory: Remembered | None, shape: CacheShape, keys: Tensor, values: Tensor, window: int | None = None
) -> Remembered:
    """memory, None: of no position yet, with those of the next positions, (B, H_kv, T, .) as `shape` has them. window: how
    many are kept at most, None: all."""
    if memory is None:
        memory = Remembered.nothing(shape, len(keys), keys.device, window=window)
    return memory.extended(keys, values)
