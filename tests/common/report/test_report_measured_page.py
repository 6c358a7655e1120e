"""A report of measurements: Markdown, CSV, terminal and HTML show values, refusals, what was not run, and charts."""

from __future__ import annotations

import copy
import csv
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from common.report.render import text
from common.report.render.chart import Line, line_chart, log_ticks
from common.report.render.long_csv import long_csv
from common.report.render.markdown import markdown
from common.report.render.page import page
from common.report.render.quantity_html import quantity
from common.report.render.readme import short_results
from common.report.render.terminal import terminal
from common.report.stats import Estimate
from common.report.views import Report
from tests.common.report.measured_runs import (
    EXPONENT,
    POINTS,
    PUBLISHED,
    RATIO,
    make_report,
    measure,
    timed,
    times,
    whole,
    without,
)

CLAIMS = (RATIO, {**without(RATIO, "at"), "id": "from", "from": 512}, EXPONENT)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    root = tmp_path_factory.mktemp("measured")
    whole(root)
    return make_report(root, *CLAIMS)


def cells(page: str, label: str, title: str) -> list[str]:
    """The cells of a row of a Markdown table, below a heading."""
    below = page[page.index(f"### {title}") :]
    return [cell.strip() for cell in re.findall(rf"^\| {label} \|(.*)\|$", below, flags=re.MULTILINE)[0].split("|")]


def test_a_column_per_point_holds_ours_and_published(report: Report):
    shown = markdown(report)
    [header] = re.findall(r"^\| Table 1 \(ms\) (.*) \|$", shown, flags=re.MULTILINE)
    assert header.split(" | ") == ["| runs", *[f"{p}: {whose}" for p in POINTS for whose in ("ours", "published")]]
    found = cells(shown, "Fast", "Table 1")
    median = np.median(report.results.rows["fast"].ok[0].samples["forward_ms"].at["128"])
    assert found[0] == "one run"
    assert re.fullmatch(rf"{median:.3f} \[0\.\d+, 0\.\d+\]", found[1])
    assert found[2] == "0.4"


def test_the_median_is_that_of_the_repeats_with_its_interval(report: Report):
    view = report.tables[0]
    for row in view.rows[:2]:
        for point, cell in zip(POINTS, row.cells, strict=True):
            repeats = report.results.rows[row.id].ok[0].samples["forward_ms"].at[point]
            assert isinstance(cell.ours, Estimate)
            assert cell.ours.value == pytest.approx(np.median(repeats))
            assert min(repeats) <= cell.ours.low < cell.ours.value < cell.ours.high
            assert cell.seeds == ((1, cell.ours.value),)


def test_counts_have_no_interval_and_a_refusal_its_reason(report: Report):
    assert cells(markdown(report), "Plain", "Table 2") == ["one run", "0.983", "1.0", "refused: needs 63 GB", "60"]
    assert cells(markdown(report), "Fast", "Table 2") == ["one run", "0.512", "0.5", "4.10", ""]


def test_a_method_without_a_run_says_why(report: Report):
    shown = markdown(report)
    assert cells(shown, "Other", "Table 1") == ["", "", "0.3", "", "0.9", "", "OOM", "", ""]
    assert "Other: not run: its code is not public." in shown
    assert dict(report.not_run) == {"Other": "its code is not public"}


def test_a_method_without_a_run_or_reason_says_at_least_that(tmp_path: Path):
    published = copy.deepcopy(PUBLISHED)
    del published["tables"][0]["rows"]["other"]["not_run"]
    measure(tmp_path, "fast", samples={"memory": timed({"128": [1.0]}, "bytes")})
    made = make_report(tmp_path, RATIO, published=published)
    assert [row.note for row in made.tables[0].rows] == [
        "not run: no run at scale small",
        "not run: its runs have not measured forward_ms",
        "not run: no run at scale small",
    ]
    listed = dict(made.not_run)
    assert listed["Fast, Table 1"] == "its runs have not measured forward_ms"
    assert listed["Other"] == "no run at scale small"
    assert listed["Table 1"] == "no finished run at scale small has what this figure needs"


def test_absolute_values_of_another_machine_have_no_difference(report: Report, tmp_path: Path):
    assert all(cell.difference is None for row in report.tables[0].rows for cell in row.cells)
    assert "ours − published" not in markdown(report)
    for row, ms in (("plain", 32.5), ("fast", 9.0)):
        samples = {"forward_ms": timed({p: [ms, ms + 0.01, ms - 0.01] for p in POINTS})}
        measure(tmp_path, row, scale="paper", samples=samples)
    paper = make_report(tmp_path, RATIO, scale="paper")
    plain, fast = (paper.tables[0].rows[i].cells[3] for i in (0, 1))
    assert isinstance(plain.difference, Estimate) and plain.difference.value == pytest.approx(0.5)
    assert (plain.within, fast.within) == (True, False)


def test_several_runs_are_averaged_and_told(tmp_path: Path):
    for seed, ms in ((1, 1.0), (2, 2.0), (3, 6.0)):
        samples = {"forward_ms": timed({p: [ms, ms + 0.01, ms - 0.01] for p in POINTS})}
        measure(tmp_path, "fast", seed, samples=samples)
    made = make_report(tmp_path, RATIO)
    found = cells(markdown(made), "Fast", "Table 1")
    assert found[0] == "3" and re.fullmatch(r"3\.00 \[−\d\.\d+, \d+\.\d+\]", found[1])
    assert made.tables[0].rows[1].cells[0].seeds == ((1, 1.0), (2, 2.0), (3, 6.0))


def test_a_point_that_one_run_refused_and_another_measured_is_told(tmp_path: Path):
    measure(tmp_path, "fast", 1, samples={"forward_ms": timed(times(lambda n: n))})
    measure(tmp_path, "fast", 2, samples={"forward_ms": timed({"128": [1, 2, 3]}, **{"256": "out of memory"})})
    row = make_report(tmp_path, RATIO).tables[0].rows[1]
    assert (row.note, row.cells[1].refused) == ("256 refused in another run: out of memory", "")
    assert [len(cell.seeds) for cell in row.cells] == [2, 1, 1, 1]


def test_a_time_taken_once_is_shown_without_an_interval(tmp_path: Path):
    measure(tmp_path, "fast", samples={"forward_ms": timed({"128": [1.25]})})
    assert make_report(tmp_path, RATIO).tables[0].rows[1].cells[0].ours == 1.25


def test_units_differ_by_column_where_they_do(tmp_path: Path):
    published = copy.deepcopy(PUBLISHED)
    published["tables"][0]["columns"] = {"flop": {"label": "FLOP", "ours": {"quantity": "flop", "at": "128"}}}
    quantities = {"flop": timed({"128": [1e9]}, "GFLOP"), "forward_ms": timed(times(lambda n: n))}
    measure(tmp_path, "fast", samples=quantities)
    header, rows = text.grid(make_report(tmp_path, RATIO, published=published).tables[0])
    assert header[:4] == ["Table 1", "runs", "FLOP: ours, GFLOP", "128: ours, ms"]
    assert rows[1][2] == "1e+09"


def test_verdicts_are_worded_for_measurements(report: Report):
    shown = markdown(report)
    assert "✓ reproduced (one run)" in shown and "seed" not in shown.split("## Tables")[0]
    assert "own threshold: at least 2.00, at every point from 512 on" in shown
    assert "left out: 2048 (plain: out of memory)" in shown
    assert "| 1.000 | expected 1.000 ± 0.050 | exact: no measurement differs from its median; one run;" in shown
    assert re.search(r"\| 10\.\d times \[\d+\.\d+, 10\.\d\] \|", shown)


def test_small_and_large_numbers_keep_three_figures():
    assert [text.number(v, None) for v in (0, 0.0123456, 1.23456, 1234.5, 1.23456e-7, -2.5e9, 99.96)] == [
        "0",
        "0.0123",
        "1.23",
        "1 234",
        "1.23e−07",
        "−2.5e+09",
        "100.0",
    ]


def test_csv_holds_every_value_once(report: Report):
    rows = list(csv.DictReader(io.StringIO(long_csv(report))))
    keys = [tuple(row[k] for k in ("table", "row", "column", "kind", "seed", "status")) for row in rows]
    assert len(set(keys)) == len(keys)
    by_key = {(row["table"], row["row"], row["column"], row["kind"]): row for row in rows}
    ours = by_key["table_1", "fast", "128", "ours"]
    assert float(ours["low"]) < float(ours["value"]) < float(ours["high"]) and ours["unit"] == "ms"
    memory = by_key["table_2", "fast", "m1024", "ours"]
    assert memory["low"] == memory["value"] == memory["high"] and memory["unit"] == "GB"
    assert by_key["table_2", "plain", "m1024", "refused"]["status"] == "needs 63 GB"
    assert by_key["table_1", "other", "512", "published"]["value"] == "OOM"
    assert by_key["claims", "fast", "linear", "claim"]["status"] == "reproduced"


def test_terminal_shows_every_measured_table_without_intervals(report: Report):
    shown = terminal(report)
    assert re.search(r"^Fast +one run +0\.\d+ +0\.4 +0\.\d+ +0\.8 ", shown, flags=re.MULTILINE)
    assert re.search(r"^Plain +one run +0\.983 +1\.0 +refused: needs 63 GB +60$", shown, flags=re.MULTILINE)
    assert "Other: not run: its code is not public." in shown


def test_the_readme_gets_the_first_table_unless_it_is_too_wide(report: Report, monkeypatch: pytest.MonkeyPatch):
    assert "| Fast | one run |" not in short_results(report, "RESULTS.md")
    monkeypatch.setattr("common.report.render.readme.WIDEST", 99)
    assert "| Fast | one run |" in short_results(report, "RESULTS.md")


def tree(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring(page(report))


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_the_page_has_no_sections_that_a_paper_of_measurements_lacks(report: Report):
    made = tree(report)
    assert [section.attrib["id"] for section in made.iter("section")] == [
        "verdicts",
        "tables",
        "training",
        "not-run",
        "provenance",
    ]
    ids = {element.attrib["id"] for element in made.iter() if "id" in element.attrib}
    assert {a.attrib["href"][1:] for a in made.iter("a") if a.attrib["href"].startswith("#")} <= ids


def test_the_page_shows_tables_with_refusals_and_reasons(report: Report):
    shown = words(tree(report))
    assert "refused: needs 63 GB" in shown and "Other: not run: its code is not public." in shown
    assert "Table 1 (ms): milliseconds" in shown and "Methodrunsourspublishedours" in shown


def charts(made: ElementTree.Element) -> list[ElementTree.Element]:
    return [svg for svg in made.iter("svg") if svg.attrib["class"] == "chart"]


def pixels(element: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split(",") for point in element.attrib["points"].split())]


def test_the_chart_has_our_lines_and_thin_dashed_published_ones(report: Report):
    [chart] = charts(tree(report))
    drawn = [line.attrib["class"] for line in chart.iter("polyline")]
    assert drawn == ["line thin dashed s0", "line thin dashed s1", "line thin dashed s2", "line s0", "line s1"]
    assert words(chart[0]) == "forward_ms, ms"
    assert "Fast: ours 128: 0.136" in words(chart[1]) and "published 128: 0.4, 256: 0.8" in words(chart[1])
    assert [len(pixels(line)) for line in chart.iter("polyline")] == [4, 4, 2, 4, 5]
    labels = [words(label) for label in chart.iter("text")]
    assert all(label in labels for label in ("128", "512", "1K", "2K", "0.1", "10"))


def test_both_axes_are_logarithmic(report: Report):
    """Published: plain is exactly quadratic, fast linear: straight lines, one twice as steep."""
    [chart] = charts(tree(report))
    plain, fast = (np.array(pixels(line)) for line in list(chart.iter("polyline"))[:2])
    for line in (plain, fast):
        assert np.diff(line[:, 0]) == pytest.approx([np.diff(line[:, 0])[0]] * 3, abs=0.2)
        assert np.diff(line[:, 1]) == pytest.approx([np.diff(line[:, 1])[0]] * 3, abs=0.2)
    assert np.diff(plain[:, 1])[0] == pytest.approx(2 * np.diff(fast[:, 1])[0], abs=0.3)
    assert np.diff(fast[:, 1])[0] < 0


def test_our_medians_lie_on_the_scale_of_the_published_values(report: Report):
    [chart] = charts(tree(report))
    published, ours = (np.array(pixels(list(chart.iter("polyline"))[i])) for i in (0, 3))
    scale = np.polyfit(np.log10([0.5, 2.0, 8.0, 32.0]), published[:, 1], 1)
    repeats = report.results.rows["plain"].ok[0].samples["forward_ms"].at
    assert ours[:, 1] == pytest.approx(np.polyval(scale, np.log10([np.median(repeats[p]) for p in POINTS])), abs=0.2)
    assert ours[:, 0] == pytest.approx(published[:, 0])


def test_refused_points_are_told_below_the_chart(report: Report):
    assert "Refused: Plain at 2048: out of memory." in words(tree(report))


def test_a_row_keeps_its_colour(report: Report):
    assert report.row_order[:3] == ["plain", "fast", "other"]


FIGURE: dict[str, Any] = {
    "id": "figure_1",
    "title": "Figure 1",
    "caption": "Error by density.",
    "evidence": "read",
    "source": "made up",
    "columns": {"says": {"label": "what the text says"}},
    "rows": {"fast": {"label": "Fast", "says": "small"}, "plain": {"label": "Plain", "says": "none"}},
    "plot": {"kind": "quantity", "quantity": "error", "rows": ["fast", "plain"]},
}


def test_a_figure_without_columns_of_ours_has_its_numbers_everywhere(tmp_path: Path):
    published = {**copy.deepcopy(PUBLISHED), "tables": [*PUBLISHED["tables"], FIGURE]}
    error = timed({"1": [1e-7], "0.25": [4e-7], "0.5": [2e-7], "0.125": [0.0], "fp16": [1e-3]}, "relative error")
    measure(tmp_path, "fast", samples={"error": error | {"refused": {"0.0625": "too sparse"}}})
    made = make_report(tmp_path, RATIO, published=published)
    [view] = made.quantities
    assert [(x, e.value) for x, e in view.lines[0].points] == [(0.25, 4e-7), (0.5, 2e-7), (1.0, 1e-7)]
    shown = markdown(made)
    assert "### Figure 1: error (relative error) against its points" in shown
    assert "| error | 0.25: ours | 0.5: ours | 1: ours |" in shown
    assert "| Fast | 4e−07 | 2e−07 | 1e−07 |" in shown
    rows = list(csv.DictReader(io.StringIO(long_csv(made))))
    assert [(r["column"], r["value"]) for r in rows if r["kind"] == "quantity"] == [
        ("0.25", "4e-07"),
        ("0.5", "2e-07"),
        ("1", "1e-07"),
    ]
    assert "Figure 1" not in dict(made.not_run)
    html = ElementTree.fromstring(quantity(view, made.row_order).join(("<div>", "</div>")))
    assert "Refused: Fast at 0.0625: too sparse." in words(html)
    assert [words(td) for td in html.iter("td")] == ["4e−07", "2e−07", "1e−07"]
    assert not list(html.iter("polygon")) or all("band" not in p.attrib["class"] for p in html.iter("polygon"))


def test_published_points_of_another_table_are_drawn_if_the_unit_is_the_same(tmp_path: Path):
    figure = FIGURE | {"plot": {"kind": "quantity", "quantity": "forward_ms", "rows": ["fast"]}}
    published = copy.deepcopy(PUBLISHED)
    published["tables"].insert(0, figure)
    measure(tmp_path, "fast", samples={"forward_ms": timed(times(lambda n: n))})
    made = make_report(tmp_path, RATIO, published=published)
    assert made.quantities[0].lines[0].published == ((128, 0.4), (256, 0.8), (512, 1.6), (1024, 3.2))
    published["tables"][1]["points"] = {**PUBLISHED["tables"][0]["points"], "unit": "s", "factor": 1e-3}
    assert make_report(tmp_path, RATIO, published=published).quantities[0].lines[0].published == ()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.03, 9000, [0.01, 0.1, 1, 10, 100, 1000, 10000]),
        (3, 40, [2, 5, 10, 20, 50]),
        (7, 7, [5, 10]),
        (1, 1, [1, 2]),
        (1e-12, 1e8, [1e-12, 1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9]),
    ],
)
def test_log_ticks_enclose_the_data(low: float, high: float, expected: list[float]):
    assert log_ticks(low, high) == pytest.approx(expected)


def test_given_ticks_span_the_chart():
    line = Line("a", 0, ((0, 1), (1, 2)), dashed=True, thin=True)
    svg = ElementTree.fromstring(
        line_chart([line], title="t", description="d", x_label="x", y_ticks=[(0, "low"), (1, "mid"), (4, "high")])
    )
    heights = {words(label): float(label.attrib["y"]) for label in svg.iter("text")}
    assert heights["low"] - heights["mid"] == pytest.approx((heights["low"] - heights["high"]) / 4, abs=0.2)


def test_ablations_of_measured_rows_stand_against_their_base(tmp_path: Path):
    whole(tmp_path)
    drift = np.exp(np.random.default_rng(9).normal(0, 0.3, 15))
    samples = {"forward_ms": timed(times(lambda n: 2e-3 * n, seed=5, drift=drift))}
    measure(tmp_path, "fast+wide", label="Fast+wide", ablation=["wide"], samples=samples)
    made = make_report(tmp_path, RATIO)
    assert made.ablations is not None
    [line] = made.ablations.lines
    assert [column.id for column in made.ablations.columns] == list(POINTS)
    assert all(d is not None and d.low > 0 for d in line.differences)
    assert "| Fast+wide (base Fast) | 1 |" in markdown(made)
    assert "Fast+wide" in words(tree(made))


def test_different_machines_are_warned_of(tmp_path: Path):
    whole(tmp_path)
    measure(tmp_path, "fast", 2, samples={"forward_ms": timed(times(lambda n: n))}, hardware={"cpu": "another"})
    assert any("different hardware" in warning for warning in make_report(tmp_path, RATIO).warnings)


def test_nothing_run_is_a_page_too(tmp_path: Path):
    made = make_report(tmp_path, *CLAIMS)
    assert {outcome.verdict for outcome in made.outcomes} == {"not run"}
    assert "Table 1" in words(tree(made)) and not charts(tree(made))
    assert "| Fast |  |  | 0.4 |" in markdown(made)
