"""Decoding: its reference, its kernels, and what they are called with."""

from tests.mutants.fault import Fault

REFERENCE = "common/attention/decoding.py"
OF_REFERENCE = "tests/common/attention/test_decoding.py::"
KERNELS = "common/attention/kernels/decode.py"
LAUNCH = "common/attention/kernels/decode_launch.py"
TESTS = "tests/common/attention/kernels/test_decode.py::"


def case(name: str) -> tuple[str, ...]:
    return (f"{TESTS}test_outputs[{name}]",)


SPLIT = (TESTS + "test_splits_change_next_to_nothing",)
MANY = (TESTS + "test_more_splits_than_the_merge_takes_at_a_time",)
QUERIES = case("static-4on2-T3-16x16-float32-40_0_1_17-splits2")
GROWING = case("growing-3on1-T3-20x33-float32-40_0_1_17-splits7")
PAGED = case("paged7-4on2-T3-16x16-float32-40_0_1_17-splits7")
SCALED = case("static-4on2-T3-16x16-float32-int8-40_0_1_17-splits2")
HALF = case("static-2on2-T1-24x40-float16-int8-40_0_1_17-splits2")
WINDOW = case("static-4on2-T3-16x16-float32-40_0_1_17-window5-splits2")
WIDE = case("static-24on1-T3-16x16-float32-20")
PARTS = case("static-4on2-T3-80x40-float16-40_1-splits1")
SLIDING = case("sliding-4on2-T1-16x16-float32-40_0_1_17-window23")
SEEN = (TESTS + "test_who_sees_what",)
GAPS = tuple(f"{TESTS}test_evicted_positions_count_in_a_window[{kind}]" for kind in ("static", "paged"))

OF_THE_KERNELS = (
    Fault("decode: splits are merged unscaled", KERNELS, "tl.exp2(top - shift), tl.exp2(highest - shift)",
          "tl.exp2(top - top), tl.exp2(highest - shift)", SPLIT),
    Fault("decode: what was merged stays as it was", KERNELS, "tl.exp2(top - shift), tl.exp2(highest - shift)",
          "tl.exp2(top - shift), 1.0", MANY),
    Fault("decode: sums are not rescaled", KERNELS, "rescale = tl.exp2(top - shift)", "rescale = tl.exp2(shift - shift)",
          SPLIT),
    Fault("decode: the last split is dropped", KERNELS, "there = split < used", "there = split < used - 1", QUERIES),
    Fault("decode: the merge takes 16 splits at most", KERNELS, "for at in range(0, used, BP):", "for at in range(0, BP, BP):",
          MANY),
    Fault("decode: a split ends a block early", KERNELS, "tl.minimum(high, start + span * BS)",
          "tl.minimum(high, start + (span - 1) * BS)", QUERIES),
    Fault("decode: splits overlap", KERNELS, "tl.minimum(high, start + span * BS)", "tl.minimum(high, start + (span + 1) * BS)",
          QUERIES),
    Fault("decode: keys are unscaled", KERNELS,
          "scores *= tl.load(k_scales.pointer + offsets, mask=keep, other=0.0)[None, :]", "pass", SCALED),
    Fault("decode: values are unscaled", KERNELS, "weights *= scales[None, :]", "pass", SCALED),
    Fault("decode: values are unscaled in fp16", KERNELS, "weights * (scales / largest)[None, :]", "weights", HALF),
    Fault("decode: the largest scale is lost", KERNELS, "tl.dot(weights, values, out_dtype=tl.float32) * largest",
          "tl.dot(weights, values, out_dtype=tl.float32)", HALF),
    Fault("decode: small scales are rounded away in fp16", KERNELS, "largest = tl.where(largest == 0.0, 1.0, largest)",
          "largest = 1.0", (TESTS + "test_small_values_keep_their_digits_in_int8",)),
    Fault("decode: the sum is of scaled weights", KERNELS, "total = total * rescale + tl.sum(weights, 1)",
          "total = total * rescale + tl.sum(weights * of_values[None, :], 1)", SCALED),
    Fault("decode: a page ends a token early", KERNELS, "columns // PAGE, mask=keep", "(columns + 1) // PAGE, mask=keep", PAGED),
    Fault("decode: pages of the step before", KERNELS, "top, pages = new_top, ahead", "top = new_top",
          case("paged16-4on2-T1-16x16-float32-16_33-splits2")),
    Fault("decode: one place further in a page", KERNELS, "(columns % PAGE).to", "((columns + 1) % PAGE).to", PAGED),
    Fault("decode: pages of the first sequence", KERNELS, "table + batch * most", "table", PAGED),
    Fault("decode: heads that share keys lie apart", KERNELS, "head * group + rows // queries",
          "head + rows // queries * kv_heads", QUERIES),
    Fault("decode: queries of a head lie apart", KERNELS, "(rows % queries).to", "(rows // group).to", QUERIES),
    Fault("decode: all query heads ask the first", KERNELS, "batch * x.batch + head * x.head", "batch * x.batch", QUERIES),
    Fault("decode: a tile has all rows", KERNELS, "rows = tile * BR + tl.arange(0, BR)", "rows = tl.arange(0, BR)", WIDE),
    Fault("decode: no query is causal", KERNELS, " & (columns[None, :] < end[:, None])", " & keep[None, :]", QUERIES),
    Fault("decode: windows have no beginning", KERNELS, "seen = (columns[None, :] >= first[:, None])",
          "seen = (columns[None, :] >= low)", WINDOW),
    Fault("decode: what lies before the window is read", KERNELS, "keep = (columns >= low) & (columns < stop)\n",
          "keep = columns < stop\n", (TESTS + "test_what_no_query_sees_may_be_anything",)),
    Fault("decode: slots behind the last are read", KERNELS, "keep = (columns >= low) & (columns < stop)\n",
          "keep = columns >= low\n", QUERIES),
    Fault("decode: a query without a key divides by 0", KERNELS, "tl.where(new_top == -float(\"inf\"), 0.0, new_top)",
          "new_top", WINDOW),
    Fault("decode: the merge divides by 0", KERNELS, "tl.where(total == 0.0, 1.0, total)", "total", QUERIES),
    Fault("decode: the second part of values is not rescaled", KERNELS, "            out_rest = out_rest * rescale[:, None]\n",
          "            out_rest = out_rest\n", PARTS),
)  # fmt: skip

OF_THE_LAUNCH = (
    Fault("decode: capacity for a length", LAUNCH, "max(own + 1, 0)", "own + 1 + 16 * (own + 1 == held.length)", QUERIES),
    Fault("decode: queries see the one after them", LAUNCH, "max(own + 1, 0)", "min(max(own + 2, 0), held.length)", QUERIES),
    Fault("decode: queries don't see themselves", LAUNCH, "max(own + 1, 0)", "max(own, 0)", QUERIES),
    Fault("decode: windows are one too wide", LAUNCH, "- window + 1).length", "- window).length", (*WINDOW, *GAPS)),
    Fault("decode: windows are one too narrow", LAUNCH, "- window + 1).length", "- window + 2).length", (*WINDOW, *GAPS)),
    Fault("decode: windows count what is left", LAUNCH, "held.length - held.since(_position(held, own) - window + 1).length",
          "max(0, own - window + 1)", GAPS),
    Fault("decode: a window begins with its block", LAUNCH, "_count(each[-1][1], block) - each[0][0] // block",
          "_count(each[-1][1] - each[0][0], block)",
          case("static-4on2-T3-16x16-float32-17_40-window5")),
    Fault("decode: the last block is not counted", LAUNCH, "max(1, _count(max(blocks), self.splits))",
          "max(1, max(blocks) // self.splits)", QUERIES),
    Fault("decode: the scale is of the natural logarithm", LAUNCH, "problem.scale * LOG2E.value", "problem.scale", QUERIES),
    Fault("decode: of keys and values the keys alone are scaled", LAUNCH, "scales[1] if scales else v",
          "scales[0] if scales else v", SCALED),
)  # fmt: skip

OF_THE_REFERENCE = (
    Fault("decode reference: queries see the one after them", REFERENCE, "(distance >= 0)", "(distance >= -1)",
          (OF_REFERENCE + "test_by_hand",)),
    Fault("decode reference: windows are one too wide", REFERENCE, "distance < window", "distance <= window",
          (OF_REFERENCE + "test_by_hand",)),
    Fault("decode reference: slots rather than positions", REFERENCE, "held.positions.masked_fill(~held.real, -1)",
          "(held.real.cumsum(1) - 1).masked_fill(~held.real, -1)",
          (OF_REFERENCE + "test_evicted_positions_count_in_a_window[static]",)),
    Fault("decode reference: slots without a token are seen", REFERENCE, "held.real[:, None] & (distance >= 0)",
          "(distance >= 0)", (OF_REFERENCE + "test_outputs[growing-2on2-T1-16x16-float32-40_0_1_17]",)),
    Fault("decode reference: autocast chooses the dtype", REFERENCE, "torch.autocast(q.device.type, enabled=False)",
          "torch.set_grad_enabled(False)", (OF_REFERENCE + "test_autocast_changes_nothing",)),
    Fault("decode: a sliding cache takes several queries", REFERENCE, "if time > 1:", "if time > 2:",
          (OF_REFERENCE + "test_a_sliding_cache_has_what_one_query_sees",)),
)  # fmt: skip

FAULTS = (*OF_THE_KERNELS, *OF_THE_LAUNCH, *OF_THE_REFERENCE)
