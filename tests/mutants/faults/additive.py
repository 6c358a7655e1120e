"""The additive kernels."""

from tests.mutants.fault import Fault

FILE = "common/attention/kernels/additive.py"
TESTS = "tests/common/attention/kernels/test_additive.py::"
EXACT = (TESTS + "test_against_fp64_with_nan_all_around",)
MASKED = (TESTS + "test_a_masked_word_takes_no_part",)

FAULTS = (
    Fault("additive: running sum is not rescaled", FILE, "total = total * shrink +", "total = total +", EXACT),
    Fault("additive: running context is not rescaled", FILE, "x, acc * shrink, WIDE", "x, acc, WIDE", EXACT),
    Fault(
        "additive: hidden units beyond A count",
        FILE,
        "va = tl.load(v + a * sv, mask=inside, other=0.0)",
        "va = tl.load(v + a * sv)",
        EXACT,
    ),
    Fault("additive: delta is left out of de", FILE, "de = w * (dw - delta[:, None])", "de = w * dw", EXACT),
    Fault("additive: slope of tanh is 1 - z", FILE, "(1.0 - z * z)", "(1.0 - z)", EXACT),
    Fault(
        "additive: gradient of v is of 1 - z^2",
        FILE,
        "acc_v += tl.sum(tl.where(live, de[:, :, None] * z, 0.0), 0)",
        "acc_v += tl.sum(tl.where(live, de[:, :, None] * (1.0 - z * z), 0.0), 0)",
        EXACT,
    ),
    Fault("additive: gradient of v is of the first keys only", FILE, "d_v = parts.sum(0)", "d_v = parts[0]", EXACT),
    Fault(
        "additive: v is left out of the sides' gradients",
        FILE,
        "(acc * va[None, :]).to(d_mine",
        "(acc + 0.0 * va[None, :]).to(d_mine",
        EXACT,
    ),
    Fault(
        "additive: NaN of a masked word reaches the gradients",
        FILE,
        "tl.where(live, de[:, :, None] * (1.0 - z * z), 0.0)",
        "de[:, :, None] * (1.0 - z * z)",
        MASKED,
    ),
    Fault("additive: masked words have weight", FILE, 'e = tl.where(seen[None, :], e, -float("inf"))', "pass", MASKED),
    Fault(
        "additive: a sentence without a word is not zero",
        FILE,
        "acc / tl.where(some, total, 1.0)",
        "acc / total",
        MASKED,
    ),
    Fault(
        "additive: int32 offsets of keys",
        FILE,
        "j = (start + tl.arange(0, BS)).to(tl.int64)",
        "j = start + tl.arange(0, BS)",
        (TESTS + "test_offsets_beyond_32_bits[values-1]",),
    ),
)
