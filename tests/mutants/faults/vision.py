"""Attention of images: gates, their control, axes, windows, biases, shifts, patches."""

from tests.mutants.fault import Fault

CODE, TESTS = "common/nn/vision/", "tests/common/nn/vision/test_"
CHANNEL = (TESTS + "cbam.py::test_channel_gate_by_hand",)
SPATIAL = (TESTS + "cbam.py::test_spatial_gate_by_hand",)
LOOPS = (TESTS + "cbam.py::test_plain_loops",)
CONTROL = (
    TESTS + "cbam.py::test_weights_of_the_gates_and_of_their_control",
    TESTS + "cbam.py::test_the_control_looks_at_one_place_at_a_time",
)
WRITTEN = (TESTS + "convolutional.py::test_written_out",)
MEANS = (TESTS + "axial.py::test_means_by_hand",)
WINDOWS = (TESTS + "swin.py::test_means_by_hand",)
SHARE = (TESTS + "swin.py::test_those_that_share_a_window[4-4-2-1-reference]",)
BORDER = (TESTS + "swin.py::test_the_shift_wraps_nothing_around_the_border",)
MODEL = (TESTS + "classifier.py::test_written_out[full]",)

FAULTS = (
    Fault("cbam: no maxima", CODE + "cbam.py", "x.amax((2, 3))", "x.mean((2, 3))", CHANNEL),
    Fault("cbam: one network for the sum", CODE + "cbam.py", "self.w_1(torch.relu(self.w_0(pooled))).sum(0)", "self.w_1(torch.relu(self.w_0(pooled.sum(0))))", CHANNEL),
    Fault("cbam: no ReLU", CODE + "cbam.py", "torch.relu(self.w_0(pooled))", "self.w_0(pooled)", CHANNEL),
    Fault("cbam: channel gate no sigmoid", CODE + "cbam.py", ".sum(0).sigmoid()", ".sum(0)", CHANNEL),
    Fault("cbam: maximum before mean", CODE + "cbam.py", "(x.mean(1), x.amax(1)), 1", "(x.amax(1), x.mean(1)), 1", SPATIAL),
    Fault("cbam: spatial sum for mean", CODE + "cbam.py", "x.mean(1)", "x.sum(1)", SPATIAL),
    Fault("cbam: wrong padding", CODE + "cbam.py", "padding=kernel // 2, bias", "padding=kernel // 2, padding_mode='replicate', bias", LOOPS),
    Fault("cbam: spatial reads what is not gated", CODE + "cbam.py", "        if self.channel is not None:\n            x = self.channel(x) * x\n        return x if self.spatial is None else self.spatial(x) * x", "        whole = x\n        if self.channel is not None:\n            x = self.channel(x) * x\n        return x if self.spatial is None else self.spatial(whole) * x", LOOPS),
    Fault("cbam: added, not multiplied", CODE + "cbam.py", "self.channel(x) * x", "self.channel(x) + x", LOOPS),
    Fault("cbam: both is channel", CODE + "cbam.py", 'in ("spatial", "both")', 'in ("spatial",)', (TESTS + "cbam.py::test_weights_of_the_gates_and_of_their_control",)),
    Fault("control: too wide", CODE + "control.py", "weights / (2 * channels)", "weights / channels", CONTROL),
    Fault("control: no shortcut", CODE + "control.py", "return x + self.w_1", "return self.w_1", CONTROL),
    Fault("control: pools", CODE + "control.py", "self.w_0(x.movedim(1, -1))", "self.w_0(x.movedim(1, -1).mean((1, 2), keepdim=True))", CONTROL),
    Fault("stage: gate after the sum", CODE + "convolutional.py", "self.shortcut(x) + self.added(x)", "self.added[3](self.shortcut(x) + self.added[:3](x))", WRITTEN),
    Fault("stage: no shortcut", CODE + "convolutional.py", "self.shortcut(x) + self.added(x)", "self.added(x)", WRITTEN),
    Fault("stages: gate of the first stage's channels", CODE + "convolutional.py", "attention(width)", "attention(channels)", WRITTEN + (TESTS + "convolutional.py::test_equal_sizes",)),
    Fault("stages: none halves", CODE + "convolutional.py", "1 if n == 0 else 2", "1", WRITTEN),
    Fault("axial: always rows", CODE + "axial.py", '"columns" if layer % 2 else "rows"', '"rows"', MEANS),
    Fault("axial: columns not turned back", CODE + "axial.py", 'seen if self.axis == "rows" else seen.transpose(1, 2)', "seen", MEANS),
    Fault("axial: lines flattened across images", CODE + "axial.py", "self.multihead(lines.flatten(0, 1), mask=core.Full()).unflatten(0, lines.shape[:2])", "self.multihead(lines.flatten(1, 2), mask=core.Full()).unflatten(1, lines.shape[1:3])", MEANS),
    Fault("axial: pairs of the other side", CODE + "axial.py", 'width if self.axis == "rows" else height', 'height if self.axis == "rows" else width', (TESTS + "axial.py::test_flops[3-6]",)),
    Fault("swin: never shifted", CODE + "swin.py", "self.window // 2 if layer % 2 else 0)", "0)", WINDOWS),
    Fault("swin: no mask", CODE + "swin.py", "if down or right else core.Full()", "if False else core.Full()", BORDER),
    Fault("swin: rows wrap", CODE + "swin.py", ">= height - down", ">= height", BORDER),
    Fault("swin: columns wrap", CODE + "swin.py", ">= width - right", ">= width", BORDER),
    Fault("swin: corner joined", CODE + "swin.py", "2 * below[:, None].long() + beyond.long()", "below[:, None].long() + beyond.long()", BORDER + SHARE),
    Fault("swin: shifted the other way", CODE + "swin.py", "x.roll((-down, -right), (1, 2))", "x.roll((down, right), (1, 2))", (TESTS + "swin.py::test_those_that_share_a_window[6-9-3-1-reference]",)),
    Fault("swin: not shifted back", CODE + "swin.py", ".roll((down, right), (1, 2))", "", SHARE),
    Fault("swin: one window is cut", CODE + "swin.py", "self.shift if side > self.window else 0", "self.shift", (TESTS + "swin.py::test_one_window_is_full_attention_with_a_bias",)),
    Fault("swin: bias of key minus query", CODE + "swin.py", "at[:, None] - at + self", "at - at[:, None] + self", (TESTS + "swin.py::test_bias_by_hand",)),
    Fault("swin: bias turned", CODE + "swin.py", "self.table[:, dy, dx]", "self.table[:, dx, dy]", (TESTS + "swin.py::test_bias_by_hand",)),
    Fault("swin: no bias", CODE + "swin.py", ", bias=self.bias()", "", (TESTS + "swin.py::test_bias_by_hand",)),
    Fault("swin: masks repeated image-wise", CODE + "swin.py", ".repeat(images, 1)", ".repeat_interleave(images, 0)", SHARE),
    Fault("windows: regrouped without turning", CODE + "images.py", "grid.transpose(2, 3).flatten(3, 4).flatten(0, 2)", "x.flatten(0, 2).unflatten(0, (-1, side**2))", WINDOWS),
    Fault("model: columns of patches turned", CODE + "images.py", "permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 1, 5, 3)", MODEL),
    Fault("model: no column positions", CODE + "classifier.py", "x + self.rows[:, None] + self.columns", "x + self.rows[:, None]", MODEL),
    Fault("model: pools before the norm", CODE + "classifier.py", "self.last(x).mean((1, 2))", "self.last(x.mean((1, 2)))", MODEL),
    Fault("model: no last norm", CODE + "classifier.py", "self.last(x).mean((1, 2))", "x.mean((1, 2))", MODEL),
    Fault("model: ReLU for GELU", CODE + "classifier.py", 'activation="gelu"', 'activation="relu"', MODEL),
    Fault("model: same layer throughout", CODE + "classifier.py", "attention(d_model, heads, n)", "attention(d_model, heads, 0)", (TESTS + "classifier.py::test_layers_alternate",)),
)  # fmt: skip
