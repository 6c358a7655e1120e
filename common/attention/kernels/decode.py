"""One or a few queries a sequence against all keys of a cache, which are split among programs; then a merge, which is exact.

    top = max of a split's scores        total = sum of 2^(score - top)        sums = sum of 2^(score - top) v
    out = sum over splits of 2^(top - highest) sums / sum over splits of 2^(top - highest) total

A program holds all queries of the heads that share keys, as rows of one tile, and walks its split of the keys: whatever
their number (Shazeer 2019, section 3; Ainslie et al. 2023), a key is read once for up to BR of them. Splits are merged as
blocks of keys are (Dao et al. 2022, section 3.1), from numbers in fp32.

Tokens lie in the planes of a cache: a run of slots for each sequence, or pages that a table names, PAGE tokens each (0: there
are none). In int8 a token's scale is multiplied into its score and into its weight, and never into its numbers.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
import triton
import triton.language as tl

from common.attention.kernels.tiles import add_product, load_rows, product, store_rows, zeros_of


@triton.jit
def pages_of(table, batch, most, columns, keep, PAGE: tl.constexpr):
    """Which pages tokens number `columns` lie in, int64."""
    if PAGE > 0:
        pages = tl.load(table + batch * most + columns // PAGE, mask=keep, other=0)
    else:
        pages = columns.to(tl.int64)  # of no use
    return pages


@triton.jit
def offsets_of(x, batch, head, columns, pages, PAGE: tl.constexpr):
    """Where in a plane those tokens stand, int64."""
    if PAGE > 0:
        offsets = head * x.head + pages * x.batch + (columns % PAGE).to(tl.int64) * x.row
    else:
        offsets = batch * x.batch + head * x.head + columns.to(tl.int64) * x.row
    return offsets


@triton.jit
def load_tokens(x, offsets, keep, TYPE: tl.constexpr, SIZE: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
    """Both parts of the tokens that are kept, as TYPE, which int8 fits into; zeros for the others."""
    tokens, rest = load_rows(x.pointer, 1, offsets, keep, SIZE, FIRST, REST, True)
    return tokens.to(TYPE), rest.to(TYPE)


@triton.jit
def add_values(
    out, out_rest, weights, scales, values, values_rest,
    SCALED: tl.constexpr, TYPE: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """out + (weights * scales) values."""
    if SCALED and TYPE == tl.float16:
        # A small scale times a small weight is below what fp16 has: the largest scale goes around the product.
        largest = tl.max(scales, 0)
        largest = tl.where(largest == 0.0, 1.0, largest)
        weights = (weights * (scales / largest)[None, :]).to(TYPE)
        out += tl.dot(weights, values, out_dtype=tl.float32) * largest
        if REST > 0:
            out_rest += tl.dot(weights, values_rest, out_dtype=tl.float32) * largest
    else:
        if SCALED:
            weights *= scales[None, :]
        out, out_rest = add_product(out, out_rest, weights, values, values_rest, REST, "ieee", tl.float32)
    return out, out_rest


@triton.jit(do_not_specialize=["kv_heads", "group", "queries", "most", "splits", "span"])
def split_kernel(
    q, k, v, k_scales, v_scales, bounds, table, sums, tops, totals, kv_heads, group, queries, most, splits, span, scale,
    SCALED: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, D_FIRST: tl.constexpr, D_REST: tl.constexpr,
    DV: tl.constexpr, DV_FIRST: tl.constexpr, DV_REST: tl.constexpr,
    BR: tl.constexpr, BS: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """sums (B, H, T, splits, Dv), tops and totals (B, H, T, splits), fp32, of the splits that have a token.

    q: (B, H, T, D). bounds: int32 (B, 2, T), the first token that a query sees and the first after its own; neither falls
    from one query to the next. table: int64 (B, most). span: blocks of BS tokens a split. scale: of the scores, times
    log2(e). Grid: B * kv_heads * (tiles of BR rows) * splits.
    """
    count = group * queries
    tiles = tl.cdiv(count, BR)
    split, tile = tl.program_id(0) % splits, tl.program_id(0) // splits % tiles
    place = tl.program_id(0) // splits // tiles
    batch, head = (place // kv_heads).to(tl.int64), (place % kv_heads).to(tl.int64)
    firsts = bounds + batch * 2 * queries
    ends = firsts + queries
    low, high = tl.load(firsts), tl.load(ends + queries - 1)
    start = (low // BS + split * span) * BS
    stop = tl.minimum(high, start + span * BS)
    rows = tile * BR + tl.arange(0, BR)
    inside = (rows < count) & (start < stop)
    first, end = tl.load(firsts + rows % queries), tl.load(ends + rows % queries)
    asked = batch * q.batch + (head * group + rows // queries) * q.head + (rows % queries).to(tl.int64) * q.row
    asking, asking_rest = load_rows(q.pointer, 1, asked, inside, D, D_FIRST, D_REST, True)

    out, out_rest = zeros_of(BR, DV_FIRST, DV_REST, tl.float32)
    total = tl.zeros([BR], tl.float32)
    top = tl.full([BR], -float("inf"), tl.float32)
    begin = start + tl.arange(0, BS)
    pages = pages_of(table, batch, most, begin, (begin >= low) & (begin < stop), PAGE)
    for at in range(start, stop, BS):
        columns = at + tl.arange(0, BS)
        keep = (columns >= low) & (columns < stop)
        # Pages are fetched a step ahead: a load whose address comes from another one of its step is not pipelined.
        ahead = pages_of(table, batch, most, columns + BS, columns + BS < stop, PAGE)
        offsets = offsets_of(k, batch, head, columns, pages, PAGE)
        keys, keys_rest = load_tokens(k, offsets, keep, TYPE, D, D_FIRST, D_REST)
        scores = product(asking, asking_rest, keys, keys_rest, D_REST, "ieee", tl.float32) * scale
        of_values = scores  # of no use without scales
        if SCALED:
            offsets = offsets_of(k_scales, batch, head, columns, pages, PAGE)
            scores *= tl.load(k_scales.pointer + offsets, mask=keep, other=0.0)[None, :]
            offsets = offsets_of(v_scales, batch, head, columns, pages, PAGE)
            of_values = tl.load(v_scales.pointer + offsets, mask=keep, other=0.0)
        seen = (columns[None, :] >= first[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # a query that has seen nothing yet
        weights = tl.exp2(scores - shift[:, None])
        rescale = tl.exp2(top - shift)
        total = total * rescale + tl.sum(weights, 1)
        out = out * rescale[:, None]
        if DV_REST > 0:
            out_rest = out_rest * rescale[:, None]
        offsets = offsets_of(v, batch, head, columns, pages, PAGE)
        values, values_rest = load_tokens(v, offsets, keep, TYPE, DV, DV_FIRST, DV_REST)
        out, out_rest = add_values(out, out_rest, weights, of_values, values, values_rest, SCALED, TYPE, DV_REST)
        top, pages = new_top, ahead

    answer = place.to(tl.int64) * count + rows
    store_rows(sums + split * DV, splits * DV, answer, inside, out, out_rest, DV, DV_FIRST, DV_REST)
    tl.store(tops + answer * splits + split, top, mask=inside)
    tl.store(totals + answer * splits + split, total, mask=inside)


@triton.jit(do_not_specialize=["rows", "queries", "splits", "span"])
def merge_kernel(
    sums, tops, totals, bounds, output, rows, queries, splits, span,
    DV: tl.constexpr, BS: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """output (B, H, T, Dv): zeros for a query that sees no token.

    A program has one query and takes BP splits at a time, of those that have a token. rows: H * T. Grid: B * H * T.
    """
    row = tl.program_id(0).to(tl.int64)
    bound = bounds + row // rows * 2 * queries
    low, high = tl.load(bound), tl.load(bound + 2 * queries - 1)
    used = tl.cdiv(tl.cdiv(high, BS) - low // BS, span)
    d = tl.arange(0, BD)
    out = tl.zeros([BD], tl.float32)
    total = 0.0
    highest = -float("inf")
    for at in range(0, used, BP):
        split = at + tl.arange(0, BP)
        there = split < used
        top = tl.load(tops + row * splits + split, mask=there, other=-float("inf"))
        higher = tl.maximum(highest, tl.max(top, 0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        share, fade = tl.exp2(top - shift), tl.exp2(highest - shift)
        total = total * fade + tl.sum(share * tl.load(totals + row * splits + split, mask=there, other=0.0), 0)
        pointers = sums + (row * splits + split[:, None]) * DV + d[None, :]
        part = tl.load(pointers, mask=there[:, None] & (d < DV)[None, :], other=0.0)
        out = out * fade + tl.sum(share[:, None] * part, 0)
        highest = higher
    out = out / tl.where(total == 0.0, 1.0, total)
    tl.store(output + row * DV + d, out.to(output.dtype.element_ty), mask=d < DV)
