"""How much work an attention is: the pairs of query and key that a mask keeps, and the FLOPs credited for them."""

from typing import Literal

import torch

from common.attention import Causal, Full, Mask
from common.attention.blocks import BlockLists, lower

Pass = Literal["forward", "backward", "both"]
BLOCK = 128
PASSES: dict[Pass, float] = {"forward": 1.0, "backward": 2.5, "both": 3.5}
"""Matrix products of each pass over those of the forward: 2 forward; 5 backward, which computes the scores again
(Dao 2023, section 4.1)."""


def flops(pairs: float, batch: int, heads: int, d: int, dv: int, passes: Pass) -> float:
    """Of Q K^T and P V over so many pairs a head, a multiply-add counting two; other passes by `PASSES`."""
    return 2 * batch * heads * pairs * (d + dv) * PASSES[passes]


def paper_pairs(mask: Mask, length: int) -> float | None:
    """Pairs by the rule of the FlashAttention papers: L^2, half of them if causal. None: the rule has no other masks."""
    if isinstance(mask, Causal):
        return length**2 / 2
    return float(length**2) if isinstance(mask, Full) else None


def kept_pairs(mask: Mask, length: int) -> float:
    """Pairs that a mask allows, exactly; the mean over batch entries and heads where they differ."""
    lists = lower(mask, length, length, BLOCK, BLOCK)
    return _pairs(lists) / lists.by_query.start.shape[0]


def block_density(mask: Mask, length: int) -> float:
    """Share of all blocks of 128 x 128 in which anything is allowed."""
    return lower(mask, length, length, BLOCK, BLOCK).density


def _pairs(lists: BlockLists) -> int:
    each = lists.by_query
    groups, rows = each.full_end.shape
    row = torch.arange(rows).repeat(groups).repeat_interleave(each.start.diff(dim=1).flatten().long())
    height = (lists.lq - row * lists.block_q).clamp(max=lists.block_q)
    full = each.tile < 0
    partial = lists.tiles.sum((1, 2))[each.tile[~full].long()]
    return int(height[full].sum()) * lists.block_k + int(partial.sum())
