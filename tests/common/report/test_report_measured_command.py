"""The report command on a paper that measures: files of other machines, broken ones, what may be tracked, a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from common.report.render.page import page
from reproductions.report import GitState, make_report, refusals, run
from tests.common.report import measured_runs as planted
from tests.common.report.test_report_browser import BROWSER, PROBE, chromium
from tests.common.report.test_report_elsewhere import BENCH, write

CLEAN = GitState(changed=(), contains=lambda commit: True)


def current(config: object) -> str:
    return planted.HASH


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a paper, its runs and one file of another machine."""
    folder = tmp_path / "reproductions" / "speed"
    planted.paper(folder, [planted.RATIO, planted.EXPONENT])
    planted.whole(tmp_path / "runs")
    write(folder / "measured", BENCH)
    return tmp_path


def test_the_report_is_written_with_what_was_measured_elsewhere(checkout: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["paper=speed"], current, checkout) == 0
    out = checkout / "runs" / "speed" / "small"
    assert "Measured elsewhere, name a big GPU" in (out / "RESULTS.md").read_text()
    assert "<!DOCTYPE html>" in (out / "report.html").read_text()
    assert "gpu.json" in (out / "results.csv").read_text()
    assert "Measured elsewhere" in capsys.readouterr().out


def test_a_broken_file_of_another_machine_is_an_error_that_names_it(checkout: Path, capsys: pytest.CaptureFixture[str]):
    write(checkout / "reproductions" / "speed" / "measured", BENCH | {"date": None})
    assert run(["paper=speed"], current, checkout) == 2
    assert "measured/gpu.json: date: missing, expected text" in capsys.readouterr().err


def test_measured_rows_without_data_can_be_tracked(checkout: Path):
    report = make_report("speed", "small", checkout / "runs", current, checkout)
    assert refusals(report, CLEAN) == []
    folder = checkout / "runs" / "speed" / "small" / "fast-s1"
    record = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(record | {"data_checksum": "d"}))
    report = make_report("speed", "small", checkout / "runs", current, checkout)
    assert refusals(report, CLEAN) == []
    assert not any("different data" in warning for warning in report.warnings)


def test_reports_are_the_same_each_time(checkout: Path, tmp_path: Path):
    for name in ("a", "b"):
        run(["paper=speed", f"out={tmp_path / name}"], current, checkout)
    for file in ("RESULTS.md", "results.csv", "report.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out(checkout: Path, width: int):
    report = make_report("speed", "small", checkout / "runs", current, checkout)
    (checkout / "report.html").write_text(page(report), encoding="utf-8")
    (checkout / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    ran = chromium(checkout, "--dump-dom", "--window-size=1400,1000", f"file://{checkout}/probe.html")
    found = re.search(r"probe (\d+) (\d+) \[(.*?)\]", ran.stdout)
    assert found, ran.stderr
    scroll_width, client_width, outside = found.groups()
    assert (int(client_width), outside) == (pytest.approx(width, abs=20), "")
    assert int(scroll_width) <= int(client_width)
