"""report.html as text: well-formed, self-contained, complete, escaped, accessible."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from common.report.render.chart import Line, line_chart, ticks
from common.report.render.heatmap import heatmap
from common.report.render.markup import Markup, tag
from common.report.render.page import SECTIONS, page
from common.report.sentences import Alignment
from common.report.views import Report


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return page(report)


@pytest.fixture(scope="module")
def tree(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html)


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_nothing_is_loaded_from_elsewhere(html: str, tree: ElementTree.Element):
    for element in tree.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "embed", "base", "image", "use")
        for name, value in element.attrib.items():
            assert not name.startswith("on") and name not in ("src", "srcset", "data", "action", "style")
            if name == "href":
                assert element.tag == "a" and (value.startswith("#") or value == "https://arxiv.org/abs/1409.0473")
    assert not re.search(r"@import|url\(", html)
    assert html.startswith("<!DOCTYPE html>\n")


def test_ids_are_unique_and_links_lead_somewhere(tree: ElementTree.Element):
    ids = [element.attrib["id"] for element in tree.iter() if "id" in element.attrib]
    assert len(set(ids)) == len(ids)
    targets = [a.attrib["href"][1:] for a in tree.iter("a") if a.attrib["href"].startswith("#")]
    assert targets == [name for name, _ in SECTIONS]
    assert set(targets) <= set(ids)


def test_every_claim_and_verdict_is_there(report: Report, tree: ElementTree.Element):
    items = {element.attrib["id"]: words(element) for element in tree.iter("li") if "id" in element.attrib}
    assert len(items) == len(report.outcomes)
    for outcome in report.outcomes:
        shown = items[f"claim-{outcome.claim.id}"]
        assert outcome.claim.claim in shown and outcome.claim.place in shown and outcome.verdict in shown


def test_verdicts_come_before_any_table(html: str):
    assert html.index('id="verdicts"') < html.index("<table")


def test_every_row_and_fact_is_there(report: Report, tree: ElementTree.Element):
    shown = words(tree)
    headers = {words(th) for th in tree.iter("th")}
    for view in report.tables:
        assert {row.label + (" †" if row.note else "") for row in view.rows} <= headers
    for run in report.runs:
        assert run.name in headers and run.command in shown
    for what, why in report.not_run:
        assert what in shown and why in shown
    for value in report.shared_facts.values():
        assert value in shown
    for warning in report.warnings:
        assert warning in shown
    assert "differences to the printed values do not" in shown


def test_published_values_are_shown_as_printed(tree: ElementTree.Element):
    rows = [[words(cell) for cell in tr] for tr in tree.iter("tr") if words(tr[0]) == "RNNenc-50"]
    [cells] = rows
    assert [cells[i] for i in (3, 5, 7, 9, 11)] == ["6.00", "4.5", "108", "44.0", "43.6"]


def test_text_from_runs_is_escaped(html: str, tree: ElementTree.Element):
    assert "MemoryError: &lt;full&gt;" in html
    assert "<full>" not in html
    assert any(words(p).endswith("MemoryError: <full>.") for p in tree.iter("p"))


def test_pictures_are_described_and_tables_have_headers(tree: ElementTree.Element):
    pictures = [svg for svg in tree.iter("svg") if svg.attrib.get("aria-hidden") != "true"]
    assert len(pictures) >= 3 + 4 + 2
    for svg in pictures:
        assert svg.attrib["role"] == "img"
        assert words(svg[0]) and svg[0].tag == "title"
    for table in tree.iter("table"):
        assert all("scope" in th.attrib or not words(th) for th in table.iter("th"))
    frames = [div for div in tree.iter("div") if div.attrib.get("class") == "scroll"]
    assert all(div.attrib["tabindex"] == "0" and div.attrib["aria-label"] for div in frames)
    framed = [table for div in frames for table in div.iter("table")]
    assert len(framed) == len(list(tree.iter("table")))


def test_words_of_an_alignment_can_be_read(report: Report, tree: ElementTree.Element):
    drawn = [svg for svg in tree.iter("svg") if svg.attrib["class"] == "heatmap"]
    for svg, alignment in zip(drawn, report.alignments[0].alignments, strict=True):
        labels = [words(label) for label in svg.iter("text")]
        assert labels == [*alignment.source, *alignment.target]


def test_a_heat_map_draws_the_weights_it_was_given():
    weights = np.array([[0.9, 0.1, 0.0], [0.01, 0.29, 0.7]])
    svg = ElementTree.fromstring(heatmap(Alignment("a", ("x", "y", "z"), ("u", "v"), weights), "title"))
    [cells] = [g for g in svg.iter("g") if g.attrib.get("class") == "cells"]
    drawn = [(float(r.attrib["x"]), float(r.attrib["y"]), r.attrib["fill-opacity"]) for r in cells]
    columns, lines = sorted({x for x, *_ in drawn}), sorted({y for _, y, _ in drawn})
    places = [(lines.index(y), columns.index(x), opacity) for x, y, opacity in drawn]
    assert places == [(0, 0, "0.90"), (0, 1, "0.10"), (1, 1, "0.29"), (1, 2, "0.70")]


def chart(*lines: Line, **keywords) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart(lines, title="t", description="d", x_label="x", **keywords))


def test_a_chart_marks_what_lies_beyond_training():
    line = Line("a", 0, ((5, 1), (15, 2), (25, 3)), solid=(True, True, False))
    drawn = chart(line)
    classes = [element.attrib["class"] for element in drawn.iter() if "s0" in element.attrib.get("class", "").split()]
    assert classes == ["line s0", "line dotted s0", "marker s0", "marker s0", "marker open s0"]


def test_a_chart_puts_points_where_they_belong():
    drawn = chart(Line("a", 0, ((0, 0), (10, 5))))
    (x0, y0), (x1, y1) = (
        tuple(map(float, p.split(","))) for p in next(drawn.iter("polyline")).attrib["points"].split()
    )
    assert x0 < x1 and y0 > y1  # up is more
    labels = {words(t): (float(t.attrib["x"]), float(t.attrib["y"])) for t in drawn.iter("text")}
    assert labels["10"][0] == pytest.approx(x1, abs=0.1)
    assert labels["5"][1] == pytest.approx(y1 + 4, abs=0.1)


@pytest.mark.parametrize(("low", "high"), [(0, 30), (-4.3, -3.1), (2, 2), (0.001, 0.0017), (0, 7_900_000), (-1, 0)])
def test_ticks_are_round_and_enclose_the_data(low: float, high: float):
    found = ticks(low, high)
    assert found[0] <= low and found[-1] >= high
    assert 2 <= len(found) <= 9
    [step] = {float(f"{b - a:.6g}") for a, b in pairwise(found)}
    assert f"{step:e}"[0] in "125" and float(f"{step:.1g}") == step


def test_markup_escapes_what_is_not_markup():
    assert (
        tag("p", "<b>", Markup("<i/>"), title='a"b', class_="x", hidden=None)
        == '<p title="a&quot;b" class="x">&lt;b&gt;<i/></p>'
    )
    assert tag("rect", fill_opacity=0.5) == '<rect fill-opacity="0.5"/>'


def test_a_report_without_runs_is_a_page_too(report: Report):
    bare = replace(
        report,
        tables=(),
        scorers=None,
        lengths=(),
        alignments=(),
        ablations=None,
        curves={},
        runs=(),
        shared_facts={},
        not_run=(),
    )
    assert "has what this section needs" in words(ElementTree.fromstring(page(bare)))
