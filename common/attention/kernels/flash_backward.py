"""Backward pass: FlashAttention-2 (Dao 2023), algorithm 2, over lists of blocks, without atomics.

The gradients of keys and values and those of queries come from kernels of their own, each of which sums in a fixed order:
the same inputs give the same bits. With P the weights before dropout and dP = kept * (dO V^T) / (1 - p), the gradient of
the scores is dS = P * (dP - delta), where delta is the sum over dimensions of dO * O, dropout or not.
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


@triton.jit(do_not_specialize=["heads", "lq"])
def delta_kernel(
    output, d_output, delta, heads, lq, DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_Q: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """delta (B, H, Lq). Grid: (blocks of queries) * B * H."""
    blocks = tl.cdiv(lq, BLOCK_Q)
    place = tl.program_id(0) // blocks
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows = tl.program_id(0) % blocks * BLOCK_Q + tl.arange(0, BLOCK_Q)
    inside = rows < lq
    o, o_rest = load_rows(first_row(output, batch, head), output.row, rows, inside, DV, DV_FIRST, DV_REST, True)
    d, d_rest = load_rows(first_row(d_output, batch, head), d_output.row, rows, inside, DV, DV_FIRST, DV_REST, True)
    total = tl.sum(o.to(WIDE) * d.to(WIDE), 1)
    if DV_REST > 0:
        total += tl.sum(o_rest.to(WIDE) * d_rest.to(WIDE), 1)
    tl.store(delta + place.to(tl.int64) * lq + rows, total, mask=inside)


@triton.jit
def _block_of_queries(
    dk, dk_rest, dv, dv_rest, keys, keys_rest, values, values_rest, q_first, q, d_first, d_output, lse, delta,
    bias_first, bias, allowed, keep, rows, columns, lq, lk, place, scale, dropout_p, boost, seed,
    PARTIAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values after one more block of queries. Tiles are (keys, queries)."""
    queries, queries_rest = load_rows(q_first, q.row, rows, keep, D, D_FIRST, D_REST, True)
    log_sum = tl.load(lse + rows, mask=rows < lq, other=float("inf"))
    scores = product(keys, keys_rest, queries, queries_rest, D_REST, PRECISION, WIDE) * scale
    if BIAS:
        inside = (rows[None, :] < lq) & (columns[:, None] < lk)
        scores += load_bias(bias_first, bias, rows[None, :], columns[:, None], inside, WIDE)
    weights = tl.exp2(scores - log_sum[None, :])
    if PARTIAL:
        weights = tl.where(allowed, weights, 0.0)
    d_rows, d_rest = load_rows(d_first, d_output.row, rows, keep, DV, DV_FIRST, DV_REST, True)
    d_weights = product(values, values_rest, d_rows, d_rest, DV_REST, PRECISION, WIDE)
    used = weights
    if DROPOUT:
        kept = dropout_keeps(seed, dropout_p, place, rows[None, :], columns[:, None])
        used = tl.where(kept, weights, 0.0)  # the factor 1 / (1 - p) of dv comes at the end
        d_weights = tl.where(kept, d_weights * boost, 0.0)
    dv, dv_rest = add_product(dv, dv_rest, used, d_rows, d_rest, DV_REST, PRECISION, WIDE)
    d_scores = weights * (d_weights - tl.load(delta + rows, mask=rows < lq, other=0.0)[None, :])
    if PARTIAL:  # what takes no part may be NaN; asking the weights rather than `allowed` saves registers
        d_scores = tl.where(weights == 0.0, 0.0, d_scores)
    dk, dk_rest = add_product(dk, dk_rest, d_scores, queries, queries_rest, D_REST, PRECISION, WIDE)
    return dk, dk_rest, dv, dv_rest


@triton.jit(do_not_specialize=["heads", "group", "lq", "lk", "seed"])
def key_value_kernel(
    q, k, v, d_output, lse, delta, bias, lists, dk_out, dv_out,
    heads, group, lq, lk, scale, d_scale, dropout_p, seed,
    BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dk_out, dv_out: as k and v. A program holds BLOCK_K keys and walks the lists of all query heads that share them.

    scale: of the scores, times log2(e); d_scale: of the scores. Grid: (blocks of keys) * B * Hkv.
    """
    blocks = tl.cdiv(lk, BLOCK_K)
    block, kv_place, kv_heads = tl.program_id(0) % blocks, tl.program_id(0) // blocks, heads // group
    batch, kv_head = (kv_place // kv_heads).to(tl.int64), (kv_place % kv_heads).to(tl.int64)
    columns = block * BLOCK_K + tl.arange(0, BLOCK_K)
    real = columns < lk
    keys, keys_rest = load_rows(first_row(k, batch, kv_head), k.row, columns, real, D, D_FIRST, D_REST, True)
    values, values_rest = load_rows(first_row(v, batch, kv_head), v.row, columns, real, DV, DV_FIRST, DV_REST, True)
    dk, dk_rest = zeros_of(BLOCK_K, D_FIRST, D_REST, WIDE)
    dv, dv_rest = zeros_of(BLOCK_K, DV_FIRST, DV_REST, WIDE)
    boost = 1.0 / (1.0 - dropout_p)
    for member in range(group):
        head = kv_head * group + member
        place = batch.to(tl.int32) * heads + head.to(tl.int32)
        q_first, d_first, bias_first = (
            first_row(q, batch, head),
            first_row(d_output, batch, head),
            first_row(bias, batch, head),
        )
        lse_first, delta_first = lse + place.to(tl.int64) * lq, delta + place.to(tl.int64) * lq
        start, full_end, end = listed(lists, batch, head, block, blocks)
        column = full_entry(lists, start, full_end)
        for n in range(start, full_end):
            ahead = full_entry(lists, n + 1, full_end)
            rows = column * BLOCK_Q + tl.arange(0, BLOCK_Q)
            dk, dk_rest, dv, dv_rest = _block_of_queries(
                dk, dk_rest, dv, dv_rest, keys, keys_rest, values, values_rest, q_first, q, d_first, d_output,
                lse_first, delta_first, bias_first, bias, real, rows < lq, rows, columns, lq, lk, place, scale, dropout_p,
                boost, seed, False, BIAS, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, PRECISION, WIDE,
            )  # fmt: skip
            column = ahead
        column, tile, keep = partial_entry(lists, full_end, end, BLOCK_Q)
        for n in range(full_end, end):
            ahead, tile_ahead, keep_ahead = partial_entry(lists, n + 1, end, BLOCK_Q)
            rows = column * BLOCK_Q + tl.arange(0, BLOCK_Q)
            allowed = tl.trans(load_tile(lists, tile, BLOCK_Q, BLOCK_K))
            dk, dk_rest, dv, dv_rest = _block_of_queries(
                dk, dk_rest, dv, dv_rest, keys, keys_rest, values, values_rest, q_first, q, d_first, d_output,
                lse_first, delta_first, bias_first, bias, allowed, keep, rows, columns, lq, lk, place, scale, dropout_p,
                boost, seed, True, BIAS, DROPOUT, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, PRECISION, WIDE,
            )  # fmt: skip
            column, tile, keep = ahead, tile_ahead, keep_ahead
    dk *= d_scale
    if D_REST > 0:
        dk_rest *= d_scale
    if DROPOUT:
        dv *= boost
        if DV_REST > 0:
            dv_rest *= boost
    store_rows(first_row(dk_out, batch, kv_head), dk_out.row, columns, real, dk, dk_rest, D, D_FIRST, D_REST)
    store_rows(first_row(dv_out, batch, kv_head), dv_out.row, columns, real, dv, dv_rest, DV, DV_FIRST, DV_REST)


@triton.jit
def score_gradient(
    queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, keys, keys_rest, values, values_rest, bias_first, bias,
    allowed, rows, columns, lq, lk, place, scale, dropout_p, boost, seed,
    PARTIAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr, D_REST: tl.constexpr, DV_REST: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dS of a tile (queries, keys)."""
    scores = product(queries, queries_rest, keys, keys_rest, D_REST, PRECISION, WIDE) * scale
    if BIAS:
        inside = (rows[:, None] < lq) & (columns[None, :] < lk)
        scores += load_bias(bias_first, bias, rows[:, None], columns[None, :], inside, WIDE)
    d_weights = product(d_rows, d_rest, values, values_rest, DV_REST, PRECISION, WIDE)
    if DROPOUT:
        kept = dropout_keeps(seed, dropout_p, place, rows[:, None], columns[None, :])
        d_weights = tl.where(kept, d_weights * boost, 0.0)
    d_scores = tl.exp2(scores - log_sum[:, None]) * (d_weights - delta_rows[:, None])
    if PARTIAL:  # what takes no part may be NaN
        d_scores = tl.where(allowed, d_scores, 0.0)
    return d_scores


@triton.jit
def _block_of_keys(
    dq, dq_rest, queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, k_first, k, v_first, v, bias_first, bias,
    ds_first, allowed, keep, column, rows, lq, lk, place, scale, dropout_p, boost, seed,
    PARTIAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr, STORE: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries after one more block of keys; where STORE, those of the scores are written out."""
    columns = column * BLOCK_K + tl.arange(0, BLOCK_K)
    keys, keys_rest = load_rows(k_first, k.row, columns, keep, D, D_FIRST, D_REST, PARTIAL)
    values, values_rest = load_rows(v_first, v.row, columns, keep, DV, DV_FIRST, DV_REST, PARTIAL)
    d_scores = score_gradient(
        queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, keys, keys_rest, values, values_rest, bias_first,
        bias, allowed, rows, columns, lq, lk, place, scale, dropout_p, boost, seed,
        PARTIAL, BIAS, DROPOUT, D_REST, DV_REST, PRECISION, WIDE,
    )  # fmt: skip
    if STORE:
        pointers = ds_first + rows[:, None].to(tl.int64) * lk + columns[None, :]
        tl.store(pointers, d_scores, mask=(rows[:, None] < lq) & (columns[None, :] < lk))
    dq, dq_rest = add_product(dq, dq_rest, d_scores, keys, keys_rest, D_REST, PRECISION, WIDE)
    return dq, dq_rest


@triton.jit(do_not_specialize=["heads", "group", "lq", "lk", "seed"])
def query_kernel(
    q, k, v, d_output, lse, delta, bias, lists, dq_out, ds_out,
    heads, group, lq, lk, scale, d_scale, dropout_p, seed,
    BIAS: tl.constexpr, DROPOUT: tl.constexpr, STORE: tl.constexpr,
    D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dq_out: as q. ds_out, where STORE: (B, H, Lq, Lk) of zeros, the gradient of the scores as far as listed.

    scale: of the scores, times log2(e); d_scale: of the scores. Grid: (blocks of queries) * B * H.
    """
    blocks = tl.cdiv(lq, BLOCK_Q)
    block = blocks - 1 - tl.program_id(0) % blocks
    place = tl.program_id(0) // blocks
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    inside = rows < lq
    queries, queries_rest = load_rows(first_row(q, batch, head), q.row, rows, inside, D, D_FIRST, D_REST, True)
    d_first = first_row(d_output, batch, head)
    d_rows, d_rest = load_rows(d_first, d_output.row, rows, inside, DV, DV_FIRST, DV_REST, True)
    log_sum = tl.load(lse + place.to(tl.int64) * lq + rows, mask=inside, other=float("inf"))
    delta_rows = tl.load(delta + place.to(tl.int64) * lq + rows, mask=inside, other=0.0)
    k_first, v_first = first_row(k, batch, head // group), first_row(v, batch, head // group)
    bias_first = first_row(bias, batch, head)
    ds_first = ds_out + place.to(tl.int64) * lq * lk
    boost = 1.0 / (1.0 - dropout_p)
    dq, dq_rest = zeros_of(BLOCK_Q, D_FIRST, D_REST, WIDE)

    start, full_end, end = listed(lists, batch, head, block, blocks)
    column = full_entry(lists, start, full_end)
    for n in range(start, full_end):
        ahead = full_entry(lists, n + 1, full_end)
        dq, dq_rest = _block_of_keys(
            dq, dq_rest, queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, k_first, k, v_first, v, bias_first,
            bias, ds_first, inside, inside, column, rows, lq, lk, place, scale, dropout_p, boost, seed,
            False, BIAS, DROPOUT, STORE, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK_K, PRECISION, WIDE,
        )  # fmt: skip
        column = ahead
    column, tile, keep = partial_entry(lists, full_end, end, BLOCK_K)
    for n in range(full_end, end):
        ahead, tile_ahead, keep_ahead = partial_entry(lists, n + 1, end, BLOCK_K)
        allowed = load_tile(lists, tile, BLOCK_Q, BLOCK_K)
        dq, dq_rest = _block_of_keys(
            dq, dq_rest, queries, queries_rest, d_rows, d_rest, log_sum, delta_rows, k_first, k, v_first, v, bias_first,
            bias, ds_first, allowed, keep, column, rows, lq, lk, place, scale, dropout_p, boost, seed,
            True, BIAS, DROPOUT, STORE, D, D_FIRST, D_REST, DV, DV_FIRST, DV_REST, BLOCK_K, PRECISION, WIDE,
        )  # fmt: skip
        column, tile, keep = ahead, tile_ahead, keep_ahead
    dq *= d_scale
    if D_REST > 0:
        dq_rest *= d_scale
    store_rows(first_row(dq_out, batch, head), dq_out.row, rows, inside, dq, dq_rest, D, D_FIRST, D_REST)
