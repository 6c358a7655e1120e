"""Keys and values kept for decoding.

cache = GrowingCache(CacheShape(kv_heads=8, key_dim=128, value_dim=128, dtype=torch.bfloat16), sequences=2)
cache.append(keys, values, real=real)
held = cache.read()
out = attention(q, held.keys, held.values, mask=Padding(held.real), backend="sdpa")
"""

from common.attention.cache.contiguous import GrowingCache, SlidingCache, StaticCache
from common.attention.cache.interface import Cache, Cached
from common.attention.cache.paged import PagedCache
from common.attention.cache.plan import Plan
from common.attention.cache.remembered import Remembered
from common.attention.cache.storage import CacheShape

__all__ = [
    "Cache",
    "CacheShape",
    "Cached",
    "GrowingCache",
    "PagedCache",
    "Plan",
    "Remembered",
    "SlidingCache",
    "StaticCache",
]
