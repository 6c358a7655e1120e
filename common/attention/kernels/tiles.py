"""What the flash kernels share: how they address tensors and lists, load parts of rows, add a bias, and drop weights.

Rows of D numbers are held as two parts, FIRST and REST wide, both powers of two: 80 is 64 + 16 rather than 128 with 48
zeros. REST is 0 where one part will do; what stands for the second part is then never looked at. 16-bit numbers are only
loaded, stored and multiplied by `tl.dot`; all else is in the wide type (fp32, or fp64 for fp64).
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


class Rows(NamedTuple):
    """A (B, H, L, D) tensor whose last stride is 1, and its other strides."""

    pointer: Any
    batch: int
    head: int
    row: int


class Bias(NamedTuple):
    """Strides of a bias at (batch, head, query, key): 0 where it is broadcast. One by distance is a vector of Lq + Lk - 1
    a head, from entry Lq - 1 on, with strides of -1 by query and 1 by key."""

    pointer: Any
    batch: int
    head: int
    query: int
    key: int


class Lists(NamedTuple):
    """`common.attention.blocks.Lists`, and the strides of its groups by batch entry and head: 0 where there is but one.

    allowed: uint8 (T, block_q, block_k); seen: uint8 (T, block), which of the listed side's rows a tile allows anything.
    """

    start: Any
    full_end: Any
    column: Any
    tile: Any
    allowed: Any
    seen: Any
    batch: int
    head: int


@triton.jit
def first_row(x, batch, head):
    """Pointer to the rows of a batch entry and head (both int64)."""
    return x.pointer + batch * x.batch + head * x.head


@triton.jit
def listed(lists, batch, head, row, rows):
    """Where the list of a block begins, where its full blocks end, and where it ends."""
    group = batch * lists.batch + head * lists.head
    start = lists.start + group * (rows + 1) + row
    return tl.load(start), tl.load(lists.full_end + group * rows + row), tl.load(start + 1)


@triton.jit
def full_entry(lists, n, end):
    """The column of the n-th entry, a full block; 0 from `end` on.

    Loops fetch entries one step ahead: a load whose address comes from another load of the same step is not pipelined.
    """
    return tl.load(lists.column + n, mask=n < end, other=0)


@triton.jit
def partial_entry(lists, n, end, BLOCK: tl.constexpr):
    """The column of the n-th entry, a partial block, its tile, and which of the BLOCK listed rows that allows anything."""
    column, tile = full_entry(lists, n, end), tl.load(lists.tile + n, mask=n < end, other=0).to(tl.int64)
    return column, tile, tl.load(lists.seen + tile * BLOCK + tl.arange(0, BLOCK)) != 0


@triton.jit
def load_tile(lists, tile, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """What a tile allows, (BLOCK_Q, BLOCK_K)."""
    inner = tl.arange(0, BLOCK_Q)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    return tl.load(lists.allowed + tile * (BLOCK_Q * BLOCK_K) + inner) != 0


@triton.jit
def _load_part(
    first, stride, rows, keep, SIZE: tl.constexpr, FROM: tl.constexpr, WIDTH: tl.constexpr, CUT: tl.constexpr
):
    place = FROM + tl.arange(0, WIDTH)
    pointers = first + rows[:, None].to(tl.int64) * stride + place[None, :]
    if CUT and FROM + WIDTH > SIZE:
        x = tl.load(pointers, mask=keep[:, None] & (place[None, :] < SIZE), other=0.0)
    elif CUT:
        x = tl.load(pointers, mask=keep[:, None], other=0.0)
    elif FROM + WIDTH > SIZE:
        x = tl.load(pointers, mask=place[None, :] < SIZE, other=0.0)
    else:
        x = tl.load(pointers)
    return x


@triton.jit
def load_rows(
    first, stride, rows, keep, SIZE: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, CUT: tl.constexpr
):
    """Both parts of rows of SIZE numbers. Where CUT, those that `keep` leaves out are zeros and are not read."""
    x = _load_part(first, stride, rows, keep, SIZE, 0, FIRST, CUT)
    if REST > 0:
        rest = _load_part(first, stride, rows, keep, SIZE, FIRST, REST, CUT)
    else:
        rest = x
    return x, rest


@triton.jit
def _store_part(first, stride, rows, keep, x, SIZE: tl.constexpr, FROM: tl.constexpr, WIDTH: tl.constexpr):
    place = FROM + tl.arange(0, WIDTH)
    pointers = first + rows[:, None].to(tl.int64) * stride + place[None, :]
    tl.store(pointers, x.to(first.dtype.element_ty), mask=keep[:, None] & (place[None, :] < SIZE))


@triton.jit
def store_rows(first, stride, rows, keep, x, rest, SIZE: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
    """Both parts of the rows that are kept."""
    _store_part(first, stride, rows, keep, x, SIZE, 0, FIRST)
    if REST > 0:
        _store_part(first, stride, rows, keep, rest, SIZE, FIRST, REST)


@triton.jit
def zeros_of(ROWS: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, WIDE: tl.constexpr):
    """Both parts of rows of zeros."""
    x = tl.zeros([ROWS, FIRST], WIDE)
    if REST > 0:
        rest = tl.zeros([ROWS, REST], WIDE)
    else:
        rest = x
    return x, rest


@triton.jit
def product(a, a_rest, b, b_rest, REST: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr):
    """a b^T over both parts."""
    c = tl.dot(a, tl.trans(b), input_precision=PRECISION, out_dtype=WIDE)
    if REST > 0:
        c = tl.dot(a_rest, tl.trans(b_rest), c, input_precision=PRECISION, out_dtype=WIDE)
    return c


@triton.jit
def add_product(c, rest, a, b, b_rest, REST: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr):
    """c + a b, both parts of b; a is rounded to the type of b."""
    c = tl.dot(a.to(b.dtype), b, c, input_precision=PRECISION, out_dtype=WIDE)
    if REST > 0:
        rest = tl.dot(a.to(b.dtype), b_rest, rest, input_precision=PRECISION, out_dtype=WIDE)
    return c, rest


@triton.jit
def load_bias(first, bias, rows, columns, inside, WIDE: tl.constexpr):
    """Of these queries and keys (which broadcast to a tile), in units of the base-2 logarithm; 0 outside."""
    pointers = first + rows.to(tl.int64) * bias.query + columns.to(tl.int64) * bias.key
    return tl.load(pointers, mask=inside, other=0.0).to(WIDE) * LOG2E


@triton.jit
def dropout_keeps(seed, dropout_p, place, rows, columns):
    """Which weights stay, as `common.attention.dropout.keep` has it. place: batch * heads + head, int32."""
    i, j = tl.broadcast(rows, columns)
    word, _, _, _ = tl.philox(seed, j, i, place, 0)
    return tl.uint_to_uniform_float(word) >= dropout_p
