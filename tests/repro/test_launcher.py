"""Several jobs: skipped if finished, one failure hides nothing, the exit code tells."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from reproductions.compose import Job
from reproductions.compose import job as job_of
from reproductions.estimate import announce
from reproductions.launcher import finished, launch, processes, run_row, slots, work

ROOT = Path(__file__).parents[2]

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
    mine = job_of(
        ("experiment=bahdanau/rnnsearch_50", "scale=smoke", "data=files", "data.source_lang=en", "data.target_lang=fr",
         f"paths.runs={tmp_path / 'runs'}", f"data.cache={tmp_path / 'cache'}", *splits), None
    )  # fmt: skip
    assert launch([mine], None) == 3
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
    monkeypatch.setattr("reproductions.launcher.free_memory", lambda: 1e12)
    assert [slots(tiny(f"trainer.threads={n}").config) for n in (1, 2, 4, 8)] == [6, 3, 1, 1]
    assert slots(tiny("trainer=gpu").config) == 1
    monkeypatch.setattr("reproductions.launcher.free_memory", lambda: 9 * 2.0**30)
    assert slots(tiny().config) == 2, "four GiB a row"


def test_a_folder_that_another_process_writes_is_left_alone(
    tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tiny(runs=tmp_path)
    job.folder.mkdir(parents=True)
    with FileLock(job.folder / ".lock"):
        assert work(job) == 1
    assert "written by another process" in capsys.readouterr().err
    assert [path.name for path in job.folder.iterdir()] == [".lock"]


# What a shell starts in the background ignores Ctrl-C, and so does all that it starts: not here.
INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('reproductions.train', run_name='__main__')"
)


def test_ctrl_c_ends_with_130_and_keeps_what_is_there(tiny: Maker, tmp_path: Path) -> None:
    job = tiny("budget.target_tokens=90000", runs=tmp_path)
    command = [sys.executable, "-c", INTERRUPTIBLE, *job.overrides]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    deadline = time.monotonic() + 120
    while not (job.folder / "last.ckpt").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted: finished rows are kept" in said, said[-2000:]
    assert (job.folder / "last.ckpt").exists() and not (job.folder / "result.json").exists()


def test_another_text_under_the_same_name_is_not_finished(tiny: Maker, tmp_path: Path) -> None:
    lines = [f"a b c {i}\tx y z {i}\n" for i in range(40)]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    splits = [f"data.source.splits.{s}={tmp_path / s}.tsv" for s in ("train", "dev", "test")]
    settings = ("experiment=bahdanau/rnnsearch_50", "scale=smoke", "logger=csv", "data=files", "data.source_lang=en",
                "data.target_lang=fr", f"paths.runs={tmp_path / 'runs'}", f"data.cache={tmp_path / 'cache'}",
                "budget.target_tokens=500", "model.hidden=8", *splits)  # fmt: skip
    mine = job_of(settings, None)
    assert work(mine) == 0 and finished(mine)
    (tmp_path / "test.tsv").write_text("".join(reversed(lines)))
    assert not finished(mine)


def test_a_row_runs_in_a_copy_with_its_own_arguments_variables_and_log(tmp_path: Path) -> None:
    """What Lightning starts further processes with, and what a run of its own would see."""
    arguments, log = ["experiment=bahdanau/rnnsearch_50", "scale=smoke", "dry_run=true"], tmp_path / "log.txt"
    job = job_of((*arguments, "model.hidden=4"), None)
    process = processes(wandb=False).Process(target=run_row, args=(arguments, log, {"PATH": "/bin", "MARK": "1"}, job))
    process.start()
    process.join()
    assert process.exitcode == 0 and job.config["label"] in log.read_text()


def test_sources_that_changed_since_they_were_imported_are_noticed(tmp_path: Path) -> None:
    """The file of a module that a sweep has imported is edited while it goes on."""
    script = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import reproductions.mine\n"
        "from reproductions import preloaded; before = preloaded.changed()\n"
        "pathlib.Path(reproductions.mine.__file__).write_text('VALUE = 2'); print(before, preloaded.changed())"
    )
    for package in ("reproductions", "data"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for name in ("reproductions/preloaded.py", "data/code.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "reproductions" / "mine.py").write_text("VALUE = 1")
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path, env={}
    )
    assert said.stdout.split() == ["False", "True"], said.stderr


def test_a_changed_source_is_run_by_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(program: str, words: list[str], variables: dict[str, str]) -> None:
        started.append([program, *words[1:], variables["MARK"]])
        raise SystemExit(0)

    monkeypatch.setattr("os.execve", start)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("reproductions.preloaded.changed", lambda: True)
    monkeypatch.setattr("os.environ", dict(os.environ))
    with pytest.raises(SystemExit):
        run_row(["a=1"], tmp_path / "log.txt", {"MARK": "1"}, job_of(("experiment=bahdanau/rnnsearch_50",), None))
    assert started == [[sys.executable, "-m", "reproductions.train", "a=1", "1"]]


def test_a_row_that_can_not_be_estimated_hides_no_other(
    tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tiny(row="rnnencdec_50", runs=tmp_path), tiny(runs=tmp_path)
    bad.config["model"]["hidden"] = -1
    assert announce([bad, good], 1) == [good, bad]
    assert "no estimate for rnnsearch_50" in capsys.readouterr().out
