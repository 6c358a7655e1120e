"""Measurements of other machines: read with clear errors, shown beside the published figures with where they come from."""

from __future__ import annotations

import copy
import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from common.report.elsewhere import load_benches
from common.report.render.long_csv import long_csv
from common.report.render.markdown import markdown
from common.report.render.page import page
from common.report.render.terminal import terminal
from common.report.stats import Estimate
from common.report.views import ElsewhereView, Report
from tests.common.report.measured_runs import RATIO, make_report

FAST: dict[str, Any] = {
    "label": "Fast",
    "quantity": "forward_ms",
    "unit": "ms",
    "at": {"128": [0.02, 0.021, 0.022], "4096": [0.5, 0.51, 0.52]},
    "refused": {"65536": "needs 64 GiB"},
}
SPEED: dict[str, Any] = {"label": "kernel", "quantity": "speed", "unit": "TFLOP/s", "at": {"1024": [400, 410, 405]}}
BENCH: dict[str, Any] = {
    "device": {"name": "a big GPU", "memory": "80 GB"},
    "versions": {"torch": "2.13.0", "triton": "3.6"},
    "date": "2026-01-31",
    "clocks": {"sm_mhz": 1980},
    "rows": [FAST, SPEED],
}


def made(root: Path, *rows: dict[str, Any], **changes: Any) -> Report:
    write(root / "paper" / "measured", BENCH | ({"rows": list(rows)} if rows else {}) | changes)
    return make_report(root, RATIO)


def write(folder: Path, content: dict[str, Any], name: str = "gpu.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return folder / name


def test_no_folder_and_an_empty_one_show_nothing(tmp_path: Path):
    assert load_benches(tmp_path / "measured") == []
    (tmp_path / "paper" / "measured").mkdir(parents=True)
    report = make_report(tmp_path, RATIO)
    assert report.elsewhere == ()
    assert "elsewhere" not in markdown(report) + page(report) + terminal(report) + long_csv(report)


def row(view: ElsewhereView, label: str) -> dict[str, Any]:
    line = next(line for line in view.rows if line.label == label)
    return dict(zip(view.points, line.cells, strict=True))


def test_what_was_measured_stands_beside_what_was_published(tmp_path: Path):
    beside, alone = made(tmp_path).elsewhere
    assert beside.table is not None and beside.table.id == "table_1"
    assert beside.points == ("128", "256", "512", "1024", "4096", "65536")
    cells = row(beside, "Fast")
    assert isinstance(cells["128"].ours, Estimate) and cells["128"].ours.value == 0.021
    assert (cells["128"].published, cells["128"].difference) == (0.4, None)
    assert cells["256"].ours is None and cells["256"].published == 0.8
    assert cells["65536"].refused == "needs 64 GiB"
    assert row(beside, "Plain")["1024"].published == 32.0
    assert (alone.table, alone.unit, alone.points) == (None, "TFLOP/s", ("1024",))


def test_a_row_may_name_the_published_row_it_belongs_to(tmp_path: Path):
    view = made(tmp_path, {**FAST, "label": "our kernel", "row": "fast"}).elsewhere[0]
    assert row(view, "our kernel")["128"].published == 0.4
    assert [line.label for line in view.rows] == ["our kernel", "Plain", "Other"]


def test_where_the_numbers_come_from_is_told(tmp_path: Path):
    report = made(tmp_path)
    told = "measured/gpu.json: versions: torch 2.13.0, triton 3.6; date: 2026-01-31; clocks: sm_mhz 1980."
    assert told in markdown(report) and told in page(report)
    title = "Measured elsewhere, name a big GPU, memory 80 GB: forward_ms (ms), beside Table 1"
    assert f"### {title}" in markdown(report) and title in terminal(report)
    ElementTree.fromstring(page(report))


def test_every_renderer_has_the_values(tmp_path: Path):
    report = made(tmp_path)
    line = next(line for line in markdown(report).splitlines() if line.startswith("| Fast | 0.0210 ["))
    assert "refused: needs 64 GiB" in line and "| 0.4 |" in line
    assert "refused: needs 64 GiB" in page(report) and "405" in terminal(report)
    rows = list(csv.DictReader(io.StringIO(long_csv(report))))
    found = [r for r in rows if r["kind"] == "elsewhere" and r["column"] == "speed 1024"]
    assert [(r["table"], r["row"], r["value"], r["unit"]) for r in found] == [
        ("gpu.json", "kernel", "405.0", "TFLOP/s")
    ]
    assert float(found[0]["low"]) < 405 < float(found[0]["high"])


def test_the_factor_of_the_table_is_applied(tmp_path: Path):
    memory = {"label": "Fast", "quantity": "memory", "unit": "bytes", "at": {"128": [2e9]}}
    [view] = made(tmp_path, memory).elsewhere
    cell = row(view, "Fast")["128"]
    assert isinstance(cell.ours, Estimate) and cell.ours.exact
    assert (cell.ours.value, cell.published, view.unit) == (pytest.approx(2.0), 0.5, "GB")


def test_a_file_a_table(tmp_path: Path):
    write(tmp_path / "paper" / "measured", BENCH | {"device": "another", "rows": [FAST]}, "b.json")
    views = made(tmp_path).elsewhere
    assert [(view.source, view.device) for view in views] == [
        ("b.json", "another"),
        ("gpu.json", "name a big GPU, memory 80 GB"),
        ("gpu.json", "name a big GPU, memory 80 GB"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": None}, "device: missing"),
        ({"device": 3}, "device: expected text, got int 3"),
        ({"versions": "2.13"}, "versions: expected a mapping, got str '2.13'"),
        ({"date": None}, "date: missing, expected text"),
        ({"rows": None}, "rows: missing, expected a list"),
        ({"rows": []}, "rows: expected at least one"),
        ({"rows": [3]}, "rows[0]: expected a mapping of keys, got int 3"),
        ({"rows": [{**FAST, "label": None}]}, "rows[0].label: missing, expected text"),
        ({"rows": [{**FAST, "quantity": 1}]}, "rows[0].quantity: expected text, got int 1"),
        ({"rows": [FAST, {**FAST, "at": {"128": 3.0}}]}, "rows[1].at.128: expected a list, got float 3.0"),
        ({"rows": [{**FAST, "refusd": {}}]}, "rows[0].refusd: unknown key, did you mean refused?"),
        ({"rows": [FAST, FAST]}, "rows: 'Fast' has 'forward_ms' twice, expected once"),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, changes: dict[str, Any], message: str):
    file = write(tmp_path, copy.deepcopy(BENCH) | changes)
    with pytest.raises(ValueError) as error:
        load_benches(tmp_path)
    assert str(error.value).startswith(f"{file}: {message}")


def test_a_file_that_is_no_json_is_named(tmp_path: Path):
    (tmp_path / "half.json").write_text('{"device"')
    with pytest.raises(ValueError, match=r"half\.json: not valid JSON"):
        load_benches(tmp_path)


def test_units_must_be_those_of_the_table(tmp_path: Path):
    with pytest.raises(ValueError, match=r"gpu\.json: forward_ms: got units ms, s, expected one and the table's"):
        made(tmp_path, {**FAST, "unit": "s"})
