"""torch's flex_attention, compiled: the mask as its BlockMask, a bias as its score_mod. Never run eagerly.

Each new combination of shapes is compiled once a process, which takes 5 to 40 seconds. On a CPU it needs a C++ compiler
and has no backward pass.
"""

import os
import shutil
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from common.attention.backends.visible import of_key_heads, visible
from common.attention.blocks import BlockLists, lower
from common.attention.positions import RelativeBias
from common.attention.request import Attended, Request

BLOCK = 128
"""What flex_attention's kernels are made for."""

SHAPES = 1 << 16
"""Combinations that torch may compile; at its own limit of 8 it would stop."""


def unsupported(r: Request) -> str | None:
    if r.return_weights or r.return_lse:
        return "is compiled for its output alone: no weights, no lse"
    if r.dropout_p:
        return "has no dropout"
    if r.q.dtype == torch.float64:
        return "takes no fp64"
    if not (r.q.numel() and r.k.numel() and r.v.numel()):
        return "takes no empty tensors"
    if r.q.device.type == "cpu":
        if torch.is_grad_enabled() and any(t.requires_grad for t in (r.q, r.k, r.v, *_bias(r))):
            return "has no backward pass on a CPU"
        if shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
            return f"compiles for a CPU with {compiler}, which is not there"
    return None


def attend(r: Request) -> Attended:
    _, _, lq, lk = r.shape
    lists = lower(r.mask, lq, lk, BLOCK, BLOCK)
    live, seen = visible(lists)
    # Of rows that are one number in memory (strides .., 1, 0) the code compiled for a CPU reads what lies behind them.
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (r.q, r.k, r.v))
    if seen is not None:
        unseen = ~of_key_heads(seen, k.shape[1])[..., None].to(k.device)
        k, v = k.masked_fill(unseen, 0.0), v.masked_fill(unseen, 0.0)
    dead = None if live is None else ~live[..., None].to(q.device)
    if dead is not None:
        q = q.masked_fill(dead, 0.0)
    with torch._dynamo.config.patch(recompile_limit=SHAPES, accumulated_recompile_limit=SHAPES):
        output = _compiled()(
            q, k, v, _score_mod(r), _block_mask(lists, q.device), scale=r.scale, enable_gqa=r.group > 1
        )
    return Attended(output if dead is None else output.masked_fill(dead, 0.0))


@cache
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _bias(r: Request) -> list[Tensor]:
    """The tensor that a bias is read from, if there is one."""
    if isinstance(r.bias, RelativeBias):
        return [r.bias.vector(r.shape[2], r.shape[3], r.q.device)]
    return [] if r.bias is None else [r.bias]


def _score_mod(r: Request) -> Callable[..., Tensor] | None:
    if r.bias is None:
        return None
    (bias,), last = _bias(r), r.shape[2] - 1
    if isinstance(r.bias, RelativeBias):
        return lambda score, b, h, i, j: score + bias[h, j - i + last]
    batch, heads, queries, keys = (int(size > 1) for size in bias.shape)
    return lambda score, b, h, i, j: score + bias[b * batch, h * heads, i * queries, j * keys]


@lru_cache(maxsize=64)
def _block_mask(lists: BlockLists, device: torch.device) -> Any:
    """The lists as flex_attention has them: for each row how many full and partial columns, and which."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, columns = -(-lists.lq // BLOCK), -(-lists.lk // BLOCK)
    groups, by = len(lists.by_query.start), lists.by_query
    start, end = by.start.long(), by.full_end.long()
    counts = start.diff(dim=1).flatten()
    row = torch.repeat_interleave(torch.arange(groups * rows), counts)
    entry, column, full = torch.arange(len(row)), by.column.long(), by.tile < 0
    first = torch.where(full, start[:, :-1].flatten()[row], end.flatten()[row])
    tables = []
    for chosen, count in ((~full, (start[:, 1:] - end)), (full, (end - start[:, :-1]))):
        table = torch.zeros(groups * rows, columns, dtype=torch.int32)
        table[row[chosen], (entry - first)[chosen]] = column[chosen].int()
        tables += [t.unflatten(0, lists.groups) for t in (count.int(), table.view(groups, rows, columns))]
    tile = torch.zeros(groups * rows, columns, dtype=torch.int32)
    tile[row[~full], column[~full]] = by.tile[~full]
    mask_mod = _look(tile.view(*lists.groups, rows, columns).to(device), lists.tiles.to(device))
    tables = [table.to(device).contiguous() for table in tables]
    return BlockMask.from_kv_blocks(
        *tables, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod, seq_lengths=(lists.lq, lists.lk)
    )


def _look(tile: Tensor, tiles: Tensor) -> Callable[..., Tensor]:
    """What a partial block allows. tile: which tile, (B or 1, H or 1, rows, columns)."""
    batch, heads = (int(size > 1) for size in tile.shape[:2])
    spare = max(16, 1 << (len(tiles) - 1).bit_length()) - len(tiles)  # few different shapes, so few compilations
    tiles = torch.nn.functional.pad(tiles, (0, 0, 0, 0, 0, spare))

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        which = tile[b * batch, h * heads, i // BLOCK, j // BLOCK]
        return tiles[which, i % BLOCK, j % BLOCK]

    return allowed
