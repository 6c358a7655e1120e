"""The pieces that `chunked` computes one after the other: what they read of the whole, and where their results go.

Whole tensors are cut into blocks: of queries (B, Hkv, g, rows, block_q, .), g query heads to a key head, and of keys
(B, Hkv, columns, block_k, .). A group's part of them has batch and key heads as one axis of pairs, X.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from common.attention.backends.chunked_plan import Bucket, Plan

AT_ONCE = 1 << 18
"""Scores in a piece: large enough for full speed, small enough to stay in a core's cache (fp32: 1 MiB)."""


@dataclass(frozen=True, eq=False)
class Group:
    """The part of batch and heads that one list of blocks is for. heads: int64 (X, g), batch * H + head."""

    batch: slice
    key_heads: slice
    members: slice
    heads: Tensor

    def queries(self, whole: Tensor) -> Tensor:
        """(X, g, rows, block_q, .), a view."""
        part = whole[self.batch, self.key_heads, self.members]
        return part.view(len(self.heads), *part.shape[2:])

    def keys(self, whole: Tensor) -> Tensor:
        """(X, columns, block_k, .), a view."""
        part = whole[self.batch, self.key_heads]
        return part.view(len(self.heads), *part.shape[2:])


@dataclass(frozen=True, eq=False)
class Piece:
    """x pairs, times the n rows of a bucket, times their m columns. heads: (x, g). cap: as of `_cap`."""

    pairs: slice
    bucket: Bucket
    heads: Tensor
    cap: Tensor | None

    def queries(self, part: Tensor) -> Tensor:
        """(X, g, rows, block_q, .) -> (x * n, g * block_q, .)"""
        part = part[self.pairs]
        if self.bucket.corner:
            part = part.narrow(2, self.bucket.corner[0], len(self.bucket.rows))
        else:
            part = part.index_select(2, self.bucket.rows)
        return part.transpose(1, 2).flatten(2, 3).flatten(0, 1)

    def put(self, part: Tensor, value: Tensor) -> None:
        """The way back of `queries`."""
        value = value.view(-1, len(self.bucket.rows), part.shape[1], *part.shape[3:]).transpose(1, 2)
        if self.bucket.corner:
            part[self.pairs].narrow(2, self.bucket.corner[0], len(self.bucket.rows)).copy_(value)
        else:
            part[self.pairs].index_copy_(2, self.bucket.rows, value.to(part.dtype))

    def keys(self, part: Tensor) -> Tensor:
        """(X, columns, block_k, .) -> (x * n, m * block_k, .), a view where the columns follow one another."""
        part = part[self.pairs]
        n, m = self.bucket.columns.shape
        if self.bucket.corner:
            part = part.narrow(1, self.bucket.corner[1], n - 1 + m).unfold(1, m, 1).movedim(-1, 2)
        else:
            part = part.index_select(1, self.bucket.columns.flatten()).unflatten(1, (n, m))
        part = part.flatten(2, 3).flatten(0, 1)
        return part if part.element_size() > 2 else part.contiguous()  # 16-bit products are slow where rows overlap

    def add(self, part: Tensor, value: Tensor) -> None:
        """Add what belongs to `keys`, each block to its column."""
        n, m = self.bucket.columns.shape
        value = value.view(-1, n, m, *part.shape[2:])
        part = part[self.pairs]
        if not self.bucket.corner:
            part.index_add_(1, self.bucket.columns.flatten(), value.flatten(1, 2).to(part.dtype))
        elif n == 1:
            part.narrow(1, self.bucket.corner[1], m).add_(value[:, 0])
        else:
            for slot in range(m):
                part.narrow(1, self.bucket.corner[1] + slot, n).add_(value[:, :, slot])


def groups(plan: Plan, batch: int, key_heads: int, members: int) -> Iterator[tuple[Group, list[Bucket]]]:
    """The groups of a mask with their buckets. members: query heads a key head."""
    heads = torch.arange(batch * key_heads * members, device=plan.tiles.device).view(batch, key_heads, members)
    for number, buckets in enumerate(plan.groups):
        entry, head = divmod(number, plan.lists.groups[1])
        b = k = m = slice(None)
        if plan.lists.groups[0] > 1:
            b = slice(entry, entry + 1)
        if plan.lists.groups[1] > 1:
            key_head, member = divmod(head, members)
            k, m = slice(key_head, key_head + 1), slice(member, member + 1)
        yield Group(b, k, m, heads[b, k, m].flatten(0, 1)), buckets


def pieces(plan: Plan, group: Group, buckets: list[Bucket], dtype: torch.dtype) -> Iterator[Piece]:
    """Cut the buckets so that no piece has more than AT_ONCE scores, or else one row of one pair."""
    pairs, members = group.heads.shape
    for bucket in buckets:
        n, m = bucket.columns.shape
        row_size = members * plan.lists.block_q * m * plan.lists.block_k
        rows = max(1, min(n, AT_ONCE // row_size))
        many = max(1, AT_ONCE // (row_size * n))
        shared = len(bucket.tiles) == 1
        cap = _cap(plan, bucket, dtype) if shared else None
        for pair in range(0, pairs, many):
            for row in range(0, n, rows):
                part = bucket.part(row, row + rows)
                some = slice(pair, pair + many)
                yield Piece(some, part, group.heads[some], cap if shared else _cap(plan, part, dtype))


def _cap(plan: Plan, bucket: Bucket, dtype: torch.dtype) -> Tensor | None:
    """Upper bound of the scores in the bucket's partial columns, (n or 1, block_q, span): inf where the mask allows it,
    else -inf; a query that sees no key of the bucket has 0 everywhere, so that its softmax exists. None: all full."""
    if not bucket.tiles.shape[1]:
        return None
    allowed = plan.tiles[bucket.tiles].transpose(1, 2).flatten(2)
    cap = torch.full(allowed.shape, torch.inf, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)
    if bucket.partial == (0, bucket.columns.shape[1]):
        cap.masked_fill_(~allowed.any(-1, keepdim=True), 0.0)
    return cap
