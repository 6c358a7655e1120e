"""How `chunked` reads a mask's block lists: as buckets of blocks of queries that look at equally many blocks of keys."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from common.attention.backends.visible import visible
from common.attention.blocks import BlockLists


@dataclass(frozen=True, eq=False)
class Bucket:
    """n rows (blocks of queries), each with m columns (blocks of keys) in ascending order.

    rows: int64 (n,); columns: int64 (n, m); tiles: int64 (n, span), or (1, span) where all rows allow the same, places in
    `Plan.tiles`, of the columns from number `partial[0]` to `partial[1]`: the others are full.
    corner: first row and first column, where rows and columns follow one another and each row starts a column later.
    """

    rows: Tensor
    columns: Tensor
    tiles: Tensor
    partial: tuple[int, int]
    corner: tuple[int, int] | None

    def part(self, first: int, last: int) -> "Bucket":
        tiles = self.tiles if len(self.tiles) == 1 else self.tiles[first:last]
        corner = self.corner and (self.corner[0] + first, self.corner[1] + first)
        return replace(self, rows=self.rows[first:last], columns=self.columns[first:last], tiles=tiles, corner=corner)

    def to(self, device: torch.device) -> "Bucket":
        moved = {name: getattr(self, name).to(device) for name in ("rows", "columns", "tiles")}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class Plan:
    """groups: buckets of each group of the mask. tiles: bool (T + 1, block_q, block_k), the last one full.

    live, seen: as of `visible`.
    """

    lists: BlockLists
    groups: list[list[Bucket]]
    tiles: Tensor
    live: Tensor | None
    seen: Tensor | None


@lru_cache(maxsize=64)
def plan(lists: BlockLists, device: torch.device) -> Plan:
    """lists: on the CPU. The plan's tensors lie on device."""
    tiles = torch.cat((lists.tiles, torch.ones_like(lists.tiles[:1])))
    groups = []
    for start in lists.by_query.start.long():
        entries = slice(int(start[0]), int(start[-1]))
        column = lists.by_query.column[entries].long()
        tile = lists.by_query.tile[entries].long() % len(tiles)  # -1, full, is the last one
        groups.append([bucket.to(device) for bucket in _buckets(start - start[0], column, tile, len(tiles) - 1)])
    live, seen = (side if side is None else side.to(device) for side in visible(lists))
    return Plan(lists, groups, tiles.to(device), live, seen)


def _buckets(start: Tensor, column: Tensor, tile: Tensor, full: int) -> list[Bucket]:
    """Rows with as many columns go together; of these, rows that allow the same to each other, and the rest."""
    counts, found = start.diff(), []
    for m in counts[counts > 0].unique().tolist():
        rows = torch.nonzero(counts == m)[:, 0]
        entry = start[rows, None] + torch.arange(m)
        columns, order = column[entry].sort(1)
        tiles = tile[entry].gather(1, order)
        patterns, which, size = torch.unique(tiles, dim=0, return_inverse=True, return_counts=True)
        for pattern in torch.nonzero(size > 1)[:, 0].tolist():
            chosen = which == pattern
            found.append(_bucket(rows[chosen], columns[chosen], patterns[pattern : pattern + 1], full))
        odd = size[which] == 1
        if odd.any():
            found.append(_bucket(rows[odd], columns[odd], tiles[odd], full))
    return found


def _bucket(rows: Tensor, columns: Tensor, tiles: Tensor, full: int) -> Bucket:
    unsure = torch.nonzero((tiles != full).any(0))[:, 0]
    partial = (int(unsure[0]), int(unsure[-1]) + 1) if len(unsure) else (0, 0)
    step = torch.arange(len(rows))
    diagonal = torch.equal(rows, rows[0] + step) and torch.equal(
        columns, columns[0, 0] + step[:, None] + torch.arange(columns.shape[1])
    )
    corner = (int(rows[0]), int(columns[0, 0])) if diagonal else None
    return Bucket(rows, columns, tiles[:, partial[0] : partial[1]], partial, corner)
