"""Linear attention, backward (Katharopoulos et al. 2020, section 3.3.1), in the chunks of the forward pass.

With t_i the sum of a query's scores, delta_i = do_i . o_i and g_ij = do_i . v_j - delta_i, over the pairs that see each other:

    dphi(q_i) = sum over j of g_ij phi(k_j) / t_i        dphi(k_j) = sum over i of g_ij phi(q_i) / t_i
    dv_j = sum over i of phi(q_i) . phi(k_j) do_i / t_i

What lies beyond the chunk comes from sums again. For queries these are the slots of the forward pass. For keys they are the
gradients of these: ds = sum over i of phi(q_i) / t_i do_i^T (M, Dv) and dz = - sum over i of phi(q_i) / t_i delta_i (M,), over
the queries behind. A kernel walks these from the end, begins with the gradient of the state that was handed out, and leaves in
slot 0 that of the state that was given. Every value is written by one program: results repeat bit for bit.

LOG: phi(q_i) / t_i is exp(q_i + largest - total_i), for the largest logarithms of the slot after the chunk, phi(k_j) is
exp(k_j - largest), and each times its gradient is the logarithms'. Going back, logarithms taken out only get smaller.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
import triton
import triton.language as tl

from common.attention.kernels.linear import (
    add_product,
    exp_without,
    kept,
    key_features,
    load_block,
    load_logs,
    load_sums,
    logarithms,
    narrowed,
    store_block,
    store_sums,
)


@triton.jit
def _of_queries(vector, place, rows, length):
    """Of a (B, H, Lq) tensor what belongs to these queries."""
    return tl.load(vector + place.to(tl.int64) * length + rows, mask=rows < length, other=0.0)


@triton.jit
def _inverse(total):
    """What the sums of these queries were multiplied by."""
    return 1.0 / tl.where(total == 0.0, 1.0, total)


@triton.jit
def _shares(x, inside, start, after, total, LOG: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, WIDE: tl.constexpr):
    """phi(q_i) / t_i of queries that `load_block` loaded."""
    if LOG:
        x = tl.exp(logarithms(x, inside, start, M, BM, WIDE) + after[None, :] - total[:, None])
    else:
        x = x.to(WIDE) * _inverse(total)[:, None]
    return x


@triton.jit
def _deltas(deltas, place, rows, length, total, LOG: tl.constexpr):
    """delta_i; 0 of a query whose sum is 0, which was not divided."""
    delta = _of_queries(deltas, place, rows, length)
    if not LOG:
        delta = tl.where(total == 0.0, 0.0, delta)
    return delta


@triton.jit(do_not_specialize=["heads", "lq"])
def d_states_kernel(
    q, d_output, totals, deltas, logs, d_states, d_norms, heads, lq,
    LOG: tl.constexpr, CAUSAL: tl.constexpr, M: tl.constexpr, DV: tl.constexpr,
    BT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """d_states (B, H, slots, M, Dv), d_norms (B, H, slots, M): gradients of the slots, the last of which is given; where it
    is not causal, that one is complete afterwards. Programs and grid are those of `states_kernel`.
    """
    slices_m, slices_d = (M + BM - 1) // BM, (DV + BD - 1) // BD
    slice_d, slice_m = tl.program_id(0) % slices_d, tl.program_id(0) // slices_d % slices_m
    place = tl.program_id(0) // (slices_d * slices_m)
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    m, d = slice_m * BM + tl.arange(0, BM), slice_d * BD + tl.arange(0, BD)
    chunks = tl.cdiv(lq, BT)
    slot = place.to(tl.int64) * 2 + 1
    if CAUSAL:
        slot = place.to(tl.int64) * (chunks + 1) + chunks
    total_s = load_sums(d_states, slot, m, d, M, DV)
    total_z = tl.load(d_norms + slot * M + m, mask=m < M, other=0.0)
    once = (m < M) & (slice_d == 0)
    after = total_z  # of no use without logarithms
    if LOG:
        after = load_logs(logs, slot, m, M)
    for n in range(chunks):
        rows = (chunks - 1 - n) * BT + tl.arange(0, BT)
        queries = load_block(q, batch, head, rows, rows < lq, slice_m * BM, M, BM)
        total = _of_queries(totals, place, rows, lq)
        delta = _deltas(deltas, place, rows, lq, total, LOG)
        shares = _shares(queries, rows < lq, slice_m * BM, after, total, LOG, M, BM, WIDE)
        total_z -= tl.sum(shares * delta[:, None], 0)
        shares, scale = narrowed(shares, TYPE)
        d_rows = load_block(d_output, batch, head, rows, rows < lq, slice_d * BD, DV, BD)
        total_s = add_product(total_s, tl.trans(shares), d_rows.to(TYPE), scale, TYPE, WIDE)
        if CAUSAL:
            slot -= 1
            if LOG:
                before = load_logs(logs, slot, m, M)
                shrink = exp_without(before, after)
                total_s *= shrink[:, None]
                total_z *= shrink
                after = before
            store_sums(d_states, slot, m, d, total_s, M, DV)
            tl.store(d_norms + slot * M + m, total_z, mask=once)
    if not CAUSAL:  # the sums z of other programs, which have begun with the one that is overwritten, are never stored
        store_sums(d_states, slot, m, d, total_s, M, DV)
        tl.store(d_norms + slot * M + m, total_z, mask=once)
        if LOG:
            shrink = exp_without(load_logs(logs, slot - 1, m, M), after)
            total_s *= shrink[:, None]
            total_z *= shrink
        store_sums(d_states, slot - 1, m, d, total_s, M, DV)
        tl.store(d_norms + (slot - 1) * M + m, total_z, mask=once)


@triton.jit(do_not_specialize=["heads", "lq", "lk"])
def d_features_kernel(
    q, k, v, real, d_output, totals, deltas, states, norms, logs, d_states, d_norms, dq, dk, heads, lq, lk,
    LOG: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, DV: tl.constexpr,
    BT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dq (B, H, Lq, M) and dk (B, H, Lk, M), 0 for padding. A program has BM features of the queries and keys of a chunk.

    Grid: B * H * chunks of the longer * slices.
    """
    slices, chunks = (M + BM - 1) // BM, tl.cdiv(tl.maximum(lq, lk), BT)
    part, chunk = tl.program_id(0) % slices, tl.program_id(0) // slices % chunks
    place, start = tl.program_id(0) // slices // chunks, part * BM
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows, m = chunk * BT + tl.arange(0, BT), start + tl.arange(0, BM)
    inside, keep = rows < lq, kept(real, batch, rows, lk, PADDED)
    before = place.to(tl.int64) * 2 + 1
    after = before
    if CAUSAL:
        before = place.to(tl.int64) * (chunks + 1) + chunk
        after = before + 1
    norm = tl.load(norms + before * M + m, mask=m < M, other=0.0)
    d_norm = tl.load(d_norms + after * M + m, mask=m < M, other=0.0)
    total = _of_queries(totals, place, rows, lq)
    delta = _deltas(deltas, place, rows, lq, total, LOG)
    largest = norm  # of no use without logarithms
    if LOG:
        largest = load_logs(logs, after, m, M)
        if CAUSAL:
            shrink = exp_without(load_logs(logs, before, m, M), largest)
            norm *= shrink
    d_queries = tl.zeros([BT, BM], WIDE) - delta[:, None] * norm[None, :]
    d_keys = tl.zeros([BT, BM], WIDE) + d_norm[None, :]
    if CAUSAL:
        g = tl.zeros([BT, BT], WIDE)
    for cut in range(0, DV, BD):
        d = cut + tl.arange(0, BD)
        d_rows = load_block(d_output, batch, head, rows, inside, cut, DV, BD).to(TYPE)
        values = load_block(v, batch, head, rows, keep, cut, DV, BD).to(TYPE)
        sums = load_sums(states, before, m, d, M, DV)
        if LOG and CAUSAL:
            sums *= shrink[:, None]
        sums, scale = narrowed(sums, TYPE)
        d_queries = add_product(d_queries, d_rows, tl.trans(sums), scale, TYPE, WIDE)
        d_sums, scale = narrowed(load_sums(d_states, after, m, d, M, DV), TYPE)
        d_keys = add_product(d_keys, values, tl.trans(d_sums), scale, TYPE, WIDE)
        if CAUSAL:
            g = tl.dot(d_rows, tl.trans(values), g, input_precision="ieee", out_dtype=WIDE)
    if LOG or CAUSAL:
        queries = load_block(q, batch, head, rows, inside, start, M, BM)
        keys = load_block(k, batch, head, rows, keep, start, M, BM)
        shares = _shares(queries, inside, start, largest, total, LOG, M, BM, WIDE)
    if CAUSAL:
        features = key_features(keys, keep, start, largest, LOG, M, BM, TYPE, WIDE)
        g = tl.where(rows[:, None] >= rows[None, :], g - delta[:, None], 0.0)
        g, scale = narrowed(g, TYPE)
        d_queries = add_product(d_queries, g, features, scale, TYPE, WIDE)
        narrow, scale_q = narrowed(shares, TYPE)
        d_keys = add_product(d_keys, tl.trans(g), narrow, scale * scale_q, TYPE, WIDE)
    if LOG:
        d_queries *= shares
        d_keys *= exp_without(logarithms(keys, keep, start, M, BM, WIDE), largest[None, :])
    else:
        d_queries *= _inverse(total)[:, None]
        d_keys = tl.where(keep[:, None], d_keys, 0.0)
    store_block(dq, batch, head, rows, inside, start, d_queries, M, BM)
    store_block(dk, batch, head, rows, rows < lk, start, d_keys, M, BM)


@triton.jit(do_not_specialize=["heads", "lq", "lk"])
def d_values_kernel(
    q, k, real, d_output, totals, logs, d_states, dv, heads, lq, lk,
    LOG: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, DV: tl.constexpr,
    BT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dv (B, H, Lk, Dv), 0 for padding. A program has BD values of the keys of a chunk. Grid: B * H * chunks * slices."""
    slices, chunks = (DV + BD - 1) // BD, tl.cdiv(lk, BT)
    part, chunk = tl.program_id(0) % slices, tl.program_id(0) // slices % chunks
    place = tl.program_id(0) // slices // chunks
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows, d = chunk * BT + tl.arange(0, BT), part * BD + tl.arange(0, BD)
    keep = kept(real, batch, rows, lk, PADDED)
    after = place.to(tl.int64) * 2 + 1
    if CAUSAL:
        after = place.to(tl.int64) * (chunks + 1) + chunk + 1
        total = _of_queries(totals, place, rows, lq)
        weights = tl.zeros([BT, BT], WIDE)  # keys, queries
    d_values = tl.zeros([BT, BD], WIDE)
    for start in range(0, M, BM):
        m = start + tl.arange(0, BM)
        keys = load_block(k, batch, head, rows, keep, start, M, BM)
        largest = m
        if LOG:
            largest = load_logs(logs, after, m, M)
        features = key_features(keys, keep, start, largest, LOG, M, BM, TYPE, WIDE)
        d_sums, scale = narrowed(load_sums(d_states, after, m, d, M, DV), TYPE)
        d_values = add_product(d_values, features, d_sums, scale, TYPE, WIDE)
        if CAUSAL:
            queries = load_block(q, batch, head, rows, rows < lq, start, M, BM)
            shares, scale = narrowed(_shares(queries, rows < lq, start, largest, total, LOG, M, BM, WIDE), TYPE)
            weights = add_product(weights, features, tl.trans(shares), scale, TYPE, WIDE)
    if CAUSAL:
        weights = tl.where(rows[:, None] <= rows[None, :], weights, 0.0)
        weights, scale = narrowed(weights, TYPE)
        d_rows = load_block(d_output, batch, head, rows, rows < lq, part * BD, DV, BD)
        d_values = add_product(d_values, weights, d_rows.to(TYPE), scale, TYPE, WIDE)
    store_block(dv, batch, head, rows, rows < lk, part * BD, d_values, DV, BD)
