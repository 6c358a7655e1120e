"""Bytes of a cache: what is planned, in closed form, is what is allocated."""

import pytest
import torch

from common.attention.cache import Cache, CacheShape, GrowingCache, PagedCache, Plan, SlidingCache, StaticCache

GIB = 2**30


def shape(kv_heads: int = 32, *, dtype: torch.dtype = torch.float16, stored: torch.dtype | None = None) -> CacheShape:
    return CacheShape(kv_heads=kv_heads, key_dim=128, value_dim=128, dtype=dtype, stored=stored)


def test_bytes_of_a_token_by_hand() -> None:
    """32 heads of 128, 4096 dimensions: 8192 numbers a layer and token; with 8 heads of keys and values 2048."""
    assert shape().bytes_per_token == 2 * 4096 * 2
    assert shape(8).bytes_per_token == 2048 * 2
    assert 1 - shape(8).bytes_per_token / shape(32).bytes_per_token == 0.75
    assert shape(1).bytes_per_token == 2 * 128 * 2
    assert shape(dtype=torch.float32).bytes_per_token == 4 * 8192
    assert shape(dtype=torch.float32, stored=torch.bfloat16).bytes_per_token == 2 * 8192
    assert (
        shape(stored=torch.int8).bytes_per_token == 8192 + 2 * 32 * 4
    )  # a number of four bytes for each head, of both
    assert Plan(32, shape()).bytes_per_token == 2**19


def test_a_latent_and_a_rotary_key_by_hand() -> None:
    """DeepSeek-V2 2024, Table 1: (512 + 64) * 60 = 34,560 numbers a token, as keys of 64 and values of 512."""
    latent = CacheShape(kv_heads=1, key_dim=64, value_dim=512, dtype=torch.bfloat16)
    assert Plan(60, latent).bytes_per_token == 2 * 34_560


def test_the_longest_that_fits() -> None:
    plan = Plan(32, shape())
    assert plan.longest(16 * GIB) == 32_768 and plan.longest(16 * GIB - 1) == 32_767
    assert plan.longest(16 * GIB, sequences=8) == 4096
    assert Plan(32, shape(8)).longest(16 * GIB) == 4 * 32_768
    plan.check(4096, 16 * GIB, sequences=8)
    with pytest.raises(ValueError, match="got 17179869184 bytes, expected 17184063488 for 8 x 4097 positions") as told:
        plan.check(4097, 16 * GIB, sequences=8)
    assert "they hold 4096 each" in str(told.value)


def test_no_model_has_no_layers() -> None:
    with pytest.raises(ValueError, match="layers: got 0, expected 1 or more"):
        Plan(0, shape())


def allocated(cache: Cache) -> int:
    return sum(plane.untyped_storage().nbytes() for plane in cache.planes)


@pytest.mark.parametrize("stored", [None, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_is_allocated_is_what_was_planned(dtype: torch.dtype, stored: torch.dtype | None) -> None:
    kept = CacheShape(kv_heads=2, key_dim=8, value_dim=6, dtype=dtype, stored=stored)
    plan, x = Plan(1, kept), torch.randn(3, 2, 40, 8).to(dtype)
    caches: list[tuple[Cache, int]] = [
        (GrowingCache(kept, sequences=3), plan.bytes(64, 3)),
        (StaticCache(kept, sequences=3, capacity=50), plan.bytes(50, 3)),
        (SlidingCache(kept, sequences=3, window=7), plan.bytes(7, 3)),
        (PagedCache(kept, sequences=3, pages=32, page_size=4), plan.bytes(32 * 4)),
    ]
    for cache, planned in caches:
        for t in range(0, 40, 8):
            cache.append(x[:, :, t : t + 8], x[:, :, t : t + 8, :6])
        assert allocated(cache) == planned == cache.bytes
    for cache, planned in caches[:3]:  # copies of what is there, slots and all
        cache.fork(2)
        assert allocated(cache) == 2 * planned
    cache, planned = caches[3]
    cache.fork(2)
    assert allocated(cache) == planned
