"""Linear attention: its reference, the features that it takes, and the kernels."""

from tests.mutants.fault import Fault

FEATURES = "common/attention/features.py"
OF_FEATURES = "tests/common/attention/test_features.py::"
EXPECTATION = tuple(
    f"{OF_FEATURES}test_products_have_the_expectation_of_the_softmax[1.0-{kind}-independent]"
    for kind in ("positive", "trigonometric")
)
BY_HAND = (OF_FEATURES + "test_fixed_features_by_hand",)

NOTHING = "torch.set_grad_enabled(torch.is_grad_enabled())"

REFERENCE = "common/attention/linear.py"
OF_REFERENCE = "tests/common/attention/test_linear.py::"
WRITTEN_OUT = (OF_REFERENCE + "test_outputs_and_gradients",)
PADDED = (OF_REFERENCE + "test_padding_takes_no_part_whatever_it_holds",)
WIDE = (OF_REFERENCE + "test_half_precision_is_summed_in_fp32",)

FORWARD = "common/attention/kernels/linear.py"
BACKWARD = "common/attention/kernels/linear_backward.py"
LAUNCH = "common/attention/kernels/linear_launch.py"
TESTS = "tests/common/attention/kernels/test_linear.py::"
PLAIN = (TESTS + "test_outputs_and_gradients[causal features-float32-40x40-20x20-padded]",)
LOG = (TESTS + "test_outputs_and_gradients[causal logarithms-float32-40x40-20x20-padded]",)
STATES = (TESTS + "test_a_state_goes_on_where_it_was", TESTS + "test_gradients_of_states_too")
HALF = (TESTS + "test_of_half_precision_the_state_is_wide",)

OF_THE_FEATURES = (
    Fault("positive features: no 1 / sqrt(M)", FEATURES, " - torch.log(x.new_tensor(len(draw))) / 2", "", EXPECTATION),
    Fault(
        "positive features: |x|^2 rather than a half of it",
        FEATURES,
        "products - x.square().sum(-1, keepdim=True) / 2",
        "products - x.square().sum(-1, keepdim=True)",
        EXPECTATION,
    ),
    Fault("random features: x is not over D^(1/4)", FEATURES, "x.shape[-1] ** -0.25", "x.shape[-1] ** 0", EXPECTATION),
    Fault("trigonometric features: no 1 / sqrt(M)", FEATURES, "len(draw) ** -0.5", "len(draw) ** -1", EXPECTATION),
    Fault(
        "orthogonal rows are all as long as each other",
        FEATURES,
        "torch.cat(turned) * rows.norm(dim=1, keepdim=True)",
        "torch.cat(turned) * size**0.5",
        (OF_FEATURES + "test_orthogonal_rows_are_at_right_angles_block_by_block_and_as_long_as_others",),
    ),
    Fault("generalised features: no epsilon", FEATURES, "[1].relu() + epsilon", "[1].relu()", BY_HAND),
    Fault("elu features: no 1", FEATURES, "torch.float32))) + 1", "torch.float32)))", BY_HAND),
    Fault(
        "features are narrow under autocast",
        FEATURES,
        "torch.autocast(x.device.type, enabled=False)",
        NOTHING,
        (OF_FEATURES + "test_features_are_wide_under_autocast",),
    ),
)

OF_THE_REFERENCE = (
    Fault(
        "linear reference: exponents are not stabilised",
        REFERENCE,
        "return (x - largest.masked_fill(largest == -torch.inf, 0.0)).exp()",
        "return x.exp()",
        (OF_REFERENCE + "test_logarithms_of_any_size_are_exact",),
    ),
    Fault(
        "linear reference: a query misses its own key",
        REFERENCE,
        "(q @ k.mT).tril()",
        "(q @ k.mT).tril(-1)",
        WRITTEN_OUT,
    ),
    Fault(
        "linear reference: the same of logarithms", REFERENCE, "scores.tril() @ v", "scores.tril(-1) @ v", WRITTEN_OUT
    ),
    Fault(
        "linear reference: the sum of scores misses a query's own key",
        REFERENCE,
        "return q @ state.sums + (q @ k.mT).tril() @ v, after",
        "return q @ state.sums + torch.cat(((q @ k.mT).tril() @ v[..., :-1], (q @ k.mT).tril(-1) @ v[..., -1:]), -1), after",
        WRITTEN_OUT,
    ),
    Fault(
        "linear reference: the state is not rescaled",
        REFERENCE,
        "State(_rescaled(state, logs) + ",
        "State(state.sums + ",
        (OF_REFERENCE + "test_a_state_goes_on_where_it_was",),
    ),
    Fault(
        "linear reference: chunks forget the one before",
        REFERENCE,
        "part, state = _chunk(",
        "part, _ = _chunk(",
        WRITTEN_OUT,
    ),
    Fault(
        "linear reference: padded keys take part",
        REFERENCE,
        "k = k.masked_fill(~real[:, None, :, None], -torch.inf if log else 0.0)",
        "pass",
        PADDED,
    ),
    Fault(
        "linear reference: NaN of a padded value leaks",
        REFERENCE,
        "v = v.masked_fill(~real[:, None, :, None], 0.0)",
        "pass",
        PADDED,
    ),
    Fault(
        "linear reference: the state is of 16 bits", REFERENCE, "v.dtype), torch.float32)", "v.dtype), v.dtype)", WIDE
    ),
    Fault(
        "linear reference: autocast narrows the sums",
        REFERENCE,
        "torch.autocast(q.device.type, enabled=False):  # the sums have to be wide",
        f"{NOTHING}:",
        (OF_REFERENCE + "test_autocast_changes_nothing",),
    ),
)

OF_THE_FORWARD_PASS = (
    Fault(
        "linear: a query misses its own key",
        FORWARD,
        "rows[:, None] >= rows[None, :]",
        "rows[:, None] > rows[None, :]",
        PLAIN,
    ),
    Fault("linear: sums of the text are not rescaled", FORWARD, "total *= shrink[:, None]", "pass", LOG),
    Fault("linear: norms of the text are not rescaled", FORWARD, "norm *= shrink\n            top", "top", LOG),
    Fault("linear: sums of a slot are not rescaled", FORWARD, "sums *= shrink[:, None]", "pass", LOG),
    Fault("linear: norms of a slot are not rescaled", FORWARD, "norm *= shrink\n        queries", "queries", LOG),
    Fault("linear: output is not rescaled", FORWARD, "out *= fade[:, None]", "pass", LOG),
    Fault("linear: sum of scores is not rescaled", FORWARD, "total *= fade", "pass", LOG),
    Fault("linear: scores are not rescaled", FORWARD, "scores *= fade[:, None]", "pass", LOG),
    Fault(
        "linear: a feature that no key has is NaN",
        FORWARD,
        'tl.where(largest == -float("inf"), 0.0, largest)',
        "largest",
        LOG,
    ),
    Fault(
        "linear: exponents are not stabilised",
        FORWARD,
        "queries = exp_without(powers, higher[:, None])",
        "queries, higher = tl.exp(powers), tl.zeros_like(higher)",
        (TESTS + "test_large_logarithms",),
    ),
    Fault("linear: padding takes part", FORWARD, "if PADDED:", "if False:", PLAIN),
    Fault(
        "linear: the sum of scores leaves out what was before",
        FORWARD,
        "total += tl.sum(queries",
        "total += 0.0 * tl.sum(queries",
        PLAIN,
    ),
    Fault("linear: every chunk begins with the first slot", FORWARD, "(chunks + 1) + chunk\n", "(chunks + 1)\n", PLAIN),
    Fault("linear: features beyond M count", FORWARD, "mask = mask & (place < SIZE)[None, :]", "pass", PLAIN),
    Fault(
        "linear: sums beyond fp16 overflow",
        FORWARD,
        "scale = tl.where(largest == 0.0, 1.0, largest)",
        "scale = tl.where(largest == 0.0, 1.0, 1.0)",
        HALF,
    ),
    Fault(
        "linear: scores beyond fp16 overflow", FORWARD, "(scores * share[:, None]).to(TYPE)", "scores.to(TYPE)", HALF
    ),
    Fault(
        "linear: int32 offsets of rows",
        FORWARD,
        "rows[:, None].to(tl.int64) * x.row",
        "rows[:, None] * x.row",
        (TESTS + "test_offsets_beyond_32_bits[2]",),
        2,
    ),
    Fault(
        "linear: sums are carried in 16 bits",
        FORWARD,
        "values.to(TYPE), total, input",
        "values.to(TYPE), total.to(TYPE).to(WIDE), input",
        HALF,
    ),
    Fault(
        "linear: norms are carried in 16 bits",
        FORWARD,
        "norm += tl.sum(keys.to(WIDE), 0)",
        "norm = (norm + tl.sum(keys.to(WIDE), 0)).to(TYPE).to(WIDE)",
        HALF,
    ),
    Fault("linear: the state is of 16 bits", LAUNCH, "dtype=self.wide, device", "dtype=self.narrow, device", HALF),
    Fault(
        "linear: the state is that before the last chunk",
        LAUNCH,
        "each[:, :, -1].clone()",
        "each[:, :, -2].clone()",
        STATES,
    ),
    Fault(
        "ledger: masks of integers pick by number",
        "common/attention/kernels/ledger.py",
        "mask.data.astype(bool)",
        "mask.data",
        (
            "tests/common/attention/kernels/test_linear_traffic.py::test_every_byte_is_that_of_the_closed_form[features]",
        ),
    ),
)

OF_THE_BACKWARD_PASS = (
    Fault("linear backward: delta is left out of the sums z", BACKWARD, "total_z -= tl.sum(", "total_z -= 0.0 * tl.sum(", PLAIN),
    Fault("linear backward: delta is left out of dq", BACKWARD, "WIDE) - delta[:, None] * norm", "WIDE) - 0.0 * delta[:, None] * norm", PLAIN),
    Fault("linear backward: delta is left out within a chunk", BACKWARD, "g - delta[:, None]", "g", PLAIN),
    Fault("linear backward: a sum of 0 has a delta", BACKWARD, "delta = tl.where(total == 0.0, 0.0, delta)", "pass",
          (TESTS + "test_signed_scores_whose_sum_is_zero_are_not_divided",)),
    Fault("linear backward: the gradient of z is left out of dk", BACKWARD, "WIDE) + d_norm[None, :]", "WIDE)", PLAIN),
    Fault("linear backward: dq is of the chunk alone", BACKWARD, "d_queries = add_product(d_queries, d_rows,", "add_product(d_queries, d_rows,", PLAIN),
    Fault("linear backward: dk is of the chunk alone", BACKWARD, "d_keys = add_product(d_keys, values,", "add_product(d_keys, values,", PLAIN),
    Fault("linear backward: dv is of the chunk alone", BACKWARD, "d_values = add_product(d_values, features,", "add_product(d_values, features,", PLAIN),
    Fault("linear backward: dk is of the slot before", BACKWARD, "load_sums(d_states, after, m, d, M, DV), TYPE)\n        d_keys", "load_sums(d_states, before, m, d, M, DV), TYPE)\n        d_keys", PLAIN),
    Fault("linear backward: a value misses its own query", BACKWARD, "rows[:, None] <= rows[None, :]", "rows[:, None] < rows[None, :]", PLAIN),
    Fault("linear backward: features miss their own pair", BACKWARD, "rows[:, None] >= rows[None, :]", "rows[:, None] > rows[None, :]", PLAIN),
    Fault("linear backward: padding has a gradient", BACKWARD, "d_keys = tl.where(keep[:, None], d_keys, 0.0)", "pass", PLAIN),
    Fault("linear backward: gradients of sums are not rescaled", BACKWARD, "total_s *= shrink[:, None]", "pass", LOG, 2),
    Fault("linear backward: sums of a slot are not rescaled", BACKWARD, "sums *= shrink[:, None]\n        sums,", "pass\n        sums,", LOG),
    Fault("linear backward: queries' logarithms are taken for features", BACKWARD, "d_queries *= shares", "pass", LOG),
    Fault(
        "linear backward: keys' logarithms are taken for features",
        BACKWARD,
        "d_keys *= exp_without(logarithms(keys, keep, start, M, BM, WIDE), largest[None, :])",
        "pass",
        LOG,
    ),
    Fault("linear backward: no gradient from the state", LAUNCH, "0.0 if given is None else given", "0.0", STATES),
    Fault("linear backward: no gradient to the state", LAUNCH, "d_sums[:, :, 0], d_norms[:, :, 0]", "0.0 * d_sums[:, :, 0], d_norms[:, :, 0]", STATES),
)  # fmt: skip

LAYERS, LINFORMER, STEPS = "common/nn/linear.py", "common/nn/linformer.py", "common/nn/long.py"
OF_LAYERS = "tests/common/nn/test_linear.py::"
OF_LINFORMER = "tests/common/nn/test_linformer.py::"

OF_THE_LAYERS = (
    Fault(
        "FAVOR+ draws out of training too",
        LAYERS,
        "if self.training and self.redraw:",
        "if self.redraw:",
        (OF_LAYERS + "test_draws_are_kept_and_never_made_out_of_training",),
    ),
    Fault(
        "trigonometric keys are not lifted by their lengths",
        LAYERS,
        "of_k * (lengths - largest.masked_fill(largest == -torch.inf, 0.0)).exp()",
        "of_k",
        (OF_LAYERS + "test_outputs_and_gradients[trigonometric]",),
    ),
    Fault(
        "padding leaks through E: biases of the projections stay",
        LINFORMER,
        "k, v = (tensor.masked_fill(~real[:, None, :, None], 0.0) for tensor in (k, v))",
        "k, v = (tensor for tensor in (k, v))",
        (OF_LINFORMER + "test_padding_does_not_leak_whatever_it_holds",),
    ),
    Fault(
        "padding counts in a pooled stride",
        LINFORMER,
        "real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if real is None else real",
        "real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)",
        (OF_LINFORMER + "test_padding_does_not_leak_whatever_it_holds",),
    ),
    Fault(
        "a step is always the first position",
        STEPS,
        "start=memory.seen",
        "start=0",
        ("tests/common/nn/test_steps.py::test_steps_give_what_the_whole_text_gives[elu-sinusoidal]",),
    ),
)

FAULTS = (*OF_THE_LAYERS, *OF_THE_FEATURES, *OF_THE_REFERENCE, *OF_THE_FORWARD_PASS, *OF_THE_BACKWARD_PASS)
