"""Rows of other papers, read under their full names."""

import json
from pathlib import Path

from common.report.results import load_results


def record(root: Path, paper: str, row: str, seed: int) -> None:
    run = root / paper / "small" / f"{row}-s{seed}"
    run.mkdir(parents=True)
    facts = {
        "paper": paper, "row": row, "label": f"{paper} {row}", "seed": seed, "scale": "small", "status": "ok", "ablation": [],
        "metrics": {}, "config_hash": "c", "source_hash": "now", "data_checksum": "d", "git_commit": "0f1e", "git_dirty": False,
        "seconds": 3.0,
    }  # fmt: skip
    (run / "result.json").write_text(json.dumps(facts))


def test_rows_of_two_papers_with_the_same_name(tmp_path: Path) -> None:
    for paper, seed in (("mine", 1), ("first", 1), ("first", 2), ("second", 1)):
        record(tmp_path, paper, "base", seed)
    record(tmp_path, "first", "other", 1)
    asked = ("first/base", "second/base", "second/missing", "third/base")
    found = load_results(tmp_path, "mine", "small", lambda config: "now", asked)
    assert {name: (row.label, len(row.ok)) for name, row in found.rows.items()} == {
        "base": ("mine base", 1), "first/base": ("first base", 2), "second/base": ("second base", 1),
    }  # fmt: skip
    assert {run.row for run in found.rows["first/base"].runs} == {"first/base"}
    assert found.papers == list(found.rows.values())  # none is taken for an ablation
    assert [name for name in load_results(tmp_path, "mine", "small", lambda config: "now").rows] == ["base"]
