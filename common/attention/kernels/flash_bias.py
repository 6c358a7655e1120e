"""Gradient of a bias by distance, without an Lq x Lk tensor and without atomics.

All tiles on one diagonal of blocks hold the same distances at the same places, so their gradients of the scores add up to
one tile a head and diagonal: memory linear in the lengths. What is left, sums along the diagonals inside those tiles, is
`by_distance`.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from common.attention import blocks
from common.attention.kernels.flash_backward import score_gradient
from common.attention.kernels.tiles import first_row, full_entry, listed, load_rows, load_tile, partial_entry


@triton.jit
def _block_gradient(
    row, column, allowed, q_first, q, d_first, d_output, lse_first, delta_first, k_first, k, v_first, v, bias_first, bias,
    lq, lk, place, scale, dropout_p, seed,
    PARTIAL: tl.constexpr, DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dS of the block at (row, column)."""
    rows, columns = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    queries, queries_rest = load_rows(q_first, q.row, rows, rows < lq, D, D_FIRST, D_REST, True)
    d_rows, d_rest = load_rows(d_first, d_output.row, rows, rows < lq, DV, DV_FIRST, DV_REST, True)
    keys, keys_rest = load_rows(k_first, k.row, columns, columns < lk, D, D_FIRST, D_REST, True)
    values, values_rest = load_rows(v_first, v.row, columns, columns < lk, DV, DV_FIRST, DV_REST, True)
    log_sum = tl.load(lse_first + rows, mask=rows < lq, other=float("inf"))
    delta_rows = tl.load(delta_first + rows, mask=rows < lq, other=0.0)
    return score_gradient(
        queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, keys, keys_rest, values, values_rest, bias_first, bias,
        allowed, rows, columns, lq, lk, place, scale, dropout_p, 1.0 / (1.0 - dropout_p), seed,
        PARTIAL, True, DROPOUT, D_REST, DV_REST, PRECISION, WIDE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["batches", "heads", "group", "lq", "lk", "seed"])
def bias_kernel(
    q, k, v, d_output, lse, delta, bias, lists, sums, batches, heads, group, lq, lk, scale, dropout_p, seed,
    DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """sums (H, diagonals, BLOCK, BLOCK): dS of all blocks on a diagonal and all batch entries, added up.

    lists: one of `by_diagonal`. scale: of the scores, times log2(e). Grid: diagonals * H.
    """
    block_rows = tl.cdiv(lq, BLOCK)
    diagonals = block_rows + tl.cdiv(lk, BLOCK) - 1
    diagonal = tl.program_id(0) % diagonals
    head = (tl.program_id(0) // diagonals).to(tl.int64)
    total = tl.zeros([BLOCK, BLOCK], WIDE)
    for entry in range(batches):
        place = entry * heads + head.to(tl.int32)
        batch = place.to(tl.int64) // heads
        q_first, d_first = first_row(q, batch, head), first_row(d_output, batch, head)
        k_first, v_first = first_row(k, batch, head // group), first_row(v, batch, head // group)
        bias_first = first_row(bias, batch, head)
        lse_first, delta_first = lse + place.to(tl.int64) * lq, delta + place.to(tl.int64) * lq
        start, full_end, end = listed(lists, batch, head, diagonal, diagonals)
        row = full_entry(lists, start, full_end)
        for n in range(start, full_end):
            ahead = full_entry(lists, n + 1, full_end)
            total += _block_gradient(
                row, row + diagonal - (block_rows - 1), total, q_first, q, d_first, d_output, lse_first, delta_first,
                k_first, k, v_first, v, bias_first, bias, lq, lk, place, scale, dropout_p, seed,
                False, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK, PRECISION, WIDE,
            )  # fmt: skip
            row = ahead
        row, tile, _ = partial_entry(lists, full_end, end, BLOCK)
        for n in range(full_end, end):
            ahead, tile_ahead, _ = partial_entry(lists, n + 1, end, BLOCK)
            allowed = load_tile(lists, tile, BLOCK, BLOCK)
            total += _block_gradient(
                row, row + diagonal - (block_rows - 1), allowed, q_first, q, d_first, d_output, lse_first, delta_first,
                k_first, k, v_first, v, bias_first, bias, lq, lk, place, scale, dropout_p, seed,
                True, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK, PRECISION, WIDE,
            )  # fmt: skip
            row, tile = ahead, tile_ahead
    inner = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(sums + tl.program_id(0).to(tl.int64) * (BLOCK * BLOCK) + inner, total)


def by_diagonal(lists: blocks.BlockLists) -> blocks.Lists:
    """The blocks of each diagonal, (block of keys) - (block of queries) + (blocks of queries) - 1; columns are blocks of
    queries. Works on the device of the lists without waiting for it."""
    rows, columns = -(-lists.lq // lists.block_q), -(-lists.lk // lists.block_k)
    old, diagonals = lists.by_query, rows + columns - 1
    groups, device = old.start.shape[0], old.start.device
    row = torch.arange(groups * rows, device=device).repeat_interleave(
        old.start.diff(dim=1).flatten().long(), output_size=old.column.numel()
    )
    group, row = row // rows, row % rows
    key = ((group * diagonals + old.column - row + rows - 1) * 2) + (old.tile >= 0)
    key, order = key.sort(stable=True)
    bounds = torch.searchsorted(key, torch.arange(groups * diagonals * 2 + 1, device=device)).to(torch.int32)
    start = bounds[:-1:2].view(groups, diagonals)
    start = torch.cat((start, bounds[2 * diagonals :: 2 * diagonals, None]), 1)
    full_end = bounds[1::2].view(groups, diagonals).contiguous()
    return blocks.Lists(start, full_end, row[order].to(torch.int32), old.tile[order])


def by_distance(sums: Tensor, lq: int, lk: int) -> Tensor:
    """(H, Lq + Lk - 1), entry j - i + Lq - 1 the sum over all places (i, j). sums: (H, diagonals, block, block) as
    `bias_kernel` leaves them."""
    heads, diagonals, block, _ = sums.shape
    # Row a of a tile, from the last one, shifted to the right by a: its diagonals become columns.
    wide = torch.nn.functional.pad(sums.flip(2), (0, block)).flatten(2)
    sheared = wide[..., : block * (2 * block - 1)].unflatten(2, (block, 2 * block - 1)).sum(2)
    halves = torch.nn.functional.pad(sheared, (0, 1)).unflatten(2, (2, block))
    whole = sums.new_zeros(heads, diagonals + 1, block)
    whole[:, :-1] += halves[:, :, 0]
    whole[:, 1:] += halves[:, :, 1]
    first = -(-lq // block) * block - lq  # where distance 1 - Lq lies
    return whole.flatten(1)[:, first : first + lq + lk - 1]
