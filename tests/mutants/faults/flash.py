"""The flash forward pass, how it is launched, and what it shares with the others."""

from tests.mutants.fault import Fault

TILES, FORWARD = "common/attention/kernels/tiles.py", "common/attention/kernels/flash.py"
LAUNCH, AUTOGRAD = "common/attention/kernels/launch.py", "common/attention/kernels/autograd.py"
TESTS = "tests/common/attention/kernels/test_flash.py::"
SIZES = (TESTS + "test_block_sizes",)
DROPOUT = (TESTS + "test_dropout_drops_what_the_reference_drops",)
LSE = (TESTS + "test_lse_is_natural_and_of_what_is_seen",)
HIDDEN = (TESTS + "test_a_bias_of_minus_infinity_hides",)
FAR = TESTS + "test_offsets_beyond_32_bits"

FAULTS = (
    Fault("running output is not rescaled", FORWARD, "out = out * rescale[:, None]", "out = out", SIZES),
    Fault(
        "second part of the running output is not rescaled",
        FORWARD,
        "out_rest = out_rest * rescale[:, None]",
        "out_rest = out_rest",
        DROPOUT,
    ),
    Fault(
        "running sum is not rescaled",
        FORWARD,
        "total = total * rescale + tl.sum(weights, 1)",
        "total = total + tl.sum(weights, 1)",
        SIZES,
    ),
    Fault("scores are not scaled", LAUNCH, '"scale": problem.scale * LOG2E.value', '"scale": LOG2E.value', SIZES),
    Fault("second part of a head is left out of products", TILES, "c = tl.dot(a_rest,", "_ = tl.dot(a_rest,", DROPOUT),
    Fault(
        "second part of the output is not stored",
        TILES,
        "_store_part(first, stride, rows, keep, rest, SIZE, FIRST, REST)",
        "pass",
        DROPOUT,
    ),
    Fault(
        "grouped heads: head % kv_heads in forward",
        FORWARD,
        "first_row(k, batch, head // group), first_row(v, batch, head // group)",
        "first_row(k, batch, head % (heads // group)), first_row(v, batch, head % (heads // group))",
        SIZES,
    ),
    Fault(
        "lists of another batch entry where heads differ too",
        LAUNCH,
        "whole.groups[1] * (whole.groups[0] > 1)",
        "int(whole.groups[0] > 1)",
        (TESTS + "test_masks_of_each_batch_entry_and_head",),
    ),
    Fault(
        "a full block is looked at twice, and the next one never", FORWARD, "column = ahead", "column = column", DROPOUT
    ),
    Fault(
        "tile of the next block, not of this one",
        FORWARD,
        "load_tile(lists, tile,",
        "load_tile(lists, tile_ahead,",
        SIZES,
    ),
    Fault(
        "scores that are not allowed count",
        FORWARD,
        'scores = tl.where(allowed, scores, -float("inf"))',
        "pass",
        SIZES,
    ),
    Fault(
        "unseen values are read, and 0 times NaN is NaN",
        FORWARD,
        "v_first, v.row, columns, keep, DV, DV_FIRST, DV_REST, PARTIAL",
        "v_first, v.row, columns, keep, DV, DV_FIRST, DV_REST, False",
        DROPOUT,
    ),
    Fault(
        "a query that sees nothing yet: -inf minus -inf",
        FORWARD,
        'shift = tl.where(new_top == -float("inf"), 0.0, new_top)',
        "shift = new_top",
        DROPOUT,
    ),
    Fault("a dead row is not zero", FORWARD, "share = 1.0 / tl.where(dead, 1.0, total)", "share = 1.0 / total", HIDDEN),
    Fault("lse of a dead row is finite", FORWARD, 'tl.where(dead, float("inf"), top', "tl.where(dead, 0.0, top", LSE),
    Fault(
        "lse of a dead row gives its full blocks weight in backward",
        FORWARD,
        'tl.where(dead, float("inf"), top',
        'tl.where(dead, -float("inf"), top',
        HIDDEN,
    ),
    Fault("lse leaves out the maximum", FORWARD, "top + tl.log2(", "tl.log2(", SIZES),
    Fault("lse is to base 2", AUTOGRAD, " / launch.LOG2E.value", "", LSE),
    Fault(
        "dropout acts before the sum of the softmax",
        FORWARD,
        "weights = tl.exp2(scores - shift[:, None])\n",
        "weights = tl.exp2(scores - shift[:, None])\n"
        "    if DROPOUT:\n"
        "        kept = dropout_keeps(seed, dropout_p, place, rows[:, None], columns[None, :])\n"
        "        weights = tl.where(kept, weights, 0.0)\n",
        DROPOUT,
    ),
    Fault("kept weights are not divided by 1 - p", FORWARD, "share = share / (1.0 - dropout_p)", "pass", DROPOUT),
    Fault("dropout knows only half of the seed", TILES, "tl.philox(seed,", "tl.philox(seed & 0xFFFFFFFF,", DROPOUT),
    Fault(
        "int32 offsets of batch entries and heads",
        FORWARD,
        "batch, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)",
        "batch, head = place // heads, place % heads",
        (FAR + "[0]", FAR + "[1]"),
    ),
    Fault(
        "int32 offsets of rows",
        TILES,
        "rows[:, None].to(tl.int64) * stride",
        "rows[:, None] * stride",
        (FAR + "[2]",),
        count=2,
    ),
)
