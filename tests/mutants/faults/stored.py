"""Stored results: the runs behind a report, and the verdicts that are read back from it."""

from tests.mutants.fault import Fault

ARCHIVE, STORED = "reproductions/archive.py", "common/report/stored.py"
KEPT, READ = "tests/repro/test_archive.py::", "tests/common/report/test_stored.py::"

FAULTS = (
    Fault(
        "stored: text is kept",
        ARCHIVE,
        "for key in record if key in NUMBERS",
        "for key in record",
        (f"{KEPT}test_text_and_weights_are_left_out",),
    ),
    Fault(
        "stored: sentences of one split alone",
        ARCHIVE,
        'folder.glob("sentences/*.jsonl")',
        'folder.glob("sentences/test.jsonl")',
        (f"{KEPT}test_a_report_of_what_was_unpacked_has_the_same_tables_and_verdicts",),
    ),
    Fault(
        "stored: a run that is there is written over",
        ARCHIVE,
        "if folders[entry.name] not in present",
        "if entry.name",
        (f"{KEPT}test_what_is_there_stays_as_it_is",),
    ),
    Fault(
        "stored: a bar in a cell is a border",
        STORED,
        r'r"(?<!\\)\|"',
        r'r"\|"',
        (f"{READ}test_a_bar_in_a_cell_is_no_border",),
    ),
    Fault(
        "stored: all verdicts count",
        STORED,
        "sum(one.verdict == verdict for",
        "sum(bool(verdict) for",
        (f"{READ}test_the_matrix_counts_verdicts_and_leaves_out_what_none_has",),
    ),
)
