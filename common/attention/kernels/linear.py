"""Linear attention, forward (Katharopoulos et al. 2020, sections 3.2 and 3.3; Choromanski et al. 2020, section 2.1), by chunks.

    s = sum over j of phi(k_j) v_j^T        z = sum over j of phi(k_j)        out_i = phi(q_i)^T s / phi(q_i)^T z

One kernel walks the keys and keeps the sums s (M, Dv) and z (M,), wide, at the seams of chunks: slot c is what lies before
chunk c. In another a program answers the queries of a chunk: from the slot before it and, causal, from scores of each with the
keys of the chunk up to its own. Without a causal mask there are two slots, before and after all keys, and every query is
answered from the second. Features and values are taken in slices, so that there may be any number of them.

LOG: features are given as logarithms. A slot has the largest of each feature so far (M,) taken out of its sums; the scores of a
chunk have those after it taken out, and a running maximum over features out of each query, as flash attention does over keys.

`tl.dot` multiplies numbers of TYPE, 16-bit where the values are, and adds in WIDE (fp32, or fp64 for fp64). All else is wide.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
from typing import Any, NamedTuple

import triton
import triton.language as tl

from common.attention.kernels.tiles import first_row


class Real(NamedTuple):
    """bool (B, Lk), False = padding, and its strides."""

    pointer: Any
    batch: int
    time: int


@triton.jit
def load_block(x, batch, head, rows, keep, start, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """WIDTH numbers from `start` on of rows of SIZE; zeros beyond, and in rows that are not kept."""
    place = start + tl.arange(0, WIDTH)
    pointers = first_row(x, batch, head) + rows[:, None].to(tl.int64) * x.row + place[None, :]
    mask = keep[:, None]
    if SIZE % WIDTH != 0:
        mask = mask & (place < SIZE)[None, :]
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def store_block(x, batch, head, rows, keep, start, values, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """What `load_block` loads, of the rows that are kept."""
    place = start + tl.arange(0, WIDTH)
    pointers = first_row(x, batch, head) + rows[:, None].to(tl.int64) * x.row + place[None, :]
    tl.store(pointers, values.to(x.pointer.dtype.element_ty), mask=keep[:, None] & (place < SIZE)[None, :])


@triton.jit
def kept(real, batch, rows, length, PADDED: tl.constexpr):
    """Which of the keys are there and no padding."""
    keep = rows < length
    if PADDED:
        pointers = real.pointer + batch * real.batch + rows.to(tl.int64) * real.time
        keep = keep & (tl.load(pointers, mask=keep, other=0) != 0)
    return keep


@triton.jit
def load_sums(sums, slot, m, d, M: tl.constexpr, DV: tl.constexpr):
    """Of a slot (int64), the sums of features m with values d."""
    mask = (m < M)[:, None] & (d < DV)[None, :]
    return tl.load(sums + slot * (M * DV) + m[:, None] * DV + d[None, :], mask=mask, other=0.0)


@triton.jit
def store_sums(sums, slot, m, d, values, M: tl.constexpr, DV: tl.constexpr):
    mask = (m < M)[:, None] & (d < DV)[None, :]
    tl.store(sums + slot * (M * DV) + m[:, None] * DV + d[None, :], values, mask=mask)


@triton.jit
def load_logs(logs, slot, m, M: tl.constexpr):
    """Of a slot, the largest logarithm of each feature: -inf where no key has it."""
    return tl.load(logs + slot * M + m, mask=m < M, other=-float("inf"))


@triton.jit
def logarithms(x, keep, start, SIZE: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """What `load_block` loaded, wide, with -inf rather than 0 for what is not there."""
    inside = keep[:, None] & (start + tl.arange(0, WIDTH) < SIZE)[None, :]
    return tl.where(inside, x.to(WIDE), -float("inf"))


@triton.jit
def exp_without(x, largest):
    """exp(x - largest), and 0 where both are -inf."""
    return tl.exp(x - tl.where(largest == -float("inf"), 0.0, largest))


@triton.jit
def key_features(
    x, keep, start, after, LOG: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr
):
    """Of keys that `load_block` loaded; of logarithms without those of the slot after their chunk: at most 1."""
    if LOG:
        x = exp_without(logarithms(x, keep, start, M, BM, WIDE), after[None, :])
    return x.to(TYPE)


@triton.jit
def narrowed(x, TYPE: tl.constexpr):
    """x as TYPE, and what that is to be multiplied by: sums of a long text are too large for fp16, shares too small."""
    if TYPE == tl.float16:
        largest = tl.max(tl.max(tl.abs(x), 1), 0)
        scale = tl.where(largest == 0.0, 1.0, largest)
        x = x / scale
    else:
        scale = 1.0
    return x.to(TYPE), scale


@triton.jit
def add_product(acc, a, b, scale, TYPE: tl.constexpr, WIDE: tl.constexpr):
    """acc + scale a b, where one of these is `narrowed`."""
    if TYPE == tl.float16:
        acc += tl.dot(a, b, input_precision="ieee", out_dtype=WIDE) * scale
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=WIDE)
    return acc


@triton.jit(do_not_specialize=["heads", "lk"])
def states_kernel(
    k, v, real, states, norms, logs, heads, lk,
    LOG: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, DV: tl.constexpr,
    BT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """states (B, H, slots, M, Dv), norms and logs (B, H, slots, M): s, z and, LOG, the largest logarithms. Slot 0 is given.

    A program walks the keys of one head, with BM of their features and BD of their values. Grid: B * H * slices * slices.
    """
    slices_m, slices_d = (M + BM - 1) // BM, (DV + BD - 1) // BD
    slice_d, slice_m = tl.program_id(0) % slices_d, tl.program_id(0) // slices_d % slices_m
    place = tl.program_id(0) // (slices_d * slices_m)
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    m, d = slice_m * BM + tl.arange(0, BM), slice_d * BD + tl.arange(0, BD)
    slots = 2
    if CAUSAL:
        slots = tl.cdiv(lk, BT) + 1
    slot = place.to(tl.int64) * slots
    total = load_sums(states, slot, m, d, M, DV)
    norm = tl.load(norms + slot * M + m, mask=m < M, other=0.0)
    once = (m < M) & (slice_d == 0)
    if LOG:
        top = load_logs(logs, slot, m, M)
    for start in range(0, lk, BT):
        rows = start + tl.arange(0, BT)
        keep = kept(real, batch, rows, lk, PADDED)
        keys = load_block(k, batch, head, rows, keep, slice_m * BM, M, BM)
        values = load_block(v, batch, head, rows, keep, slice_d * BD, DV, BD)
        if LOG:
            powers = logarithms(keys, keep, slice_m * BM, M, BM, WIDE)
            higher = tl.maximum(top, tl.max(powers, 0))
            keys = exp_without(powers, higher[None, :])
            shrink = exp_without(top, higher)
            total *= shrink[:, None]
            norm *= shrink
            top = higher
        keys = keys.to(TYPE)
        norm += tl.sum(keys.to(WIDE), 0)
        total = tl.dot(tl.trans(keys), values.to(TYPE), total, input_precision="ieee", out_dtype=WIDE)
        if CAUSAL:
            slot += 1
            store_sums(states, slot, m, d, total, M, DV)
            tl.store(norms + slot * M + m, norm, mask=once)
            if LOG:
                tl.store(logs + slot * M + m, top, mask=once)
    if not CAUSAL:
        slot += 1
        store_sums(states, slot, m, d, total, M, DV)
        tl.store(norms + slot * M + m, norm, mask=once)
        if LOG:
            tl.store(logs + slot * M + m, top, mask=once)


@triton.jit(do_not_specialize=["heads", "lq"])
def outputs_kernel(
    q, k, v, real, states, norms, logs, output, totals, heads, lq,
    LOG: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, DV: tl.constexpr,
    BT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """output (B, H, Lq, Dv) and totals (B, H, Lq): the sum of a query's scores, 0 where it sees no key; LOG: its logarithm,
    +inf where it sees none, so that exp(.. - total) is a share in any case.

    A program has BT queries and BD of the values. Grid: B * H * chunks * slices.
    """
    slices, chunks = (DV + BD - 1) // BD, tl.cdiv(lq, BT)
    part, chunk = tl.program_id(0) % slices, tl.program_id(0) // slices % chunks
    place = tl.program_id(0) // slices // chunks
    batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows, d = chunk * BT + tl.arange(0, BT), part * BD + tl.arange(0, BD)
    inside = rows < lq
    before = place.to(tl.int64) * 2 + 1
    after = before
    if CAUSAL:
        before = place.to(tl.int64) * (chunks + 1) + chunk
        after = before + 1
        keep = kept(real, batch, rows, lq, PADDED)
        scores = tl.zeros([BT, BT], WIDE)
    out = tl.zeros([BT, BD], WIDE)
    total = tl.zeros([BT], WIDE)
    top = tl.full([BT], -float("inf"), WIDE)
    for start in range(0, M, BM):
        m = start + tl.arange(0, BM)
        queries = load_block(q, batch, head, rows, inside, start, M, BM)
        sums = load_sums(states, before, m, d, M, DV)
        norm = tl.load(norms + before * M + m, mask=m < M, other=0.0)
        largest = top  # of no use without logarithms
        if LOG:
            largest = load_logs(logs, after, m, M)
            powers = logarithms(queries, inside, start, M, BM, WIDE) + largest[None, :]
            higher = tl.maximum(top, tl.max(powers, 1))
            queries = exp_without(powers, higher[:, None])
            fade = exp_without(top, higher)
            out *= fade[:, None]
            total *= fade
            top = higher
            if CAUSAL:
                scores *= fade[:, None]
                shrink = exp_without(load_logs(logs, before, m, M), largest)
                sums *= shrink[:, None]
                norm *= shrink
        queries = queries.to(TYPE)
        total += tl.sum(queries.to(WIDE) * norm[None, :], 1)
        sums, scale = narrowed(sums, TYPE)
        out = add_product(out, queries, sums, scale, TYPE, WIDE)
        if CAUSAL:
            keys = load_block(k, batch, head, rows, keep, start, M, BM)
            keys = key_features(keys, keep, start, largest, LOG, M, BM, TYPE, WIDE)
            scores = tl.dot(queries, tl.trans(keys), scores, input_precision="ieee", out_dtype=WIDE)
    if CAUSAL:
        scores = tl.where(rows[:, None] >= rows[None, :], scores, 0.0)
        total += tl.sum(scores, 1)
    share = 1.0 / tl.where(total == 0.0, 1.0, total)
    out *= share[:, None]
    if CAUSAL:
        values = load_block(v, batch, head, rows, keep, part * BD, DV, BD)
        weights = (scores * share[:, None]).to(TYPE)  # scores themselves may be beyond fp16
        out = tl.dot(weights, values.to(TYPE), out, input_precision="ieee", out_dtype=WIDE)
    store_block(output, batch, head, rows, inside, part * BD, out, DV, BD)
    if LOG:
        total = tl.where(total == 0.0, float("inf"), top + tl.log(tl.where(total == 0.0, 1.0, total)))
    tl.store(totals + place.to(tl.int64) * lq + rows, total, mask=inside & (part == 0))
