"""Markdown, CSV, terminal, README: what a reader finds in them."""

import csv
import io
import re
from dataclasses import replace

import pytest

from common.report import compare
from common.report.render import text
from common.report.render.long_csv import HEADER, long_csv
from common.report.render.markdown import markdown, table
from common.report.render.readme import insert_results
from common.report.render.terminal import terminal
from common.report.stats import Estimate
from common.report.views import Report, RunView

HEADINGS = ["Verdicts", "Tables", "Scorers", "Source length", "Ablations", "Not run", "Provenance"]


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(-1.5, 2, "−1.50"), (12345.678, 1, "12 345.7"), (0.0, 2, "0.00"), (-3.2455e13, 2, "−3.25e+13")],
)
def test_numbers(value: float, digits: int, expected: str):
    assert text.number(value, digits) == expected


def test_effects_carry_sign_unit_and_interval(report: Report):
    gap = next(o for o in report.outcomes if o.claim.id == "attention_gain_50")
    shown = text.effect_text(replace(gap, effect=Estimate(-1.234, -2.0, 0.5, 0.5, 9)))
    assert shown == "−1.23 BLEU [−2.00, 0.50]"
    assert text.expected_text(gap) == "published +8.93, band +2.95 to +26.79"  # 26.75 - 17.82, times 0.33 and 3


@pytest.mark.parametrize(("p", "expected"), [(0.0004, "p < 0.001"), (0.0254, "p = 0.025"), (None, "")])
def test_p_values(p: float | None, expected: str):
    assert text.p_text(p) == expected


def test_every_verdict_has_a_sign_of_its_own():
    assert set(text.SIGNS) == set(compare.VERDICTS)
    assert len(set(text.SIGNS.values())) == len(compare.VERDICTS)


def test_one_seed_is_said_in_the_verdict(report: Report):
    one = next(o for o in report.outcomes if "rnnsearch_30" in o.claim.rows)  # its second seed failed
    assert one.one_seed
    assert text.verdict_text(one).endswith("(one seed)")
    assert "rnnsearch_30: one seed" in text.basis_text(one)


def test_markdown_has_the_fixed_headings(report: Report):
    assert re.findall(r"^## (.+)$", markdown(report), flags=re.MULTILINE) == HEADINGS


def test_markdown_holds_every_claim_row_and_reason(report: Report):
    page = markdown(report)
    for outcome in report.outcomes:
        assert outcome.claim.claim in page
    for view in report.tables:
        assert all(row.label in page for row in view.rows)
    assert "differences to the printed values do not" in page
    assert "MemoryError: <full>" in page
    assert "no_dropout" in page
    assert "recorded test/bleu 99.00" in page
    for run in report.runs:
        assert f"`{run.command}`" in page


def test_tables_of_markdown_are_rectangular(report: Report):
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", markdown(report), flags=re.MULTILINE)
    assert len(blocks) >= 7
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_a_pipe_in_a_cell_is_escaped():
    assert table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"


def test_csv_holds_every_value_once(report: Report):
    rows = list(csv.DictReader(io.StringIO(long_csv(report))))
    assert tuple(rows[0]) == HEADER
    keys = [tuple(row[k] for k in ("table", "row", "column", "kind", "seed", "status")) for row in rows]
    assert len(set(keys)) == len(keys)
    published = {(row["table"], row["row"], row["column"]): row["value"] for row in rows if row["kind"] == "published"}
    assert published["table_1", "rnnsearch_50_star", "bleu_all"] == "28.45"
    assert published["table_2", "rnnencdec_30", "dev_nll"] == "53.0"
    claims = {row["column"]: row["status"] for row in rows if row["kind"] == "claim"}
    assert claims == {outcome.claim.id: outcome.verdict for outcome in report.outcomes}
    seeds = [
        row["seed"]
        for row in rows
        if row["kind"] == "seed" and row["row"] == "rnnsearch_50" and row["column"] == "bleu_all"
    ]
    assert seeds == ["1", "2"]


def test_terminal_shows_table_verdicts_and_failures(report: Report):
    shown = terminal(report)
    assert re.search(r"RNNsearch-50 +2 +\d+\.\d\d \[.*\] +26\.75", shown)
    for outcome in report.outcomes:
        assert f"{text.verdict_text(outcome)}" in shown and outcome.claim.claim in shown
    assert "failed: rnnsearch_30-s2: MemoryError: <full>" in shown


def test_columns_of_the_terminal_line_up(report: Report):
    lines = terminal(report).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Table 1"))
    header, rule, first = lines[start : start + 3]
    assert len(header) == len(rule) >= len(first)


README = "# Title\n\n<!-- results:bahdanau:start -->\nformer text\n<!-- results:bahdanau:end -->\n\nrest\n"


def test_the_readme_is_changed_between_its_markers_only(report: Report):
    updated = insert_results(README, report, "reproductions/bahdanau/RESULTS.md")
    assert updated.startswith("# Title\n\n<!-- results:bahdanau:start -->\n")
    assert updated.endswith("\n<!-- results:bahdanau:end -->\n\nrest\n")
    assert "former text" not in updated
    assert "| RNNsearch-50* |" in updated
    assert insert_results(updated, report, "reproductions/bahdanau/RESULTS.md") == updated


def test_a_paper_that_the_readme_does_not_show_leaves_it_as_it_is(report: Report):
    assert insert_results("# Title\n", report, "x") == "# Title\n"


@pytest.mark.parametrize("broken", [README.replace(":start", ":begin"), README.replace(":end", ""), README * 2])
def test_a_readme_without_markers_is_refused(report: Report, broken: str):
    with pytest.raises(ValueError, match="expected <!-- results:bahdanau:start -->"):
        insert_results(broken, report, "x")


def test_every_data_set_is_named_that_of_the_first_table_first(report: Report):
    """Other rows, whatever their names, may have another; measured ones none."""
    shared = {"beam": "5"}
    runs = tuple(
        RunView(name, "ok", {"data": data, "data licence": "free"} if data else {}, "")
        for name, data in (
            ("align-s1", "verses"),
            ("rnnsearch_30-s1", "news"),
            ("rnnsearch_50-s1", "news"),
            ("z-s1", ""),
        )
    )
    note = text.data_note(replace(report, shared_facts=shared, runs=runs))
    assert note.startswith("Data: news; free. Other rows: verses; free.")
