"""Tools that act on results: verify, plan, the trace of online softmax, precision by processor."""

from tests.mutants.fault import Fault

VERIFY, PLAN = "reproductions/verify.py", "reproductions/plan.py"
TRACE, END = (
    "reproductions/flash_attention/trace.py",
    ("tests/repro/flash_attention/test_trace.py::test_the_end_is_that_of_the_reference",),
)
HASHES = ("tests/repro/test_verify.py::test_configuration_sources_and_data_are_those_of_the_hashes",)

FAULTS = (
    Fault(
        "verify: what was not there is not seen",
        "reproductions/manifest.py",
        "sorted({*left, *found})",
        "sorted({*found})",
        ("tests/repro/test_verify.py::test_a_changed_byte_of_any_file_is_seen",),
    ),
    Fault(
        "verify: scores need not fit",
        VERIFY,
        "> 1e-9 * max(1.0, abs(stored))",
        "> 1e9 * max(1.0, abs(stored))",
        ("tests/repro/test_verify.py::test_scores_are_those_of_the_outputs",),
    ),
    Fault("verify: any configuration", VERIFY, "if trained and (got", "if not trained and (got", HASHES),
    Fault("verify: any data", VERIFY, 'if data.checksum != result["data_checksum"]', "if not data.checksum", HASHES),
    Fault(
        "plan: a row is paid for twice",
        PLAN,
        "if job.folder not in taken",
        "if job.folder",
        ("tests/repro/test_plan.py::test_the_quickest_first_until_the_time_is_spent",),
    ),
    Fault(
        "plan: power at the level of the median",
        PLAN,
        "normal.inv_cdf(1 - LEVEL / 2)",
        "normal.inv_cdf(0.5 + LEVEL / 2)",
        ("tests/repro/test_plan.py::test_power_of_a_normal_test",),
    ),
    Fault(
        "plan: a claim is decided by any of its rows",
        PLAN,
        "if set(claim.rows) <= rows",
        "if set(claim.rows) & rows",
        ("tests/repro/test_plan.py::test_claims_are_decided_by_all_of_their_rows",),
    ),
    Fault("trace: the output is not rescaled", TRACE, "factor[:, None] * output", "output", END),
    Fault("trace: the sum is not rescaled", TRACE, "factor * running_sum", "running_sum", END),
    Fault(
        "precision: any word of the processor counts",
        "reproductions/cpu.py",
        r"^(?:flags|Features)\s*:(.*)$",
        r"^.*:(.*)$",
        ("tests/repro/test_cpu.py::test_bfloat16_is_for_processors_that_have_it",),
    ),
)
