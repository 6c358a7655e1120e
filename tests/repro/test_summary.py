"""One table of all papers: what finished, what failed, the verdicts; and an exit code that tells."""

import json
from pathlib import Path

import pytest

from reproductions.summary import main

VERDICTS = """# Results: A

Scale: smoke. Generated.

## Verdicts

| verdict | claim | effect [95%] | held against | basis |
| --- | --- | --- | --- | --- |
| ✓ reproduced | a (T) | +1 | 0 | b |
| ✗ contradicted (one seed) | b (T) | +1 | 0 | b |

## Tables

none
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for paper in ("first", "second"):
        (tmp_path / "reproductions" / paper).mkdir(parents=True)
        (tmp_path / "reproductions" / paper / "published.yaml").touch()
        folder = tmp_path / "runs" / paper / "smoke"
        for row in ("a", "b"):
            (folder / f"{row}-s1").mkdir(parents=True)
            (folder / f"{row}-s1" / "result.json").write_text(json.dumps({"row": row, "status": "ok"}))
        (folder / "RESULTS.md").write_text(VERDICTS, encoding="utf-8")
    return tmp_path


def test_all_is_well(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale=smoke"], root) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == [["first", "2", "0", "1", "1"], ["second", "2", "0", "1", "1"]]


def test_a_failed_row_and_a_missing_report_hide_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = root / "runs" / "first" / "smoke" / "b-s1" / "result.json"
    bad.write_text(json.dumps({"row": "b", "status": "failed", "error": "out of memory"}))
    (root / "runs" / "second" / "smoke" / "RESULTS.md").unlink()
    assert main(["scale=smoke"], root) == 1
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [["first", "1", "1"], ["second", "2", "0"]]
    assert "failed: first/b: out of memory" in err and "failed: second: no report in" in err


def test_a_wrong_argument_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke"]) == 2
    assert "expected scale=small" in capsys.readouterr().err
