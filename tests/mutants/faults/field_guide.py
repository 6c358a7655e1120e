"""Statements of the field guide: faults in the parts that they are about, each seen by its check."""

from tests.mutants.fault import Fault

TEST = "tests/repro/field_guide/test_exact.py::test_holds_or_does_not"


def seen_by(*checks: str) -> tuple[str, ...]:
    return tuple(f"{TEST}[{check}]" for check in checks)


FAULTS = (
    Fault(
        "guide: scale forgotten",
        "common/attention/scores.py",
        "dot_score(query * query.shape[-1] ** -0.5, keys)",
        "dot_score(query, keys)",
        seen_by("scores.scaled_is_dot"),
    ),
    Fault(
        "guide: general transposed",
        "common/attention/scores.py",
        "dot_score(query @ w_a, keys)",
        "dot_score(query @ w_a.mT, keys)",
        seen_by("scores.multiplicative"),
    ),
    Fault(
        "guide: no tanh in the additive score",
        "common/attention/scores.py",
        "torch.tanh(query.unsqueeze(-2) + keys) @ v",
        "(query.unsqueeze(-2) + keys) @ v",
        seen_by("scores.additive"),
    ),
    Fault(
        "guide: what sees nothing sees all",
        "common/attention/scores.py",
        "weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)",
        "torch.nan_to_num(weights, 1.0)",
        seen_by("scores.shapes"),
    ),
    Fault(
        "guide: another state in the additive score",
        "reproductions/bahdanau/model.py",
        "y,\n                s,\n",
        "y,\n                torch.tanh(s),\n",
        seen_by("scores.additive"),
    ),
    Fault(
        "guide: scale of the width",
        "common/nn/multihead.py",
        "self.head_dim_k**-0.5 if scale is None",
        "d_model**-0.5 if scale is None",
        seen_by("structure.heads", "structure.teaching_sketch"),
    ),
    Fault(
        "guide: values from the keys' map",
        "common/nn/multihead.py",
        "v = self.w_v(memory)",
        "v = self.w_k(memory)",
        seen_by("scores.three_maps"),
    ),
    Fault(
        "guide: memory ignored",
        "common/nn/multihead.py",
        "self.keys_values(x if memory is None else memory)",
        "self.keys_values(x)",
        seen_by("structure.one_or_two_inputs", "structure.grid"),
    ),
    Fault(
        "guide: rotary forgotten",
        "common/nn/multihead.py",
        "q, k = rotary(q, places), rotary(k, places)\n        return",
        "pass\n        return",
        seen_by("structure.permuted"),
    ),
    Fault(
        "guide: causal sees the next",
        "common/attention/masks.py",
        "left: None = None\n    right: int = 0",
        "left: None = None\n    right: int = 1",
        seen_by("structure.causal", "variants.associative"),
    ),
    Fault(
        "guide: the plan forgets values",
        "common/attention/cache/storage.py",
        "for width, dtype in self.planes)",
        "for width, dtype in self.planes[:1])",
        seen_by("caches.hand_worked", "caches.capped"),
    ),
    Fault(
        "guide: a full memory is not refused",
        "common/attention/cache/plan.py",
        "if needed > memory:",
        "if needed > 2 * memory:",
        seen_by("caches.capped"),
    ),
    Fault(
        "guide: beams not reordered",
        "common/attention/cache/contiguous.py",
        "old.index_select(0, index)",
        "old[: len(index)]",
        seen_by("caches.lifetimes"),
    ),
    Fault(
        "guide: linear attention not normalised",
        "common/attention/linear.py",
        "output / total.masked_fill(total == 0, 1.0)",
        "output",
        seen_by("variants.associative"),
    ),
    Fault(
        "guide: columns never",
        "common/nn/vision/axial.py",
        '"columns" if layer % 2 else "rows"',
        '"rows"',
        seen_by("variants.axial"),
    ),
)
