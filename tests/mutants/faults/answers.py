"""Planted in the tools that answer: what to choose, and what is wrong."""

from tests.mutants.fault import Fault

CHOOSE, CHOOSER = "reproductions/choose.py", "tests/repro/test_choose.py"
DOCTOR, LOOKS = "reproductions/doctor", "tests/repro/test_doctor.py"

FAULTS = (
    Fault(
        "choose: a straight line between lengths",
        CHOOSE,
        "low * exp(slope * log(length / shorter))",
        "low + (high - low) * (length - shorter) / (longer - shorter)",
        (f"{CHOOSER}::test_times_between_and_beyond_the_measured_lengths",),
    ),
    Fault(
        "choose: all grow as their length",
        CHOOSE,
        "(length / nearest) ** work",
        "(length / nearest)",
        (f"{CHOOSER}::test_times_between_and_beyond_the_measured_lengths",),
    ),
    Fault(
        "choose: values are not kept",
        CHOOSE,
        "2 * s.length * s.groups * s.head_dim",
        "s.length * s.groups * s.head_dim",
        (f"{CHOOSER}::test_what_generation_keeps",),
    ),
    Fault(
        "choose: one sequence whatever the batch",
        CHOOSE,
        "shape.layers * shape.batch * option.kept(shape)",
        "shape.layers * option.kept(shape)",
        (f"{CHOOSER}::test_memory_worked_by_hand",),
    ),
    Fault(
        "choose: beaten by what is as good",
        CHOOSE,
        "and mine != theirs",
        "or mine == theirs",
        (f"{CHOOSER}::test_the_front_is_what_nothing_beats",),
    ),
    Fault(
        "choose: the wrong side of the rule",
        CHOOSE,
        '"linear attention" if shape.length > 4096 else "softmax attention"',
        '"linear attention" if shape.length >= 4096 else "softmax attention"',
        (f"{CHOOSER}::test_where_the_rule_and_the_measurement_disagree",),
    ),
    Fault(
        "choose: changed sources will do",
        CHOOSE,
        'result.get("git_dirty", True)',
        'result.get("git_dirty", True) is None',
        (f"{CHOOSER}::test_measurements_without_provenance_are_refused",),
    ),
    Fault(
        "doctor: a leak that was there before is named too late",
        f"{DOCTOR}/causal.py",
        "and not any(leak(one, embedded) for one in given)",
        "and given == []",
        (f"{LOOKS}::test_the_first_part_that_sees_what_follows_is_named",),
    ),
    Fault(
        "doctor: what follows begins one later",
        f"{DOCTOR}/causal.py",
        "by[:, at + 1 :].abs()",
        "by[:, at + 2 :].abs()",
        (f"{LOOKS}::test_one_key_too_many_is_a_leak",),
    ),
    Fault(
        "doctor: a sum that normalising keeps",
        f"{DOCTOR}/causal.py",
        "* torch.randn(output[:, at].shape, generator=draw)).sum()",
        "* torch.zeros(output[:, at].shape)).sum()",
        (f"{LOOKS}::test_one_key_too_many_is_a_leak",),
    ),
    Fault(
        "doctor: the first part in place of the innermost",
        f"{DOCTOR}/dims.py",
        "inside[-1] if inside",
        "inside[0] if inside",
        (f"{LOOKS}::test_the_walk_names_the_part_that_does_not_fit",),
    ),
    Fault(
        "doctor: heads that were alike as drawn",
        f"{DOCTOR}/blur.py",
        "in copies(now[1])",
        "in copies(before[1])",
        (f"{LOOKS}::test_heads_that_read_evenly_or_alike_are_named",),
    ),
    Fault(
        "doctor: the last position is shuffled too",
        f"{DOCTOR}/position.py",
        "order = torch.cat([shuffle, torch.tensor([length - 1])])",
        "order = torch.cat([torch.tensor([length - 1]), shuffle])",
        (f"{LOOKS}::test_a_model_without_positions_is_blind_to_order",),
    ),
    Fault(
        "doctor: longer texts by their nats",
        f"{DOCTOR}/position.py",
        "if perplexity > WORSE * base",
        "if perplexity > 1 + WORSE * base",
        (f"{LOOKS}::test_texts_longer_than_those_of_training",),
    ),
    Fault(
        "doctor: halves are predicted whole",
        f"{DOCTOR}/oom.py",
        "at_once = items / 2 if remedy.halves else items",
        "at_once = items",
        (f"{LOOKS}::test_memory_is_predicted_within_a_tenth",),
    ),
    Fault(
        "doctor: the items that were counted come on top",
        f"{DOCTOR}/oom.py",
        "(at_once - SMALL[0]) * each",
        "at_once * each",
        (f"{LOOKS}::test_memory_is_predicted_within_a_tenth",),
    ),
    Fault(
        "report: unseen items are none",
        "common/report/stats.py",
        "float(-np.log(LEVEL / 2)) / clusters",
        "float(-np.log(LEVEL / 2)) / clusters**2",
        ("tests/common/report/test_report_compare.py::test_rows_that_answer_all_items",),
    ),
)
