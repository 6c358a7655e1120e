"""Two processes over gloo against one process with the same global batch."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from reproductions.compose import Job
from tests.repro.conftest import TINY

ROOT = Path(__file__).resolve().parents[3]
UPDATES = 20


def dev_losses(runs: Path, cache: Path, *overrides: str) -> tuple[list[float], dict]:
    """The dev loss after each of 20 updates (about 110 target tokens each), and result.json."""
    from reproductions.compose import job

    settings = (
        "experiment=bahdanau/rnnsearch_50", *TINY, "budget.target_tokens=2300", "checkpoint.dev_checks=20", "model.dropout=0",
        f"paths.runs={runs}", f"data.cache={cache}", *overrides,
    )  # fmt: skip
    made: Job = job(settings, None)
    command = [sys.executable, "-m", "reproductions.train", *settings]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300, capture_output=True)
    with (made.folder / "curves.csv").open(newline="") as file:
        losses = [float(row["dev_nll"]) for row in csv.DictReader(file) if row["dev_nll"]]
    return losses, json.loads((made.folder / "result.json").read_text())


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    alone, one = dev_losses(tmp_path / "one", tmp_path / "cache")
    spread = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true")
    together, two = dev_losses(tmp_path / "two", tmp_path / "cache", *spread)
    assert len(alone) >= UPDATES and alone[0] - alone[-1] > 0.05, "something must have been learnt"
    assert together == pytest.approx(alone, rel=1e-5)
    assert two["train"]["target_tokens"] == one["train"]["target_tokens"]
    for name, score in one["metrics"].items():
        assert two["metrics"][name]["value"] == pytest.approx(score["value"], rel=1e-5), name
