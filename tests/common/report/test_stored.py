"""Verdicts read from a tracked RESULTS.md, and the matrix of README.md that they make."""

from dataclasses import replace
from pathlib import Path

import pytest

from common.report.render.markdown import markdown
from common.report.render.readme import insert_matrix
from common.report.stored import Stored, StoredResults, cells, read_stored
from common.report.views import Report

README = "a\n<!-- verdicts:start -->\n<!-- verdicts:end -->\nb\n"


@pytest.fixture
def file(report: Report, tmp_path: Path) -> Path:
    (tmp_path / "bahdanau").mkdir()
    file = tmp_path / "bahdanau" / "RESULTS.md"
    file.write_text(markdown(report), encoding="utf-8")
    return file


def test_what_a_report_wrote_is_read_as_it_was_judged(report: Report, file: Path) -> None:
    stored = read_stored(file, "bahdanau")
    assert (stored.paper, stored.title, stored.scale) == ("bahdanau", report.published.title, report.scale)
    assert [one.verdict for one in stored.verdicts] == [outcome.verdict for outcome in report.outcomes]
    for one, outcome in zip(stored.verdicts, report.outcomes, strict=True):
        assert one.claim == f"{outcome.claim.claim} ({outcome.claim.place})"
        assert one.seeds == ("one seed" if outcome.one_seed else "")


def test_a_bar_in_a_cell_is_no_border() -> None:
    assert cells(r"| p(y \| x) | b |") == ("p(y | x)", "b")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("✓ reproduced", "✓ upheld", "got the verdict '✓ upheld"),
        ("| verdict | claim |", "| verdict | statement |", "got the columns verdict, statement"),
        ("## Verdicts", "## Outcomes", "expected a title, a scale and verdicts, as a report writes them"),
    ],
)
def test_what_no_report_wrote_is_refused(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_stored(file, "bahdanau")


def test_the_matrix_counts_verdicts_and_leaves_out_what_none_has() -> None:
    one = Stored("reproduced", "", "claim", "+1", "0", "")
    papers = [
        StoredResults("first", "First", "small", (one, replace(one, verdict="contradicted"), one)),
        StoredResults("second", "Second", "paper", (replace(one, verdict="not run"),)),
    ]
    assert insert_matrix(README, papers).splitlines()[2:6] == [
        "| claims of | scale | ✓ reproduced | ✗ contradicted | ○ not run |",
        "| --- | --- | --- | --- | --- |",
        "| [`first`](reproductions/first/RESULTS.md) | small | 2 | 1 |  |",
        "| [`second`](reproductions/second/RESULTS.md) | paper |  |  | 1 |",
    ]
