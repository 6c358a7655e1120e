"""Attention of the last one or few positions of each sequence to a cache that holds them: a step of decoding.

cache.append(keys, values)                                     # (B, H_kv, T, .), of the T new positions
out = decode_attention(q, cache, backend="reference")          # q (B, H, T, D_k), of the same
out = decode_attention(q, cache, backend="triton")             # on a GPU: reads the cache as it is stored, once
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.attention import Blocks, attention
from common.attention.backends.triton import MAX_HEAD_DIM, no_machine
from common.attention.cache import Cache, Cached, SlidingCache
from common.attention.request import DTYPES

BACKENDS = ("reference", "triton")


@torch.no_grad()
def decode_attention(
    q: Tensor, cache: Cache, *, scale: float | None = None, window: int | None = None, backend: str
) -> Tensor:
    """softmax(scale * q k^T) v over the positions that the cache holds up to the query's own.

    Args:
        q: (B, H, T, D_k), in the dtype that the cache is read in: the queries of the last T positions held of each
            sequence, whose keys were appended before. H is a multiple of the cache's heads. Any strides.
        cache: of any kind; a SlidingCache for T = 1, as the earlier of several queries would see what has slid out of it.
        scale: D_k^(-1/2) unless given.
        window: how many last positions a query sees, its own counted; None: all. Positions that were evicted count.
        backend: "reference", or "triton", for a GPU of NVIDIA (or a CPU under TRITON_INTERPRET=1, for tests). It computes
            exactly this or refuses; nothing is put in its place. The second multiplies in q's dtype and adds in fp32; in
            int8 it multiplies by the stored steps, and never makes the numbers that the first one reads.

    Returns:
        (B, H, T, D_v) in q's dtype, without gradient; zeros for a query of a position that the sequence doesn't have, as it
        holds fewer than T.

    Raises:
        ValueError: for what does not fit together, and for what the backend can't do, with its reason.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    factor = cache.shape.key_dim**-0.5 if scale is None else scale
    _check(q, cache, factor, window)
    if backend == "reference":
        return _reference(q, cache.read(), factor, window)
    if reason := _unsupported(q, cache):
        raise ValueError(f"backend 'triton' {reason}; these can: reference")
    from common.attention.kernels.decode_launch import Problem, decode

    return decode(Problem(q, cache, factor, None if isinstance(cache, SlidingCache) else window))


def _reference(q: Tensor, held: Cached, scale: float, window: int | None) -> Tensor:
    """The specification. Which slot holds what does not matter: positions are compared."""
    numbers = held.positions.masked_fill(~held.real, -1)
    own = pad(numbers, (q.shape[2], 0), value=-1).sort(-1).values[:, -q.shape[2] :, None]
    distance = own - numbers[:, None]
    allowed = held.real[:, None] & (distance >= 0)
    if window is not None:
        allowed &= distance < window
    with torch.autocast(q.device.type, enabled=False):  # which would choose another dtype
        mask = Blocks(allowed[:, None], 1)
        return attention(q, held.keys, held.values, mask=mask, scale=scale, backend="reference")


def _unsupported(q: Tensor, cache: Cache) -> str | None:
    """What the kernels can't do; reasons that lie in the request come before those of the machine."""
    if q.dtype == torch.float64:
        return "takes fp16, bf16 and fp32, not torch.float64"
    size = max(cache.shape.key_dim, cache.shape.value_dim)
    if size > MAX_HEAD_DIM:
        return f"takes head_dims up to {MAX_HEAD_DIM}, not {size}"
    if isinstance(cache, SlidingCache):
        for n, held in enumerate(cache.held):
            if held.length < min(held.seen, cache.capacity):
                return f"takes a SlidingCache without gaps, and tokens of sequence {n} were evicted"
    return no_machine(q.device, q.dtype)


def _check(q: Tensor, cache: Cache, scale: float, window: int | None) -> None:
    """Raises ValueError, naming what was got and expected."""
    shape = cache.shape
    if q.ndim != 4 or q.dtype != shape.dtype or q.dtype not in DTYPES or q.device != cache.device:
        raise ValueError(
            f"q: got {q.dtype} {tuple(q.shape)} on {q.device}, expected {shape.dtype} (batch, heads, time, head_dim) on "
            f"{cache.device}, as the cache's and one of fp16, bf16, fp32, fp64"
        )
    batch, heads, time, size = q.shape
    if (batch, size) != (cache.sequences, shape.key_dim) or not time:
        raise ValueError(
            f"q: got {tuple(q.shape)}, expected {(cache.sequences, heads, time or 1, shape.key_dim)}, as many sequences "
            "and numbers a key as the cache has, and 1 query or more"
        )
    if not heads or heads % shape.kv_heads:
        raise ValueError(f"heads: got {heads} of q and {shape.kv_heads} of the cache, expected these to divide those")
    if window is not None and window < 1:
        raise ValueError(f"window: got {window}, expected 1 or more positions, or None for all")
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale: got {scale}, expected a finite number, 0 or more")
    if isinstance(cache, SlidingCache):
        if time > 1:
            raise ValueError(
                f"q: got {time} queries, expected 1 to a SlidingCache: what the earlier of them see has slid out of it"
            )
        if window is not None and window < cache.capacity:
            raise ValueError(f"window: got {window}, expected None or at least {cache.capacity}, as the SlidingCache's")
