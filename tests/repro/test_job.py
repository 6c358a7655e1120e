"""Whole jobs: the same numbers twice, after SIGKILL, after NaN; nothing lost."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reproductions.compose import Job
from reproductions.job import resumable, run, write_json
from reproductions.launcher import finished

JobMaker = Callable[..., Job]


def result(job: Job) -> dict[str, Any]:
    return json.loads((job.folder / "result.json").read_text())


def numbers(job: Job) -> dict[str, Any]:
    """All that must not differ between two runs: scores, curves without their speed, every sentence."""
    with (job.folder / "curves.csv").open(newline="") as file:
        curves = [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in csv.DictReader(file)]
    sentences = {path.name: path.read_text() for path in sorted((job.folder / "sentences").iterdir())}
    train = {k: v for k, v in result(job)["train"].items() if "second" not in k}
    return {"metrics": result(job)["metrics"], "train": train, "curves": curves, "sentences": sentences}


def command(job: Job) -> list[str]:
    return [sys.executable, "-m", "reproductions.train", *job.overrides]


@pytest.fixture(scope="module")
def reference(tiny: JobMaker) -> Job:
    job = tiny()
    run(job.config, job.folder, [])
    return job


def test_one_seed_gives_one_result_and_another_seed_another(reference: Job, tiny: JobMaker, tmp_path: Path) -> None:
    again, other = tiny(runs=tmp_path / "again"), tiny("seed=2", runs=tmp_path / "other")
    for job in (again, other):
        run(job.config, job.folder, [])
    assert numbers(again) == numbers(reference)
    assert numbers(other)["curves"] != numbers(reference)["curves"]


def test_a_killed_job_goes_on_and_ends_with_the_same_numbers(reference: Job, tiny: JobMaker, tmp_path: Path) -> None:
    job = tiny(runs=tmp_path / "killed")
    process = subprocess.Popen(command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (job.folder / "last.ckpt").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    update = torch.load(job.folder / "last.ckpt", weights_only=False)["global_step"]
    total = result(reference)["train"]["updates"]
    assert 0 < update < total and update % 5 == 0
    assert not finished(job)
    run(job.config, job.folder, [])
    assert numbers(job) == numbers(reference)


def test_a_checkpoint_of_another_configuration_is_not_continued(tiny: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(b"of an older run")
    write_json(tmp_path / "identity.json", {"config_hash": "a", "source_hash": "b", "data_checksum": "c"})
    assert resumable(tmp_path, {"config_hash": "a", "source_hash": "b", "data_checksum": "c"}) is not None
    assert resumable(tmp_path, {"config_hash": "a", "source_hash": "b", "data_checksum": "d"}) is None
    assert not (tmp_path / "last.ckpt").exists()


def test_a_finished_job_is_known_until_configuration_or_source_change(
    reference: Job, tiny: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Path(reference.config["paths"]["runs"])
    assert finished(reference)
    assert finished(tiny("logger=wandb", runs=runs)), "the logger is no part of a result"
    assert not finished(tiny("fresh=true", runs=runs))
    assert not finished(tiny("seed=3", runs=runs))
    monkeypatch.setattr("reproductions.provenance.source_hash", lambda config: "another")
    assert not finished(reference)


def test_nan_stops_the_run_says_where_and_keeps_the_last_good_checkpoint(
    tiny: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.lit.seq2seq import Diverged, Seq2Seq

    nll = Seq2Seq.nll
    monkeypatch.setattr(
        Seq2Seq, "nll", lambda self, batch: nll(self, batch) * (float("nan") if self.global_step == 7 else 1.0)
    )
    job = tiny()
    with pytest.raises(Diverged, match="at update 8 .* Lower optim"):
        run(job.config, job.folder, [])
    assert result(job)["status"] == "failed" and "update 8" in result(job)["error"]
    saved = torch.load(job.folder / "last.ckpt", weights_only=False)
    assert saved["global_step"] == 5
    assert all(torch.isfinite(w).all() for w in saved["state_dict"].values() if w.is_floating_point())


def test_accumulated_micro_batches_give_the_same_losses(reference: Job, tiny: JobMaker, tmp_path: Path) -> None:
    """Without dropout, whose masks differ, an update in three parts is the update in one."""
    losses = []
    for accumulate in (1, 3):
        job = tiny("model.dropout=0", f"trainer.accumulate={accumulate}", runs=tmp_path / f"a{accumulate}")
        run(job.config, job.folder, [])
        losses.append(
            [(r["update"], r["target_tokens"], float(r["dev_nll"])) for r in numbers(job)["curves"] if r["dev_nll"]]
        )
    for (step, tokens, one), (other_step, other_tokens, three) in zip(*losses, strict=True):
        assert (step, tokens) == (other_step, other_tokens)
        assert three == pytest.approx(one, rel=1e-4)


def test_everything_a_report_reads_is_there(reference: Job) -> None:
    record = result(reference)
    for key in (
        "config_hash",
        "source_hash",
        "data_checksum",
        "git_commit",
        "versions",
        "hardware",
        "seconds",
        "peak_memory_bytes",
        "parameters",
        "command",
    ):
        assert record[key] is not None or key == "git_commit", key
    splits = {path.name: path.read_text().splitlines() for path in (reference.folder / "sentences").iterdir()}
    assert len(splits["test.jsonl"]) == 30 and len(splits["test_long.jsonl"]) == 10
    assert record["train"]["target_tokens"] >= 9000
    assert not (reference.folder / "last.ckpt").exists(), "a finished row needs no checkpoint to resume from"


def test_what_was_finished_before_is_put_aside(tmp_path: Path) -> None:
    for name in ("result.json", "tested.ckpt", "curves.csv"):
        (tmp_path / name).write_text("{}")
    assert resumable(tmp_path, {"config_hash": "new"}) is None
    assert sorted(path.name for path in (tmp_path / "previous").iterdir()) == [
        "curves.csv",
        "result.json",
        "tested.ckpt",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["identity.json", "previous"]
