"""Workspaces and reports as code, without a network: whole specifications, and what to do with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from reproductions.dashboard import PLACEHOLDER, main
from reproductions.report import stored_results


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def found(node: Any, key: str) -> list[Any]:
    """Every value under a key."""
    if isinstance(node, dict):
        return [*([node[key]] if key in node else []), *(one for value in node.values() for one in found(value, key))]
    return [one for value in node for one in found(value, key)] if isinstance(node, list) else []


def test_without_a_key_specifications_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"out={tmp_path / 'out'}"]) == 0
    assert "wandb login" in capsys.readouterr().out
    results = stored_results()
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(results)
    for of in results:
        for kind in ("workspace", "report"):
            text = (tmp_path / "out" / f"{of.paper}.{kind}.json").read_text(encoding="utf-8")
            spec = json.loads(text)
            written = "".join(str(one) for one in [*found(spec, "content"), *found(spec, "value")])
            assert all(one.claim.replace("|", "\\|") in written for one in of.verdicts), (of.paper, kind)
            assert f"{of.paper}" in json.dumps([*found(spec, "filters"), *found(spec, "filterString")]), (
                of.paper,
                kind,
            )
    report = json.loads((tmp_path / "out" / "bahdanau.report.json").read_text(encoding="utf-8"))
    assert report["project"] == {"name": "attention-reproductions", "entityName": PLACEHOLDER}
    panels = json.dumps(report["spec"]["blocks"])
    assert '"test/bleu"' in panels and '"test_long/lengths"' in panels and "wandb/line/v0" in panels


def test_one_paper_of_ones_own_project(tmp_path: Path) -> None:
    assert main(["papers=mqa_gqa", "entity=me", "project=mine", f"out={tmp_path}"]) == 0
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["mqa_gqa.report.json", "mqa_gqa.workspace.json"]
    spec = json.loads((tmp_path / names[0]).read_text(encoding="utf-8"))
    assert spec["project"] == {"name": "mine", "entityName": "me"}
    assert "sample_ms_table" in json.dumps(spec)


@pytest.mark.parametrize("argv", [["papers=mqa"], ["paper=mqa_gqa"], ["mqa_gqa"]])
def test_wrong_arguments_are_explained(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "expected papers= of bahdanau" in capsys.readouterr().err
