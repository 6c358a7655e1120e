"""Whole jobs: the same numbers twice, after SIGKILL, after NaN; nothing lost."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from common.lit.seq2seq import Seq2Seq
from common.lit.training import Diverged
from data.batch import Seq2SeqBatch
from data.pairs import Example
from data.translation import TranslationData
from reproductions.compose import Job
from reproductions.job import resumable, run
from reproductions.launcher import finished
from reproductions.records import write_json

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


def test_what_had_been_learnt_before_nan_can_be_tested(tiny: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a row is to show that it diverges: its weights before update 8, with the update said."""
    nll, before = Seq2Seq.nll, dict[str, torch.Tensor]()

    def struck(self: Seq2Seq, batch: Any) -> torch.Tensor:
        if self.global_step == 7 and self.training:
            before.update({name: weight.clone() for name, weight in self.state_dict().items()})
            return nll(self, batch) * float("nan")
        return nll(self, batch)

    monkeypatch.setattr(Seq2Seq, "nll", struck)
    job = tiny("checkpoint.rule=last", "checkpoint.diverged=test")
    run(job.config, job.folder, [])
    found = result(job)
    assert found["status"] == "ok" and math.isfinite(found["metrics"]["test/perplexity"]["value"])
    facts = found["train"]
    assert (facts["diverged_at"], facts["updates"], facts["tested_update"]) == (8, 7, 7)
    tested = torch.load(job.folder / "tested.ckpt", weights_only=False)["state_dict"]
    assert before and all(torch.equal(tested[name], before[name]) for name in tested)
    with pytest.raises(ValueError, match="diverged: test needs rule: last, .* got average"):
        tiny("checkpoint.rule=average", "checkpoint.diverged=test")


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


def test_what_was_finished_before_is_put_aside_and_a_failure_is_not(tmp_path: Path) -> None:
    for status, kept in (("ok", ["curves.csv", "result.json"]), ("failed", ["curves.csv", "result.json"])):
        (tmp_path / "result.json").write_text(json.dumps({"status": status}))
        (tmp_path / "curves.csv").write_text(status)
        assert resumable(tmp_path, {"config_hash": status}) is None
        assert sorted(path.name for path in (tmp_path / "previous").iterdir()) == kept
        assert (tmp_path / "previous" / "curves.csv").read_text() == "ok"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["identity.json", "previous"]


def test_a_failure_before_training_loses_no_earlier_result(
    tiny: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tiny(runs=tmp_path)
    job.folder.mkdir(parents=True)
    (job.folder / "result.json").write_text('{"status": "ok", "mark": 1}')

    def unreachable(self: TranslationData) -> None:
        raise OSError("no data today")

    monkeypatch.setattr(TranslationData, "prepare", unreachable)
    with pytest.raises(OSError, match="no data today"):
        run(job.config, job.folder, [])
    assert result(job)["status"] == "failed"
    assert json.loads((job.folder / "previous" / "result.json").read_text())["mark"] == 1


def test_fresh_does_not_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(b"of a run that failed")
    write_json(tmp_path / "identity.json", {"config_hash": "a"})
    assert resumable(tmp_path, {"config_hash": "a"}, fresh=True) is None
    assert not (tmp_path / "last.ckpt").exists()


def test_a_checkpoint_knows_the_validation_of_its_update(tiny: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fall on update 5; the job dies at the next one."""
    nll = Seq2Seq.nll

    def dies(self: Seq2Seq, batch: Seq2SeqBatch) -> torch.Tensor:
        if self.global_step == 6 and self.training:
            raise KeyError("died")
        return nll(self, batch)

    monkeypatch.setattr(Seq2Seq, "nll", dies)
    job = tiny("budget.target_tokens=null", "budget.updates=10", "checkpoint.dev_checks=2")
    with pytest.raises(KeyError):
        run(job.config, job.folder, [])
    saved = torch.load(job.folder / "last.ckpt", weights_only=False)
    with (job.folder / "curves.csv").open(newline="") as file:
        checks = [row for row in csv.DictReader(file) if row["dev_nll"]]
    (best,) = [state for name, state in saved["callbacks"].items() if name.startswith("ModelCheckpoint")]
    assert (saved["global_step"], [row["update"] for row in checks]) == (5, ["5"])
    assert float(best["best_model_score"]) == pytest.approx(float(checks[0]["dev_nll"]))
    monkeypatch.setattr(Seq2Seq, "nll", nll)
    run(job.config, job.folder, [])
    with (job.folder / "curves.csv").open(newline="") as file:
        assert [row["update"] for row in csv.DictReader(file) if row["dev_nll"]] == ["5", "10"]


def test_references_that_cannot_be_scored_stop_a_job_before_it_trains(
    tiny: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = TranslationData.examples

    def pieces(self: TranslationData, split: str) -> list[Example]:
        return [replace(example, target="un@@ believable") for example in examples(self, split)]

    monkeypatch.setattr(TranslationData, "examples", pieces)
    job = tiny()
    with pytest.raises(ValueError, match="toy_reverse, references of test: .* subword mark '@@'"):
        run(job.config, job.folder, [])
    assert not (job.folder / "curves.csv").exists()
