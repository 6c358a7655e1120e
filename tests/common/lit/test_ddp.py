"""Two processes over gloo against one process with the same global batch."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reproductions.compose import Job
from tests.repro.conftest import TINY

ROOT = Path(__file__).resolve().parents[3]
UPDATES = 20


SPREAD = ("trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true")
AVERAGED = ("checkpoint.rule=average", "checkpoint.average={count: 3, every: 0.1}")
"""The tested weights are made of those of several updates, of which the killed run had seen some."""


def made(runs: Path, cache: Path, *overrides: str) -> Job:
    from reproductions.compose import job

    settings = (
        "experiment=bahdanau/rnnsearch_50", *TINY, "budget.target_tokens=2300", "checkpoint.dev_checks=20", "model.dropout=0",
        f"paths.runs={runs}", f"data.cache={cache}", *overrides,
    )  # fmt: skip
    return job(settings, None)


def command(row: Job) -> list[str]:
    return [sys.executable, "-m", "reproductions.train", *row.overrides]


def dev_losses(row: Job) -> tuple[list[float], dict]:
    """The dev loss after each of 20 updates (about 110 target tokens each), and result.json."""
    subprocess.run(command(row), check=True, cwd=ROOT, timeout=300, capture_output=True)
    with (row.folder / "curves.csv").open(newline="") as file:
        losses = [float(line["dev_nll"]) for line in csv.DictReader(file) if line["dev_nll"]]
    return losses, json.loads((row.folder / "result.json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], dict]:
    return dev_losses(made(tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("cache"), *AVERAGED))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_as_one_and_go_on_where_they_were_killed(
    strategy: str, alone: tuple[list[float], dict], tmp_path: Path
) -> None:
    losses, one = alone
    row = made(tmp_path / "two", tmp_path / "cache", f"trainer={strategy}", *SPREAD, *AVERAGED)
    kill_halfway(row)
    mark = row.folder / "mark"
    mark.touch()
    together, two = dev_losses(row)
    assert mark.exists(), "a training that begins anew clears its folder"
    assert len(losses) >= UPDATES and losses[0] - losses[-1] > 0.05, "something must have been learnt"
    assert together == pytest.approx(losses, rel=1e-5)
    assert two["train"]["target_tokens"] == one["train"]["target_tokens"]
    for name, score in one["metrics"].items():
        assert two["metrics"][name]["value"] == pytest.approx(score["value"], rel=1e-5), name


def kill_halfway(row: Job) -> None:
    """Both processes at once, after a checkpoint and before the end."""
    process = subprocess.Popen(
        command(row), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    progress, until = row.folder / "progress.json", time.monotonic() + 200
    while not (progress.exists() and json.loads(progress.read_text())["done"] >= UPDATES // 2):
        assert process.poll() is None and time.monotonic() < until, "it never came to its half"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (row.folder / "last.ckpt").exists() and not (row.folder / "result.json").exists()
