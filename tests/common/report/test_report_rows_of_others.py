"""Rows of other papers, read under their full names."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from common.report.results import load_results
from reproductions.report import GitState, refusals


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


def test_they_may_be_of_older_sources_and_other_data(tmp_path: Path) -> None:
    """As the results of their own package may: the commit stands beside them. The paper's own rows may not."""
    record(tmp_path, "first", "base", 1)
    record(tmp_path, "mine", "row", 1)
    other = json.loads((tmp_path / "mine/small/row-s1/result.json").read_text()) | {"data_checksum": "another"}
    (tmp_path / "mine/small/row-s1/result.json").write_text(json.dumps(other))

    def reasons(current: str) -> list[str]:
        results = load_results(tmp_path, "mine", "small", lambda config: current, ["first/base"])
        table = Namespace(rows=[Namespace(id="row", not_run=None)], row=lambda name: name, title="both")
        report: Any = Namespace(results=results, published=Namespace(tables=[table]))
        return refusals(report, GitState((), lambda commit: True))

    assert reasons("now") == []
    assert reasons("moved") == ["row-s1: made by another version of the sources: run it again"]
