"""Bytes that attention asks of memory, in closed form: our flash kernels over lists of blocks, and attention written out.

Dao et al. 2022, section 3.2: with on-chip memory for BLOCK_Q queries, K and V are read once for each block of queries, so
that traffic falls with the block (theorem 2), while attention written out moves N x N matrices. Counted are the bytes of
tensors, without the lists; what caches let through is less, and never less than each tensor once.
"""

from collections import Counter
from dataclasses import dataclass

import torch

from common.attention.blocks import lower
from common.attention.masks import Mask

LSE_BYTES = 4  # of lse and delta, fp32


@dataclass(frozen=True)
class Shape:
    """q (B, H, Lq, D), k (B, H / group, Lk, D), v (.., Dv); `size`: bytes of an element."""

    batch: int
    heads: int
    group: int
    lq: int
    lk: int
    d: int
    dv: int
    size: int


def flash_forward(shape: Shape, mask: Mask, block_q: int, block_k: int) -> Counter[str]:
    """Bytes by argument of the forward kernel: what it loads, and output and lse that it stores."""
    s, keys = shape, listed_keys(shape, mask, block_q, block_k)
    each = s.batch * s.heads
    return Counter(
        q=each * s.lq * s.d * s.size, k=keys * s.d * s.size, v=keys * s.dv * s.size,
        output=each * s.lq * s.dv * s.size, lse=each * s.lq * LSE_BYTES,
    )  # fmt: skip


def flash_delta(shape: Shape) -> Counter[str]:
    """Bytes of the kernel that sums dO * O."""
    each = shape.batch * shape.heads * shape.lq
    rows = each * shape.dv * shape.size
    return Counter(output=rows, d_output=rows, delta=each * LSE_BYTES)


def flash_query(shape: Shape, mask: Mask, block_q: int, block_k: int) -> Counter[str]:
    """Bytes of the kernel of dQ: one program a block of queries."""
    s, keys = shape, listed_keys(shape, mask, block_q, block_k)
    rows = s.batch * s.heads * s.lq
    return Counter(
        q=rows * s.d * s.size, d_output=rows * s.dv * s.size, lse=rows * LSE_BYTES, delta=rows * LSE_BYTES,
        k=keys * s.d * s.size, v=keys * s.dv * s.size, dq_out=rows * s.d * s.size,
    )  # fmt: skip


def flash_key_value(shape: Shape, mask: Mask, block_q: int, block_k: int) -> Counter[str]:
    """Bytes of the kernel of dK and dV: one program a block of keys, over the queries of all heads that share them.

    lse and delta are read for all queries of a listed block, q and dO for those that the mask lets see one of the keys.
    """
    s = shape
    queries, blocks = listed_queries(s, mask, block_q, block_k)
    rows = s.batch * s.heads // s.group * s.lk
    return Counter(
        k=rows * s.d * s.size, v=rows * s.dv * s.size, q=queries * s.d * s.size, d_output=queries * s.dv * s.size,
        lse=blocks * LSE_BYTES, delta=blocks * LSE_BYTES, dk_out=rows * s.d * s.size, dv_out=rows * s.dv * s.size,
    )  # fmt: skip


def flash_products(shape: Shape, mask: Mask, block_q: int, block_k: int, products: int) -> int:
    """FLOPs of so many matrix products over the listed blocks, whole blocks counted (D and Dv the same)."""
    lists = lower(mask, shape.lq, shape.lk, block_q, block_k)
    return products * 2 * _times(shape, lists.groups) * len(lists.by_query.column) * block_q * block_k * shape.d


def listed_keys(shape: Shape, mask: Mask, block_q: int, block_k: int) -> int:
    """Rows of k that all blocks of queries of all heads read: of a full block all, of a partial one those it allows."""
    lists = lower(mask, shape.lq, shape.lk, block_q, block_k)
    seen = lists.tiles.any(1).sum(1)
    tile = lists.by_query.tile.long()
    return _times(shape, lists.groups) * int(torch.where(tile < 0, block_k, seen[tile.clamp(min=0)]).sum())


def listed_queries(shape: Shape, mask: Mask, block_q: int, block_k: int) -> tuple[int, int]:
    """Rows of q that all blocks of keys read over all heads, and those of the whole blocks that they lie in."""
    lists = lower(mask, shape.lq, shape.lk, block_q, block_k)
    seen = lists.tiles.any(2).sum(1)
    tile, column = lists.by_key.tile.long(), lists.by_key.column.long()
    whole = (shape.lq - column * block_q).clamp(max=block_q)
    rows = torch.where(tile < 0, whole, seen[tile.clamp(min=0)])
    times = _times(shape, lists.groups)
    return times * int(rows.sum()), times * int(whole.sum())


def _times(shape: Shape, groups: tuple[int, int]) -> int:
    """Batch entries and heads that share a list."""
    return shape.batch // groups[0] * (shape.heads // groups[1])


def standard_forward(shape: Shape) -> Counter[str]:
    """Dao et al. 2022, algorithm 0: S = Q K^T is written and read, P = softmax(S) is written and read."""
    s, each = shape, shape.batch * shape.heads
    matrix = each * s.lq * s.lk * s.size
    return Counter(
        q=each * s.lq * s.d * s.size, k=each * s.lk * s.d * s.size, v=each * s.lk * s.dv * s.size,
        scores=2 * matrix, weights=2 * matrix, output=each * s.lq * s.dv * s.size,
    )  # fmt: skip


def standard_backward(shape: Shape) -> Counter[str]:
    """Appendix B.2, algorithm 3: dV = P^T dO; dP = dO V^T; dS = P * (dP - rows' sums); dQ = dS K; dK = dS^T Q."""
    s, each = shape, shape.batch * shape.heads
    matrix = each * s.lq * s.lk * s.size
    queries, keys = each * s.lq * s.size, each * s.lk * s.size
    return Counter(
        weights=2 * matrix, d_weights=2 * matrix, d_scores=3 * matrix, d_output=2 * queries * s.dv,
        q=queries * s.d, k=keys * s.d, v=keys * s.dv, dq=queries * s.d, dk=keys * s.d, dv=keys * s.dv,
    )  # fmt: skip


def standard_products(shape: Shape) -> int:
    """FLOPs of the two products forward and four backward."""
    s = shape
    return 2 * s.batch * s.heads * s.lq * s.lk * (s.d + s.dv + 2 * (s.d + s.dv))
