"""What block-sparse backends read: for each block of queries, the blocks of keys it has to look at.

A mask's `status` sorts out most blocks without looking inside. The rest are looked at one element each, so that a block
is listed as full only if it is, and not at all if nothing in it is allowed. Where only the distance between query and
key counts, equal distances are looked at once: the work and the tiles are then of the order of the list.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from common.attention.masks import EMPTY, FULL, PARTIAL, Mask

AT_ONCE = 1 << 22  # elements looked at in one go


@dataclass(frozen=True, eq=False)
class Lists:
    """One list a group and block: `column[start[g, r] : start[g, r + 1]]`, the full blocks first.

    start: int32 (G, rows + 1), counting in column, so that each group's last entry is the next one's first;
    full_end: int32 (G, rows), where row r's full blocks end; column: int32 (N,), ascending in each part;
    tile: int32 (N,), -1 for a full block, else the index of what it allows in `BlockLists.tiles`.
    """

    start: Tensor
    full_end: Tensor
    column: Tensor
    tile: Tensor

    def to(self, device: torch.device | str) -> "Lists":
        return Lists(*(t.to(device) for t in (self.start, self.full_end, self.column, self.tile)))


@dataclass(frozen=True, eq=False)
class BlockLists:
    """A mask as lists of blocks of `block_q` queries and `block_k` keys.

    groups: (B or 1, H or 1); the list of batch entry b and head h is that of group ``(b if B > 1 else 0) * H + (h if
    H > 1 else 0)``. by_query: rows are blocks of queries, columns blocks of keys; by_key the other way round, with the
    same tiles. tiles: bool (T, block_q, block_k), True = may attend; False beyond Lq and Lk. A full block lies inside
    both lengths but for query rows beyond Lq in the last block of queries.
    """

    lq: int
    lk: int
    block_q: int
    block_k: int
    groups: tuple[int, int]
    by_query: Lists
    by_key: Lists
    tiles: Tensor

    @property
    def density(self) -> float:
        """Share of all blocks that are listed."""
        total = self.by_query.full_end.numel() * -(-self.lk // self.block_k)
        return self.by_query.column.numel() / max(total, 1)

    def dense(self) -> Tensor:
        """What the lists mean: bool (B, H, Lq, Lk) with B and H as in groups."""
        rows, columns = -(-self.lq // self.block_q), -(-self.lk // self.block_k)
        lists = self.by_query
        blocks = torch.zeros(lists.start.shape[0], rows, columns, self.block_q, self.block_k, dtype=torch.bool)
        for g in range(blocks.shape[0]):
            for r in range(rows):
                for n in range(int(lists.start[g, r]), int(lists.start[g, r + 1])):
                    tile = int(lists.tile[n])
                    blocks[g, r, int(lists.column[n])] = True if tile < 0 else self.tiles[tile].cpu()
        whole = blocks.transpose(2, 3).reshape(len(blocks), rows * self.block_q, columns * self.block_k)
        return whole[:, : self.lq, : self.lk].unflatten(0, self.groups)


def lower(mask: Mask, lq: int, lk: int, block_q: int, block_k: int, device: torch.device | str = "cpu") -> BlockLists:
    """The lists of a mask. Kept for masks that are compared by value or used again; nothing in them depends on data
    other than the mask's own."""
    return _lower(mask, lq, lk, block_q, block_k, str(device))


@lru_cache(maxsize=64)
def _lower(mask: Mask, lq: int, lk: int, block_q: int, block_k: int, device: str) -> BlockLists:
    batch, heads = mask.groups
    entries, tiles = [], _Tiles(block_q, block_k)
    for b in range(batch):
        for h in range(heads):
            entries.append(_entries(mask.at(b, h), lq, lk, tiles))
    rows, columns = -(-lq // block_q), -(-lk // block_k)
    by_query = _lists([(r, c, t) for r, c, t in entries], rows)
    by_key = _lists([(c, r, t) for r, c, t in entries], columns)
    return BlockLists(
        lq, lk, block_q, block_k, mask.groups, by_query.to(device), by_key.to(device), tiles.all().to(device)
    )


class _Tiles:
    """Distinct tiles."""

    def __init__(self, block_q: int, block_k: int) -> None:
        self.block_q, self.block_k = block_q, block_k
        self.index: dict[bytes, int] = {}
        self.kept: list[Tensor] = []

    def add(self, tiles: Tensor) -> Tensor:
        """int32 (n,): -1 for a full tile, -2 for an empty one, else its index. tiles: bool (n, block_q, block_k)."""
        found = []
        distinct, place = torch.unique(tiles.flatten(1), dim=0, return_inverse=True)
        for tile in distinct.view(-1, self.block_q, self.block_k):
            if not tile.any():
                found.append(-2)
            elif tile.all():
                found.append(-1)
            else:
                key = bytes(tile.flatten().tolist())  # without numpy, which torch does not bring
                if key not in self.index:
                    self.index[key] = len(self.kept)
                    self.kept.append(tile)
                found.append(self.index[key])
        return torch.tensor(found, dtype=torch.int32)[place]

    def all(self) -> Tensor:
        return torch.stack(self.kept) if self.kept else torch.zeros(1, self.block_q, self.block_k, dtype=torch.bool)


def _entries(mask: Mask, lq: int, lk: int, tiles: _Tiles) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and tile of every block of one group that is not empty, by rows."""
    block_q, block_k = tiles.block_q, tiles.block_k
    i0, j0 = torch.arange(0, lq, block_q)[:, None], torch.arange(0, lk, block_k)[None]
    i1, j1 = (i0 + block_q - 1).clamp(max=lq - 1), (j0 + block_k - 1).clamp(max=lk - 1)
    if not i0.numel() or not j0.numel():
        nothing = torch.zeros(0, dtype=torch.int64)
        return nothing, nothing, nothing.to(torch.int32)
    status = mask.status(i0, i1, j0, j1, lq, lk).expand(i0.shape[0], j0.shape[1]).clone()
    if lk % block_k:  # a full block is read without asking which keys are there
        status[:, -1] = status[:, -1].clamp(max=PARTIAL)
    rows, columns = torch.nonzero(status != EMPTY, as_tuple=True)
    tile = torch.full(rows.shape, -1, dtype=torch.int32)
    unsure = torch.nonzero(status[rows, columns] != FULL)[:, 0]
    tile[unsure] = _look(mask, rows[unsure], columns[unsure], lq, lk, tiles)
    keep = tile != -2
    return rows[keep], columns[keep], tile[keep]


def _look(mask: Mask, rows: Tensor, columns: Tensor, lq: int, lk: int, tiles: _Tiles) -> Tensor:
    """What each of these blocks allows."""
    block_q, block_k = tiles.block_q, tiles.block_k
    place = torch.arange(len(rows))
    if mask.shift_invariant:
        cut = (rows == (lq - 1) // block_q) * 2 + (columns == (lk - 1) // block_k)  # blocks that a length cuts off
        alike = torch.stack((rows * block_q - columns * block_k, cut), 1)
        _, place = torch.unique(alike, dim=0, return_inverse=True)
        first = torch.full((int(place.max()) + 1 if len(place) else 0,), len(rows)).scatter_reduce(
            0, place, torch.arange(len(rows)), "amin"
        )
        rows, columns = rows[first], columns[first]
    found = [torch.zeros(0, dtype=torch.int32)]
    for part in torch.arange(len(rows)).split(max(1, AT_ONCE // (block_q * block_k))):
        i = (rows[part, None, None] * block_q) + torch.arange(block_q)[:, None]
        j = (columns[part, None, None] * block_k) + torch.arange(block_k)
        inside = (i < lq) & (j < lk)
        allowed = mask.allowed(i.clamp(max=lq - 1), j.clamp(max=lk - 1), lq, lk)
        found.append(tiles.add(allowed & inside))
    return torch.cat(found)[place]


def _lists(entries: list[tuple[Tensor, Tensor, Tensor]], rows: int) -> Lists:
    """Sort each group's entries by row, full ones first, then by column."""
    starts, ends, columns, tiles, seen = [], [], [], [], 0
    for row, column, tile in entries:
        partial = (tile >= 0).long()
        width = int(column.max()) + 1 if len(column) else 1
        order = ((row * 2 + partial) * width + column).argsort()
        count = torch.bincount(row, minlength=rows)
        full = torch.bincount(row[partial == 0], minlength=rows)
        start = torch.nn.functional.pad(count.cumsum(0), (1, 0)) + seen
        starts.append(start)
        ends.append(start[:-1] + full)
        columns.append(column[order])
        tiles.append(tile[order])
        seen += len(row)
    none = torch.zeros(0, rows + 1, dtype=torch.int64)  # where the batch is empty
    whole = [
        torch.stack(starts) if starts else none,
        torch.stack(ends) if ends else none[:, :rows],
        torch.cat([none.flatten(), *columns]),
        torch.cat([none.flatten(), *tiles]),
    ]
    return Lists(*(part.to(torch.int32).contiguous() for part in whole))
