"""Additive attention (Bahdanau et al. 2014) in Triton: score, softmax and context in one kernel, and the gradients.

    e_ij = sum over a of v_a tanh(q_ia + k_ja)        w_ij = softmax over j of e_ij        c_i = sum over j of w_ij x_j

The tanh of every query with every key, (B, T, S, A), lives a tile at a time in registers, in fp32 (fp64 for fp64). The
forward pass keeps the log of each softmax's sum (B, T), and is linear in memory. The backward pass recomputes the scores
once and writes out w and the scores' gradient, (B, T, S): with these, the gradients of queries and of keys take one more
tanh each, in slices of A; without them each slice would need the score, that is a sum over all of A, again. Every value
is written by one program (v's gradient by each program a part, summed after), so results repeat bit for bit.

Three-dimensional tiles have the axis that is summed over first, where Triton lays it out along a thread's registers.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from common.attention.kernels.launch import Launch

WIDEST = 1024
"""Most of the values' channels that one program keeps in registers; of wider ones it takes a slice."""


@triton.jit
def _tanh(x):
    """An exp that is infinite still gives 1; near 0, where the difference cancels, the series (to 1e-8 of the value)."""
    y = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))
    if x.dtype != tl.float64:
        s = x * x
        near = x + x * s * (-1.0 / 3 + s * (2.0 / 15 + s * (-17.0 / 315 + s * (62.0 / 2835))))
        y = tl.where(s < 0.0625, near, y)
    return y


@triton.jit
def _place(length, BLOCK: tl.constexpr, width, SLICE: tl.constexpr):
    """Of this program: the sentence (int64), and where its block of the length and its slice of the width begin."""
    slices, blocks = tl.cdiv(width, SLICE), tl.cdiv(length, BLOCK)
    row = tl.program_id(0) // slices
    return (row // blocks).to(tl.int64), row % blocks * BLOCK, tl.program_id(0) % slices * SLICE


@triton.jit
def _product(a, b, acc, WIDE: tl.constexpr):
    """acc + a b, for a (M, K) and b (K, N). tl.dot wants 16 or more of each; M or K is 1 where there is one query.

    These are written so that Triton's pass that makes a dot of a broadcast product and its sum, in tf32, finds nothing.
    """
    if a.shape[0] == 1:
        acc += tl.sum(tl.trans(a).to(WIDE) * b.to(WIDE), 0)[None, :]
    elif a.shape[1] == 1:
        acc += a.to(WIDE) * b.to(WIDE)
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=WIDE)  # type: ignore[arg-type]
    return acc


@triton.jit
def _scores(q, k, v, i, j, T, S, A, sq_t, sq_a, sk_s, sk_a, sv, BA: tl.constexpr, WIDE: tl.constexpr):
    """e_ij for the queries i and keys j, (BT, BS). q and k point at their sentence."""
    e = tl.zeros([i.shape[0], j.shape[0]], WIDE)
    for start in range(0, A, BA):
        a = (start + tl.arange(0, BA)).to(tl.int64)
        inside = a < A
        qa = tl.load(q + a[:, None] * sq_a + i[None, :] * sq_t, mask=inside[:, None] & (i < T)[None, :], other=0.0)
        ka = tl.load(k + a[:, None] * sk_a + j[None, :] * sk_s, mask=inside[:, None] & (j < S)[None, :], other=0.0)
        va = tl.load(v + a * sv, mask=inside, other=0.0).to(WIDE)
        e += tl.sum(va[:, None, None] * _tanh(qa.to(WIDE)[:, :, None] + ka.to(WIDE)[:, None, :]), 0)
    return e


@triton.jit
def forward_kernel(
    query, keys, values, v, keep, out, lse,
    sq_b, sq_t, sq_a, sk_b, sk_s, sk_a, sx_b, sx_s, sx_d, sv, sm_b, sm_s, T, S, A, D,
    BT: tl.constexpr, BS: tl.constexpr, BA: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """BT queries of one sentence; BD of the values' D, with all scores once more for each further slice of D."""
    b, first, cut = _place(T, BT, D, BD)
    i = (first + tl.arange(0, BT)).to(tl.int64)
    d = (cut + tl.arange(0, BD)).to(tl.int64)
    top = tl.full([BT, 1], -float("inf"), WIDE)  # columns: of one query, a row of one would not compile for AMD
    total = tl.zeros([BT, 1], WIDE)
    acc = tl.zeros([BT, BD], WIDE)
    for start in range(0, S, BS):
        j = (start + tl.arange(0, BS)).to(tl.int64)
        seen = tl.load(keep + b * sm_b + j * sm_s, mask=j < S, other=0) != 0
        if tl.max(seen.to(tl.int32), 0) > 0:  # padding alone costs nothing
            e = _scores(query + b * sq_b, keys + b * sk_b, v, i, j, T, S, A, sq_t, sq_a, sk_s, sk_a, sv, BA, WIDE)
            e = tl.where(seen[None, :], e, -float("inf"))
            higher = tl.maximum(top, tl.max(e, 1, keep_dims=True))
            w = tl.exp(e - higher)
            shrink = tl.exp(top - higher)
            total = total * shrink + tl.sum(w, 1, keep_dims=True)
            x = tl.load(
                values + b * sx_b + j[:, None] * sx_s + d[None, :] * sx_d,
                mask=seen[:, None] & (d < D)[None, :],
                other=0.0,
            )
            acc = _product(w.to(x.dtype), x, acc * shrink, WIDE)
            top = higher
    some = total != 0
    inside, place = (i < T)[:, None], (b * T + i)[:, None]
    context = acc / tl.where(some, total, 1.0)
    tl.store(out + place * D + d[None, :], context.to(out.dtype.element_ty), mask=inside & (d < D)[None, :])
    log = tl.where(some, top + tl.log(tl.where(some, total, 1.0)), -float("inf"))
    tl.store(lse + place, log, mask=inside & (cut == 0))


@triton.jit
def d_scores_kernel(
    query, keys, values, v, keep, out, lse, d_out, weights, d_scores,
    sq_b, sq_t, sq_a, sk_b, sk_s, sk_a, sx_b, sx_s, sx_d, sv, sm_b, sm_s, so_b, so_t, so_d, T, S, A, D,
    BT: tl.constexpr, BS: tl.constexpr, BA: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """w_ij and de_ij = w_ij (dc_i . x_j - dc_i . c_i), both 0 at unseen keys, for BT queries and BS keys."""
    b, first, cut = _place(T, BT, S, BS)
    i = (first + tl.arange(0, BT)).to(tl.int64)
    j = (cut + tl.arange(0, BS)).to(tl.int64)
    inside, place = i < T, b * T + i
    seen = tl.load(keep + b * sm_b + j * sm_s, mask=j < S, other=0) != 0
    w = tl.zeros([BT, BS], WIDE)
    de = tl.zeros([BT, BS], WIDE)
    if tl.max(seen.to(tl.int32), 0) > 0:
        delta = tl.zeros([BT], WIDE)
        dw = tl.zeros([BT, BS], WIDE)
        for start in range(0, D, BD):
            d = (start + tl.arange(0, BD)).to(tl.int64)
            rows = inside[:, None] & (d < D)[None, :]
            do = tl.load(d_out + b * so_b + i[:, None] * so_t + d[None, :] * so_d, mask=rows, other=0.0)
            c = tl.load(out + place[:, None] * D + d[None, :], mask=rows, other=0.0)
            x = tl.load(
                values + b * sx_b + j[None, :] * sx_s + d[:, None] * sx_d,
                mask=seen[None, :] & (d < D)[:, None],
                other=0.0,
            )
            dw = _product(do, x, dw, WIDE)
            delta += tl.sum(do.to(WIDE) * c.to(WIDE), 1)
        e = _scores(query + b * sq_b, keys + b * sk_b, v, i, j, T, S, A, sq_t, sq_a, sk_s, sk_a, sv, BA, WIDE)
        total = tl.load(lse + place, mask=inside, other=0.0)
        w = tl.where(seen[None, :], tl.exp(e - total[:, None]), 0.0)
        de = w * (dw - delta[:, None])
    at = place[:, None] * S + j[None, :]
    both = inside[:, None] & (j < S)[None, :]
    tl.store(weights + at, w.to(weights.dtype.element_ty), mask=both)
    tl.store(d_scores + at, de, mask=both)


@triton.jit
def d_values_kernel(
    weights, d_out, d_values, so_b, so_t, so_d, T, S, D,
    BT: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dx_j = sum over i of w_ij dc_i, for BS keys and BD of D."""
    b, first, cut = _place(S, BS, D, BD)
    j = (first + tl.arange(0, BS)).to(tl.int64)
    d = (cut + tl.arange(0, BD)).to(tl.int64)
    acc = tl.zeros([BS, BD], WIDE)
    for start in range(0, T, BT):
        i = (start + tl.arange(0, BT)).to(tl.int64)
        w = tl.load(
            weights + (b * T + i[None, :]) * S + j[:, None], mask=(i < T)[None, :] & (j < S)[:, None], other=0.0
        )
        do = tl.load(
            d_out + b * so_b + i[:, None] * so_t + d[None, :] * so_d,
            mask=(i < T)[:, None] & (d < D)[None, :],
            other=0.0,
        )
        acc = _product(w, do, acc, WIDE)
    at = (b * S + j[:, None]) * D + d[None, :]
    tl.store(d_values + at, acc.to(d_values.dtype.element_ty), mask=(j < S)[:, None] & (d < D)[None, :])


@triton.jit
def d_side_kernel(
    mine, other, v, keep, d_scores, d_mine, parts,
    s1_b, s1_m, s1_a, s2_b, s2_n, s2_a, sv, sm_b, sm_s, sd_b, sd_m, sd_n, M, N, A,
    BM: tl.constexpr, BN: tl.constexpr, BA: tl.constexpr, KEYS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The gradient of one side, "mine" (M of them), by way of its sum with the other's (N): the queries' over the keys or,
    with KEYS, the keys' over the queries and this program's part of v's.

    dmine_ma = v_a sum over n of de_mn (1 - tanh(mine_ma + other_na)^2); dv_a = sum over m, n of de_mn tanh(..)
    """
    b, first, cut = _place(M, BM, A, BA)
    m = (first + tl.arange(0, BM)).to(tl.int64)
    a = (cut + tl.arange(0, BA)).to(tl.int64)
    here = (m < M)[:, None] & (a < A)[None, :]
    x = tl.load(mine + b * s1_b + m[:, None] * s1_m + a[None, :] * s1_a, mask=here, other=0.0).to(WIDE)
    acc = tl.zeros([BM, BA], WIDE)
    acc_v = tl.zeros([BM, BA], WIDE)
    if KEYS:
        seen = tl.load(keep + b * sm_b + m * sm_s, mask=m < M, other=0) != 0
    for start in range(0, N, BN):
        n = (start + tl.arange(0, BN)).to(tl.int64)
        there = (n < N)[:, None] & (a < A)[None, :]
        y = tl.load(other + b * s2_b + n[:, None] * s2_n + a[None, :] * s2_a, mask=there, other=0.0).to(WIDE)
        both = (n < N)[:, None] & (m < M)[None, :]
        de = tl.load(d_scores + b * sd_b + n[:, None] * sd_n + m[None, :] * sd_m, mask=both, other=0.0)
        if KEYS:
            live = seen[None, :, None]
        else:
            live = (tl.load(keep + b * sm_b + n * sm_s, mask=n < N, other=0) != 0)[:, None, None]
        z = _tanh(x[None, :, :] + y[:, None, :])
        acc += tl.sum(tl.where(live, de[:, :, None] * (1.0 - z * z), 0.0), 0)  # where: 0 times NaN is NaN
        if KEYS:
            acc_v += tl.sum(tl.where(live, de[:, :, None] * z, 0.0), 0)
    va = tl.load(v + a * sv, mask=a < A, other=0.0).to(WIDE)
    tl.store(d_mine + (b * M + m[:, None]) * A + a[None, :], (acc * va[None, :]).to(d_mine.dtype.element_ty), mask=here)
    if KEYS:
        tl.store(parts + (tl.program_id(0) // tl.cdiv(A, BA)).to(tl.int64) * A + a, tl.sum(acc_v, 0), mask=a < A)


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        out = query.new_empty(*query.shape[:2], values.shape[2])
        lse = query.new_empty(query.shape[:2], dtype=torch.float64 if query.dtype == torch.float64 else torch.float32)
        if keys.shape[1]:
            with torch.cuda.device_of(query):
                forward(query, keys, values, v, keep, out, lse).run()
        else:
            out.zero_()
        ctx.save_for_backward(query, keys, values, v, keep, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, v, keep, out, lse = ctx.saved_tensors
        if not out.numel() or not keys.shape[1]:
            return *(torch.zeros_like(t) for t in (query, keys, values, v)), None
        d_query, d_keys, d_values, d_v = None, None, None, None
        (batch, steps, size), source = query.shape, keys.shape[1]
        weights, de = values.new_empty(batch, steps, source), lse.new_empty(batch, steps, source)
        with torch.cuda.device_of(query):
            score_gradients(query, keys, values, v, keep, out, lse, d_out, weights, de).run()
            if ctx.needs_input_grad[0]:
                d_query = query.new_empty(query.shape)
                side_gradient(query, keys, v, keep, de, d_query, None).run()
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[3]:
                d_keys, parts = keys.new_empty(keys.shape), lse.new_empty(parts_of(keys, query), size)
                side_gradient(keys, query, v, keep, de.transpose(1, 2), d_keys, parts).run()
                d_v = parts.sum(0).to(v.dtype)
            if ctx.needs_input_grad[2]:
                d_values = values.new_empty(values.shape)
                value_gradients(weights, d_out, d_values).run()
        return d_query, d_keys, d_values, d_v, None


def additive(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """`common.attention.additive.additive_attention` for inputs that it has checked."""
    return _Additive.apply(query, keys, values, v, keep)  # type: ignore[return-value]


def forward(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, keep: Tensor, out: Tensor, lse: Tensor) -> Launch:
    """Writes out (B, T, D) and lse (B, T)."""
    (batch, steps, size), (source, width) = query.shape, values.shape[1:]
    tile = _score_tile(steps) | {"BD": min(max(16, 1 << (width - 1).bit_length()), WIDEST)}
    arguments = {"query": query, "keys": keys, "values": values, "v": v, "keep": keep, "out": out, "lse": lse}
    arguments |= _strides(q_bta=query, k_bsa=keys, x_bsd=values, m_bs=keep) | {"sv": v.stride(0)}
    arguments |= {"T": steps, "S": source, "A": size, "D": width, "WIDE": _wide(query), **tile}
    grid = batch * _count(steps, tile["BT"]) * _count(width, tile["BD"])
    return Launch(forward_kernel, grid, arguments, {"num_warps": 4 if tile["BD"] <= 512 else 8})


def score_gradients(
    query: Tensor, keys: Tensor, values: Tensor, v: Tensor, keep: Tensor, out: Tensor, lse: Tensor, d_out: Tensor,
    weights: Tensor, d_scores: Tensor,
) -> Launch:  # fmt: skip
    """Writes weights, in the values' dtype, and d_scores, in lse's, both (B, T, S)."""
    (batch, steps, size), (source, width) = query.shape, values.shape[1:]
    tile = _score_tile(steps) | {"BD": 64}
    arguments = {"query": query, "keys": keys, "values": values, "v": v, "keep": keep, "out": out, "lse": lse}
    arguments |= {"d_out": d_out, "weights": weights, "d_scores": d_scores, "sv": v.stride(0)}
    arguments |= _strides(q_bta=query, k_bsa=keys, x_bsd=values, m_bs=keep, o_btd=d_out)
    arguments |= {"T": steps, "S": source, "A": size, "D": width, "WIDE": _wide(query), **tile}
    return Launch(d_scores_kernel, batch * _count(steps, tile["BT"]) * _count(source, tile["BS"]), arguments, {})


def value_gradients(weights: Tensor, d_out: Tensor, d_values: Tensor) -> Launch:
    """Writes d_values (B, S, D)."""
    (batch, steps, source), width = weights.shape, d_out.shape[2]
    tile = {"BT": 1 if steps == 1 else 16, "BS": 32, "BD": 64}
    arguments = {"weights": weights, "d_out": d_out, "d_values": d_values, "T": steps, "S": source, "D": width}
    arguments |= _strides(o_btd=d_out) | {"WIDE": _wide(d_out), **tile}
    return Launch(d_values_kernel, batch * _count(source, tile["BS"]) * _count(width, tile["BD"]), arguments, {})


def side_gradient(
    mine: Tensor, other: Tensor, v: Tensor, keep: Tensor, d_scores: Tensor, d_mine: Tensor, parts: Tensor | None
) -> Launch:
    """Writes d_mine (B, M, A), for d_scores (B, M, N); where mine are keys, parts of v's gradient (`parts_of`, A) too."""
    size, tile = mine.shape[2], _side_tile(mine, other)
    arguments = {"mine": mine, "other": other, "v": v, "keep": keep, "d_scores": d_scores, "d_mine": d_mine}
    arguments |= {"parts": d_scores if parts is None else parts, "KEYS": parts is not None, "sv": v.stride(0)}
    arguments |= _strides(**{"1_bma": mine, "2_bna": other, "m_bs": keep, "d_bmn": d_scores})
    arguments |= {"M": mine.shape[1], "N": other.shape[1], "A": size, "WIDE": _wide(mine), **tile}
    return Launch(d_side_kernel, parts_of(mine, other) * _count(size, tile["BA"]), arguments, {})


def parts_of(mine: Tensor, other: Tensor) -> int:
    """How many parts of v's gradient `side_gradient` writes."""
    return mine.shape[0] * _count(mine.shape[1], _side_tile(mine, other)["BM"])


def _score_tile(steps: int) -> dict[str, int]:
    """For a single query (a decoder's step) tiles of one."""
    return {"BT": 1, "BS": 32, "BA": 32} if steps == 1 else {"BT": 16, "BS": 16, "BA": 16}


def _side_tile(mine: Tensor, other: Tensor) -> dict[str, int]:
    sizes = (1, 16, 64) if mine.shape[1] == 1 else (16, 1, 64) if other.shape[1] == 1 else (8, 16, 32)
    return dict(zip(("BM", "BN", "BA"), sizes, strict=True))


def _strides(**tensors: Tensor) -> dict[str, Any]:
    """`_strides(q_bta=query)` is query's strides as sq_b, sq_t and sq_a."""
    named = ((*name.split("_"), tensor.stride()) for name, tensor in tensors.items())
    return {f"s{of}_{axis}": n for of, axes, strides in named for axis, n in zip(axes, strides, strict=True)}


def _count(length: int, block: int) -> int:
    return -(-length // block)


def _wide(x: Tensor) -> tl.dtype:
    """What a kernel counts in."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32
