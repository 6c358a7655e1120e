"""The field guide's own layers, sources and probes, and the exact statements of places and choices."""

from tests.mutants.fault import Fault

GUIDE = "tests/repro/field_guide/"
LAYERS, PROBES, ORDER = f"{GUIDE}test_layers.py", f"{GUIDE}test_probes.py", "tests/data/test_order.py"
EXACT = f"{GUIDE}test_exact.py::test_holds_or_does_not"

FAULTS = (
    Fault(
        "guide: tied values have a matrix of their own",
        "reproductions/field_guide/layers.py",
        "self.w_v = self.w_k",
        "pass",
        (f"{LAYERS}::test_values_that_are_the_keys",),
    ),
    Fault(
        "guide: tied queries are the values",
        "reproductions/field_guide/layers.py",
        "self.w_q = self.w_k",
        "self.w_q = self.w_v",
        (f"{LAYERS}::test_queries_that_are_the_keys",),
    ),
    Fault(
        "guide: over d is over its root",
        "reproductions/field_guide/layers.py",
        '"width": 1 / self.head_dim',
        '"width": self.scale',
        (f"{LAYERS}::test_scales",),
    ),
    Fault(
        "guide: the learned scale is not used",
        "reproductions/field_guide/layers.py",
        "return q if self.factor is None else q * self.factor",
        "return q",
        (f"{LAYERS}::test_a_learned_scale_is_of_each_head",),
    ),
    Fault(
        "guide: the smallest score is chosen",
        "reproductions/field_guide/layers.py",
        "soft.argmax(-1, keepdim=True)",
        "soft.argmin(-1, keepdim=True)",
        (f"{LAYERS}::test_a_hard_choice_hands_on_the_value_of_the_largest_score",),
    ),
    Fault(
        "guide: uniform weights still look",
        "reproductions/field_guide/layers.py",
        "super().attend(torch.zeros_like(q), k, v, mask)",
        "super().attend(q, k, v, mask)",
        (f"{LAYERS}::test_uniform_weights_are_a_running_mean",),
    ),
    Fault(
        "guide: one side is both",
        "reproductions/field_guide/layers.py",
        "made.mask = core.Causal()",
        "made.mask = core.Full()",
        (f"{LAYERS}::test_an_encoder_that_sees_one_side",),
    ),
    Fault(
        "guide: the class is the last of the two",
        "data/sources/order.py",
        "shown = [answer] * of_answer",
        "shown = [1 - answer] * of_answer",
        (f"{ORDER}::test_which_came_first",),
    ),
    Fault(
        "guide: the other noun is meant",
        "data/sources/order.py",
        "two[self.meant(predicate)]",
        "two[1 - self.meant(predicate)]",
        (f"{ORDER}::test_a_pronoun_means_the_noun_that_its_predicate_asks_for",),
    ),
    Fault(
        "guide: places of the nouns swapped",
        "data/sources/order.py",
        "(second, first) if self.meant",
        "(first, second) if self.meant",
        (f"{ORDER}::test_a_pronoun_means_the_noun_that_its_predicate_asks_for",),
    ),
    Fault(
        "guide: grey values with the special symbols",
        "reproductions/field_guide/pictures.py",
        "(tokens[:, 1:] - SPECIALS)",
        "tokens[:, 1:]",
        (f"{GUIDE}test_pictures.py::test_rows_of_grey_values",),
    ),
    Fault(
        "guide: a push on every head",
        "reproductions/field_guide/probes/pronouns.py",
        "bias[:, head[1], -1] = bias[:, head[1], -1].scatter(1, place[:, None], push)",
        "bias[:, :, -1] = bias[:, :, -1].scatter(2, place[:, None, None].expand(-1, layer.heads, 1), push)\n        bias = bias * 2",
        (f"{PROBES}::test_a_push_moves_the_weight_by_the_closed_form",),
    ),
    Fault(
        "guide: the head that looks most at anything",
        "reproductions/field_guide/probes/pronouns.py",
        "_at(found[head], given.meant_at).mean().item()",
        "found[head].max().item()",
        (f"{PROBES}::test_the_head_that_looks_most",),
    ),
    Fault(
        "guide: tau of the whole text",
        "reproductions/field_guide/probes/reordered.py",
        "(values[later] - values[earlier]).sign()",
        "(values[later] - values[earlier]).abs().sign()",
        (f"{PROBES}::test_tau_by_hand",),
    ),
    Fault(
        "guide: a mean place of what is not the whole weight",
        "reproductions/field_guide/probes/reordered.py",
        "(weights @ places) / weights.sum(-1)",
        "weights @ places",
        (f"{PROBES}::test_a_mean_place_moves_where_the_word_most_looked_at_does_not",),
    ),
    Fault(
        "guide: distances from the wrong end",
        "reproductions/field_guide/probes/far.py",
        "size[-1 - k] / size[-2]",
        "size[k] / size[1]",
        (f"{PROBES}::test_a_gradient_that_fades_with_each_step",),
    ),
    Fault(
        "guide: a half counts as the whole",
        "reproductions/field_guide/probes/remedies.py",
        "(loss * len(part) / len(tokens)).backward()",
        "loss.backward()",
        (f"{PROBES}::test_remedies",),
    ),
    Fault(
        "guide: rotary positions not turned",
        "common/nn/sparse/full.py",
        "return core.rotary(q, positions, scaling=self.rotary_scaling) if self.rotary else q",
        "return q",
        (f"{EXACT}[places.order]",),
    ),
    Fault(
        "guide: shifted windows without a mask",
        "common/nn/vision/swin.py",
        "if down or right else core.Full()",
        "if False else core.Full()",
        (f"{EXACT}[places.kinds_of_data]",),
    ),
    Fault(
        "guide: a Gaussian of D",
        "common/attention/scores.py",
        "(2 * (half_width / 2) ** 2)",
        "(2 * half_width**2)",
        (f"{EXACT}[choice.window_without_end]",),
    ),
)
