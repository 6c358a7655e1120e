"""Several jobs: skipped if finished, one failure hides nothing, the exit code tells."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reproductions.compose import Job
from reproductions.launcher import launch, slots, work

Maker = Callable[..., Job]


def test_a_failing_job_hides_no_other_and_the_second_call_runs_only_what_is_missing(
    tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tiny("trainer.precision=nonsense", runs=tmp_path)
    good = tiny(row="rnnencdec_50", runs=tmp_path)
    assert launch([broken, good], None) == 1
    said = capsys.readouterr()
    assert "nonsense" in said.err and str(broken.folder) in said.err
    assert "2 jobs" in said.out and "on this machine" in said.out and "toy_reverse" in said.out
    assert json.loads((good.folder / "result.json").read_text())["status"] == "ok"
    assert json.loads((broken.folder / "result.json").read_text())["status"] == "failed"
    stamp = (good.folder / "result.json").stat().st_mtime_ns
    assert launch([good], None) == 0
    assert (good.folder / "result.json").stat().st_mtime_ns == stamp
    assert capsys.readouterr().out == f"finished before: {good.folder}\n"


def test_data_that_cannot_be_had_is_one_message_before_any_job(
    tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\n")
    pair = f"[{tmp_path / 'a.en'},{tmp_path / 'a.fr'}]"
    splits = [f"data.source.splits.{s}={pair}" for s in ("train", "dev", "test")]
    from reproductions.compose import job

    mine = job(
        ("experiment=bahdanau/rnnsearch_50", "scale=smoke", "data=files", "data.source_lang=en", "data.target_lang=fr",
         f"paths.runs={tmp_path / 'runs'}", f"data.cache={tmp_path / 'cache'}", *splits), None
    )  # fmt: skip
    assert launch([mine], None) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "a.en" in error and "a.fr" in error and error.count("\n") == 1
    assert not (mine.folder / "result.json").exists()


def test_a_job_on_its_own_ends_with_1_and_one_line(
    tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tiny("trainer.precision=nonsense", runs=tmp_path)
    assert work(broken) == 1
    error = capsys.readouterr().err
    assert "rnnsearch_50" in error and "nonsense" in error
    assert "Traceback" in (broken.folder / "error.txt").read_text()


def test_jobs_share_the_cores(tiny: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert [slots(tiny(f"trainer.threads={n}").config) for n in (1, 2, 4, 8)] == [6, 3, 1, 1]
    assert slots(tiny("trainer=gpu").config) == 1
