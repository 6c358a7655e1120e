"""Which queries see anything, and which keys are seen at all: what else lies in a tensor takes no part."""

import torch
from torch import Tensor

from common.attention.blocks import BlockLists


def visible(lists: BlockLists) -> tuple[Tensor | None, Tensor | None]:
    """live: bool (B or 1, H or 1, Lq), the queries that see a key; seen: (.., Lk), the keys that a query sees; each None
    where it is all of them."""
    rows, columns = -(-lists.lq // lists.block_q), -(-lists.lk // lists.block_k)
    tiles = torch.cat((lists.tiles, torch.ones_like(lists.tiles[:1])))
    live, seen = [], []
    for start in lists.by_query.start.long():
        entries = slice(int(start[0]), int(start[-1]))
        tile = lists.by_query.tile[entries].long() % len(tiles)  # -1, a full block, is the last one
        row = torch.repeat_interleave(torch.arange(rows, device=tile.device), start.diff())
        live.append(_any(row, tiles.any(2)[tile], rows)[: lists.lq])
        seen.append(_any(lists.by_query.column[entries].long(), tiles.any(1)[tile], columns)[: lists.lk])
    if not live:
        return None, None  # an empty batch
    live_whole, seen_whole = (torch.stack(side).unflatten(0, lists.groups) for side in (live, seen))
    return _unless_all(live_whole), _unless_all(seen_whole)


def of_key_heads(seen: Tensor, key_heads: int) -> Tensor:
    """seen (B or 1, H or 1, Lk) by key head, (B or 1, Hkv or 1, Lk): whether a query of any of its heads sees the key."""
    return seen.unflatten(1, (key_heads, -1)).any(2) if seen.shape[1] > 1 else seen


def _any(place: Tensor, flags: Tensor, blocks: int) -> Tensor:
    """Whether any of the flags (N, block) that go to the same place is set: bool (blocks * block,)."""
    return torch.zeros(blocks, flags.shape[1], device=flags.device).index_add_(0, place, flags.float()).flatten() > 0


def _unless_all(flags: Tensor) -> Tensor | None:
    return None if bool(flags.all()) else flags
