"""Forward pass: FlashAttention-2 (Dao 2023), algorithm 1, over lists of blocks.

A program holds BLOCK_Q queries of one head and walks the blocks of keys that its list names, the full ones first.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
import triton
import triton.language as tl

from common.attention.kernels.tiles import (
    add_product,
    dropout_keeps,
    first_row,
    full_entry,
    listed,
    load_bias,
    load_rows,
    load_tile,
    partial_entry,
    product,
    store_rows,
    zeros_of,
)


@triton.jit
def _attend_block(
    out, out_rest, total, top, q, q_rest, k_first, k, v_first, v, bias_first, bias, allowed, keep, column, rows, lq,
    place, scale, dropout_p, seed,
    PARTIAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The running output, sum and maximum after one more block of keys."""
    columns = column * BLOCK_K + tl.arange(0, BLOCK_K)
    keys, keys_rest = load_rows(k_first, k.row, columns, keep, D, D_FIRST, D_REST, PARTIAL)
    scores = product(q, q_rest, keys, keys_rest, D_REST, PRECISION, WIDE) * scale
    if BIAS:
        inside = rows[:, None] < lq
        if PARTIAL:
            inside = inside & keep[None, :]
        scores += load_bias(bias_first, bias, rows[:, None], columns[None, :], inside, WIDE)
    if PARTIAL:
        scores = tl.where(allowed, scores, -float("inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    shift = new_top
    if PARTIAL or BIAS:  # a query that has seen nothing yet: exp2(-inf - 0) rather than exp2(-inf + inf)
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
    weights = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(top - shift)
    total = total * rescale + tl.sum(weights, 1)
    if DROPOUT:
        weights = tl.where(dropout_keeps(seed, dropout_p, place, rows[:, None], columns[None, :]), weights, 0.0)
    values, values_rest = load_rows(v_first, v.row, columns, keep, DV, DV_FIRST, DV_REST, PARTIAL)
    out = out * rescale[:, None]
    if DV_REST > 0:
        out_rest = out_rest * rescale[:, None]
    out, out_rest = add_product(out, out_rest, weights, values, values_rest, DV_REST, PRECISION, WIDE)
    return out, out_rest, total, new_top


@triton.jit(do_not_specialize=["heads", "group", "lq", "lk", "seed"])
def forward_kernel(
    q, k, v, output, lse, bias, lists, heads, group, lq, lk, scale, dropout_p, seed,
    BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """output (B, H, Lq, Dv) and lse (B, H, Lq): log2 of the softmax's sum, but +inf for a query that sees no key, so
    that exp2(score - lse) is its weight in any case.

    scale: of the scores, times log2(e). Grid: (blocks of queries) * B * H, those of a head next to each other.
    """
    blocks = tl.cdiv(lq, BLOCK_Q)
    block = blocks - 1 - tl.program_id(0) % blocks  # the longest lists of a causal mask first
    place = tl.program_id(0) // blocks
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    inside = rows < lq
    queries, queries_rest = load_rows(first_row(q, batch, head), q.row, rows, inside, D, D_FIRST, D_REST, True)
    k_first, v_first = first_row(k, batch, head // group), first_row(v, batch, head // group)
    bias_first = first_row(bias, batch, head)
    out, out_rest = zeros_of(BLOCK_Q, DV_FIRST, DV_REST, WIDE)
    total = tl.zeros([BLOCK_Q], WIDE)
    top = tl.full([BLOCK_Q], -float("inf"), WIDE)

    start, full_end, end = listed(lists, batch, head, block, blocks)
    column = full_entry(lists, start, full_end)
    for n in range(start, full_end):
        ahead = full_entry(lists, n + 1, full_end)
        out, out_rest, total, top = _attend_block(
            out, out_rest, total, top, queries, queries_rest, k_first, k, v_first, v, bias_first, bias, inside, inside,
            column, rows, lq, place, scale, dropout_p, seed,
            False, BIAS, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK_Q, BLOCK_K, PRECISION, WIDE,
        )  # fmt: skip
        column = ahead
    column, tile, keep = partial_entry(lists, full_end, end, BLOCK_K)
    for n in range(full_end, end):
        ahead, tile_ahead, keep_ahead = partial_entry(lists, n + 1, end, BLOCK_K)
        allowed = load_tile(lists, tile, BLOCK_Q, BLOCK_K)
        out, out_rest, total, top = _attend_block(
            out, out_rest, total, top, queries, queries_rest, k_first, k, v_first, v, bias_first, bias, allowed, keep,
            column, rows, lq, place, scale, dropout_p, seed,
            True, BIAS, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK_Q, BLOCK_K, PRECISION, WIDE,
        )  # fmt: skip
        column, tile, keep = ahead, tile_ahead, keep_ahead

    dead = total == 0.0
    share = 1.0 / tl.where(dead, 1.0, total)
    if DROPOUT:
        share = share / (1.0 - dropout_p)
    out = out * share[:, None]
    if DV_REST > 0:
        out_rest = out_rest * share[:, None]
    store_rows(first_row(output, batch, head), output.row, rows, inside, out, out_rest, DV, DV_FIRST, DV_REST)
    log_sum = tl.where(dead, float("inf"), top + tl.log2(tl.where(dead, 1.0, total)))
    tl.store(lse + place.to(tl.int64) * lq + rows, log_sum, mask=inside)
