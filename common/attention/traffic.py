"""Bytes that attention asks of memory, in closed form: our flash kernels over lists of blocks, attention written out, and our
kernels of linear attention and of decoding.

Dao et al. 2022, section 3.2: with on-chip memory for BLOCK_Q queries, K and V are read once for each block of queries, so
that traffic falls with the block (theorem 2), while attention written out moves N x N matrices. Counted are the bytes of
tensors, without the lists; what caches let through is less, and never less than each tensor once.
"""

from collections import Counter
from dataclasses import dataclass

import torch

from common.attention.blocks import lower
from common.attention.masks import Mask

LSE_BYTES = 4  # of lse and delta, fp32, and of the sums of linear attention and of decoding
BOUND_BYTES, PAGE_BYTES = 4, 8


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


@dataclass(frozen=True)
class LinearShape:
    """q (B, H, Lq, M), k (B, H, Lk, M), v (B, H, Lk, Dv), no padding; `of_features`, `of_values`: bytes of an element of the
    first two and of v. chunk: queries and keys; block_m, block_d: features and values of a program, the same in all kernels."""

    batch: int
    heads: int
    lq: int
    lk: int
    m: int
    dv: int
    of_features: int
    of_values: int
    causal: bool
    log: bool
    chunk: int
    block_m: int
    block_d: int

    @property
    def slices_m(self) -> int:
        return -(-self.m // self.block_m)

    @property
    def slices_d(self) -> int:
        return -(-self.dv // self.block_d)

    def features(self, length: int) -> int:
        return self.batch * self.heads * length * self.m * self.of_features

    def values(self, length: int) -> int:
        return self.batch * self.heads * length * self.dv * self.of_values

    def numbers(self, count: int) -> int:
        """So many wide ones a head."""
        return self.batch * self.heads * count * LSE_BYTES

    def chunks(self, length: int) -> int:
        return -(-length // self.chunk)


def linear_states(s: LinearShape) -> Counter[str]:
    """Bytes by argument of the kernel that walks the keys: it reads slot 0 and writes the others, of M x Dv sums each."""
    written = s.chunks(s.lk) if s.causal else 1
    vector = s.numbers((s.slices_d + written) * s.m)
    return Counter(
        k=s.slices_d * s.features(s.lk), v=s.slices_m * s.values(s.lk), states=s.numbers((1 + written) * s.m * s.dv),
        norms=vector, logs=vector * s.log,
    )  # fmt: skip


def linear_outputs(s: LinearShape) -> Counter[str]:
    """Bytes of the kernel that answers the queries: of a slot a chunk and, causal, of the keys and values of the chunk."""
    vector = s.numbers(s.chunks(s.lq) * s.slices_d * s.m)
    return Counter(
        q=s.slices_d * s.features(s.lq), k=s.slices_d * s.features(s.lk) * s.causal, v=s.values(s.lk) * s.causal,
        states=s.numbers(s.chunks(s.lq) * s.m * s.dv), norms=vector, logs=vector * s.log * (1 + s.causal),
        output=s.values(s.lq), totals=s.numbers(s.lq),
    )  # fmt: skip


def linear_d_states(s: LinearShape) -> Counter[str]:
    """Bytes of the kernel that walks the queries from the end: it reads the last slot's gradient and writes the others'."""
    written = s.chunks(s.lq) if s.causal else 2
    rows = s.numbers(s.slices_m * s.slices_d * s.lq)
    return Counter(
        q=s.slices_d * s.features(s.lq), d_output=s.slices_m * s.values(s.lq), totals=rows, deltas=rows,
        d_states=s.numbers((1 + written) * s.m * s.dv), d_norms=s.numbers((s.slices_d + written) * s.m),
        logs=s.numbers(s.slices_d * (1 + (written if s.causal else 1)) * s.m) * s.log,
    )  # fmt: skip


def linear_d_features(s: LinearShape) -> Counter[str]:
    """Bytes of the kernel of dq and dk. The features themselves are needed within a chunk and for their exponentials."""
    chunks, looked_at = s.chunks(max(s.lq, s.lk)), s.causal or s.log
    rows, vector, sums = s.numbers(s.slices_m * s.lq), s.numbers(chunks * s.m), s.numbers(chunks * s.m * s.dv)
    return Counter(
        q=s.features(s.lq) * looked_at, k=s.features(s.lk) * looked_at, v=s.slices_m * s.values(s.lk),
        d_output=s.slices_m * s.values(s.lq), totals=rows, deltas=rows, states=sums, norms=vector, d_states=sums,
        d_norms=vector, logs=vector * s.log * (1 + s.causal), dq=s.features(s.lq), dk=s.features(s.lk),
    )  # fmt: skip


def linear_d_values(s: LinearShape) -> Counter[str]:
    """Bytes of the kernel of dv."""
    chunks = s.chunks(s.lk)
    return Counter(
        k=s.slices_d * s.features(s.lk), q=s.slices_d * s.features(s.lq) * s.causal, d_output=s.values(s.lq) * s.causal,
        totals=s.numbers(s.slices_d * s.lq) * s.causal, d_states=s.numbers(chunks * s.m * s.dv),
        logs=s.numbers(chunks * s.slices_d * s.m) * s.log, dv=s.values(s.lk),
    )  # fmt: skip


@dataclass(frozen=True)
class DecodeShape:
    """q (B, H, T, D) to kv_heads heads of a cache. seen: of each sequence, which of its tokens some query sees, from the first to
    before the second number. size, stored: bytes of an element of q and of the cache. scaled: its tokens have scales. paged:
    they lie in pages. block: keys that a program takes at a time; rows: queries that it holds; span: blocks of a split."""

    heads: int
    kv_heads: int
    queries: int
    d: int
    dv: int
    seen: tuple[tuple[int, int], ...]
    size: int
    stored: int
    scaled: bool
    paged: bool
    block: int
    rows: int
    splits: int
    span: int

    @property
    def tiles(self) -> int:
        """Of rows, each of which reads the keys: 1 as long as they hold all queries that share keys."""
        return -(-self.heads // self.kv_heads * self.queries // self.rows)

    @property
    def reads(self) -> int:
        """Of tokens, over heads and tiles."""
        return sum(end - first for first, end in self.seen) * self.kv_heads * self.tiles

    @property
    def parts(self) -> int:
        """Of all queries, one for each split that has a token."""
        blocks = (-(-end // self.block) - first // self.block for first, end in self.seen)
        return sum(-(-count // self.span) for count in blocks) * self.heads * self.queries


def decode_split(s: DecodeShape) -> Counter[str]:
    """Bytes by argument of the kernel that reads the cache: each token that is seen once for a tile of queries."""
    scales, programs = s.reads * LSE_BYTES * s.scaled, len(s.seen) * s.kv_heads * s.tiles * s.splits
    return Counter(
        q=s.parts * s.d * s.size, k=s.reads * s.d * s.stored, v=s.reads * s.dv * s.stored, k_scales=scales, v_scales=scales,
        table=s.reads * PAGE_BYTES * s.paged, bounds=programs * (2 + 2 * s.rows) * BOUND_BYTES,
        sums=s.parts * s.dv * LSE_BYTES, tops=s.parts * LSE_BYTES, totals=s.parts * LSE_BYTES,
    )  # fmt: skip


def decode_merge(s: DecodeShape) -> Counter[str]:
    """Bytes of the kernel that puts the splits together."""
    answers = len(s.seen) * s.heads * s.queries
    return Counter(
        sums=s.parts * s.dv * LSE_BYTES, tops=s.parts * LSE_BYTES, totals=s.parts * LSE_BYTES,
        bounds=answers * 2 * BOUND_BYTES, output=answers * s.dv * s.size,
    )  # fmt: skip
