"""Stored runs against the present configuration, source and data."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reproductions import provenance
from reproductions.compose import Job, job
from reproductions.finished import main

Maker = Callable[..., Job]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A finished run of a published row, as far as the check reads it, and an ablation of the user's own."""
    made = job(("experiment=bahdanau/rnnsearch_50", "scale=paper", f"paths.runs={tmp_path}"), None)
    made.folder.mkdir(parents=True)
    record = {"row": "rnnsearch_50", "seed": 1, "ablation": [], "status": "ok", "data_checksum": "of WMT14"}
    hashes = {"config_hash": provenance.config_hash(made.config), "source_hash": provenance.source_hash(made.config)}
    (made.folder / "result.json").write_text(json.dumps(record | hashes))
    mine = made.folder.with_name("rnnsearch_50+mine-s1")
    mine.mkdir()
    (mine / "result.json").write_text(json.dumps(record | {"ablation": ["mine"], "config_hash": "any"}))
    return made.folder / "result.json"


@pytest.mark.parametrize(
    "change", [{}, {"config_hash": "of other sizes"}, {"source_hash": "of another version"}, {"status": "failed"}]
)
def test_a_run_of_anything_else_is_named(
    stored: Path, tmp_path: Path, change: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    stored.write_text(json.dumps(json.loads(stored.read_text()) | change))
    assert main(["paper=bahdanau", "scale=paper", f"runs={tmp_path}"]) == bool(change)
    said = capsys.readouterr().err
    assert said.count("\n") == bool(change) and ("rnnsearch_50-s1" in said) == bool(change)
