"""The flash backward passes of queries, keys and values."""

from tests.mutants.fault import Fault

BACKWARD, LAUNCH = "common/attention/kernels/flash_backward.py", "common/attention/kernels/launch.py"
TESTS = "tests/common/attention/kernels/test_flash.py::"
SIZES = (TESTS + "test_block_sizes",)
DROPOUT = (TESTS + "test_dropout_drops_what_the_reference_drops",)
DEAD = (TESTS + "test_a_query_that_sees_nothing_takes_no_part",)
GRADCHECK = (TESTS + "test_gradcheck",)

FAULTS = (
    Fault(
        "delta is left out of the keys' dS",
        BACKWARD,
        "d_scores = weights * (d_weights - tl.load(delta + rows, mask=rows < lq, other=0.0)[None, :])",
        "d_scores = weights * d_weights",
        SIZES,
    ),
    Fault("delta is left out of the queries' dS", BACKWARD, "(d_weights - delta_rows[:, None])", "d_weights", SIZES),
    Fault("delta lacks the second part of a head", BACKWARD, "total += tl.sum(o_rest", "_ = tl.sum(o_rest", DROPOUT),
    Fault("scale is left out of dK", BACKWARD, "dk *= d_scale", "dk *= 1.0", SIZES),
    Fault("scale is left out of the second part of dK", BACKWARD, "dk_rest *= d_scale", "dk_rest *= 1.0", DROPOUT),
    Fault("scale is left out of dQ", BACKWARD, "dq *= d_scale", "dq *= 1.0", SIZES),
    Fault(
        "dK and dV of only the first head of a group",
        BACKWARD,
        "for member in range(group):",
        "for member in range(1):",
        SIZES,
    ),
    Fault(
        "grouped heads: those of another key head in dK and dV",
        BACKWARD,
        "head = kv_head * group + member",
        "head = member * kv_heads + kv_head",
        SIZES,
    ),
    Fault(
        "grouped heads: head % kv_heads in dQ",
        BACKWARD,
        "first_row(k, batch, head // group), first_row(v, batch, head // group)",
        "first_row(k, batch, head % (heads // group)), first_row(v, batch, head % (heads // group))",
        SIZES,
    ),
    Fault(
        "lists by query serve for keys",
        LAUNCH,
        "_lists(lists, lists.by_key, 2)",
        "_lists(lists, lists.by_query, 2)",
        SIZES,
    ),
    Fault(
        "tile is not transposed for keys",
        BACKWARD,
        "tl.trans(load_tile(lists, tile, BLOCK_Q, BLOCK_K))",
        "load_tile(lists, tile, BLOCK_Q, BLOCK_K)",
        DROPOUT,
    ),
    Fault("what is not allowed has weight in dV", BACKWARD, "weights = tl.where(allowed, weights, 0.0)", "pass", SIZES),
    Fault(
        "NaN of rows that take no part reaches dK",
        BACKWARD,
        "d_scores = tl.where(weights == 0.0, 0.0, d_scores)",
        "pass",
        DROPOUT,
    ),
    Fault(
        "NaN of rows that take no part reaches dQ",
        BACKWARD,
        "d_scores = tl.where(allowed, d_scores, 0.0)",
        "d_scores = d_scores * tl.where(allowed, 1.0, 0.0)",
        DEAD,
    ),
    Fault(
        "dropout of dK and dV is that of the transposed place",
        BACKWARD,
        "dropout_keeps(seed, dropout_p, place, rows[None, :], columns[:, None])",
        "dropout_keeps(seed, dropout_p, place, columns[:, None], rows[None, :])",
        DROPOUT,
    ),
    Fault(
        "dropout of dQ is that of another head",
        BACKWARD,
        "dropout_keeps(seed, dropout_p, place, rows[:, None], columns[None, :])",
        "dropout_keeps(seed, dropout_p, place + 1, rows[:, None], columns[None, :])",
        DROPOUT,
    ),
    Fault("dropped weights count in dV", BACKWARD, "used = tl.where(kept, weights, 0.0)", "used = weights", DROPOUT),
    Fault("dV is not divided by 1 - p", BACKWARD, "dv *= boost", "dv *= 1.0", DROPOUT),
    Fault("second part of dV is not divided by 1 - p", BACKWARD, "dv_rest *= boost", "dv_rest *= 1.0", DROPOUT),
    Fault(
        "dropout by a factor too little in both dS",
        BACKWARD,
        "tl.where(kept, d_weights * boost, 0.0)",
        "tl.where(kept, d_weights, 0.0)",
        GRADCHECK,
        count=2,
    ),
)
