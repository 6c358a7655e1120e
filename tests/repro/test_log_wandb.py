"""Offline W&B runs, read back from disk as W&B itself would send them."""

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from common.report.published import load_published
from reproductions.compose import Job
from reproductions.dashboard import shared_keys
from reproductions.job import run
from reproductions.log_measured import log_measured
from reproductions.log_wandb import log_published, log_table, mode
from tests.common.report.fake_runs import FakeRuns

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def records(file: Path) -> Iterator[bytes]:
    """A .wandb file is a log in LevelDB's format: blocks of 32 KiB, records with a header of CRC, length and type.

    Up to the first that is not there as a whole: W&B's own process may still be writing it.
    """
    data, position, parts = file.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        if kind == 0 or position + 7 + length > len(data):
            return
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def read_back(file: Path) -> dict[str, Any]:
    """Run header, history and last summary of a .wandb file."""
    found: dict[str, Any] = {"history": [], "summary": {}, "exit": None}
    for data in records(file):
        record: Any = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
        record.ParseFromString(data)
        if record.HasField("run"):
            found["run"] = record.run
        elif record.HasField("history"):
            found["history"].append(
                {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            )
        elif record.HasField("summary"):
            for item in record.summary.update:
                found["summary"][item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
        elif record.HasField("exit"):
            found["exit"] = record.exit.exit_code
    return found


def offline_runs(folder: Path) -> list[dict[str, Any]]:
    """Of finished runs: W&B's own process may still be writing when `finish` returns, on a busy machine for a while."""
    deadline = time.monotonic() + 30
    while True:
        found = [read_back(file) for file in sorted(folder.glob("**/wandb/offline-run-*/*.wandb"))]
        if all(run["exit"] is not None for run in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_a_row_leaves_history_summary_and_table(tiny: Callable[..., Job]) -> None:
    job = tiny("logger=wandb")
    subprocess.run([sys.executable, "-m", "reproductions.train", *job.overrides], check=True, timeout=300, cwd=ROOT)
    (found,) = offline_runs(job.folder)
    result = json.loads((job.folder / "result.json").read_text())
    assert found["run"].project == "attention-reproductions"
    assert found["run"].run_group == "bahdanau/Table 1"
    assert found["run"].display_name == f"{job.config['row']}-s1"
    assert set(found["run"].tags) == {"smoke", "ablation"}
    curves = [row for row in found["history"] if "dev_nll" in row]
    assert len(curves) == job.config["checkpoint"]["dev_checks"]
    assert found["summary"]["test/bleu"] == result["metrics"]["test/bleu"]["value"]
    assert any(row.get("test/sentences._type") == "table-file" for row in found["history"])
    assert any(row.get("test/lengths._type") == "table-file" for row in found["history"])
    assert found["exit"] == 0, "finished, so the next job does not write into it"
    published = load_published(ROOT / "reproductions" / "bahdanau" / "published.yaml")
    keys = shared_keys(published)
    assert "test/bleu" in keys and set(keys) <= set(found["summary"]), "what the dashboard draws is logged"


def test_keys_of_other_packages_are_those_of_scores() -> None:
    """luong: perplexity is read from result.json, and logged as the score that it is; transformer: counts of parameters."""
    for paper, key in (("luong", "test/perplexity"), ("transformer", "parameters")):
        assert key in shared_keys(load_published(ROOT / "reproductions" / paper / "published.yaml"))


def test_a_job_leaves_no_run_open_and_the_next_has_one_of_its_own(tiny: Callable[..., Job]) -> None:
    for seed in (1, 2):
        job = tiny("logger=wandb", f"seed={seed}", "budget.target_tokens=1500")
        run(job.config, job.folder, [])
        assert wandb.run is None
        (found,) = offline_runs(job.folder)
        assert found["run"].display_name == f"{job.config['row']}-s{seed}" and found["exit"] == 0


def test_what_was_measured_is_a_run_with_its_medians_and_a_chart_a_quantity(tmp_path: Path) -> None:
    places = {}
    for label, factor in (("A", 1.0), ("B", 10.0)):
        places[label] = tmp_path / label
        places[label].mkdir()
        at = {"8": [factor, 3 * factor, 2 * factor], "16": [4 * factor], "fp16": [5 * factor]}
        samples = {"time_ms": {"unit": "ms", "at": at}, "size": {"unit": "M", "at": {"all": [factor]}}}
        (places[label] / "samples.json").write_text(json.dumps(samples))
    logger = {"kind": "wandb", "project": "made-up", "mode": "offline"}
    config = {"paper": "made_up", "seed": 3, "scale": {"name": "small"}, "logger": logger}
    log_measured(config, tmp_path / "all", places)
    (found,) = offline_runs(tmp_path / "all")
    assert found["run"].run_group == "made_up/measured" and found["run"].display_name == "measured-s3"
    assert {k: v for k, v in found["summary"].items() if "/" in k} == {
        "A/time_ms/8": 2.0, "A/time_ms/16": 4.0, "A/time_ms/fp16": 5.0, "A/size/all": 1.0,
        "B/time_ms/8": 20.0, "B/time_ms/16": 40.0, "B/time_ms/fp16": 50.0, "B/size/all": 10.0,
    }  # fmt: skip
    logged = {key.partition("_table")[0] for row in found["history"] for key in row if not key.startswith("_")}
    assert logged == {"time_ms"} and found["exit"] == 0


def test_published_numbers_are_runs_of_their_own_with_our_keys(tmp_path: Path) -> None:
    log_published("bahdanau", "smoke", tmp_path, "attention-reproductions", "auto")
    log_published("bahdanau", "smoke", tmp_path, "attention-reproductions", "auto")
    runs = {run["run"].display_name: run for run in offline_runs(tmp_path)}
    star = runs["published-rnnsearch_50_star"]
    assert star["summary"]["test/bleu"] == 28.45 and star["summary"]["test.no_unk/bleu"] == 36.15  # Table 1
    assert star["summary"]["train/dev_nll"] == 35.2  # Table 2
    assert star["summary"]["train/updates"] == pytest.approx(6.67e5), "in our unit, not in the paper's 1e5"
    assert all("published" in run["run"].tags for run in runs.values())
    assert len(runs) == len(offline_runs(tmp_path)), "the second call has nothing to add"


def test_the_table_of_a_sweep_is_a_run_with_the_cells_of_the_report(tmp_path: Path) -> None:
    FakeRuns(tmp_path, seeds=(1,), sizes={"test": 20, "test_long": 20}).build()
    log_table("bahdanau", "small", tmp_path, "attention-reproductions", "auto")
    (found,) = offline_runs(tmp_path / "bahdanau" / "small")
    assert (found["run"].display_name, set(found["run"].tags)) == ("bahdanau-small-report", {"small", "report"})
    (logged,) = found["history"]
    assert {logged["table._type"], logged["claims._type"]} == {"table-file"}
    (file,) = (tmp_path / "bahdanau" / "small").glob("wandb/offline-run-*/files/media/table/table_*.json")
    table = json.loads(file.read_text())
    row = next(row for row in table["data"] if row[0].startswith("RNNsearch-50*"))
    assert any("28.45" in str(cell) for cell in row), "Table 1, published"
    assert len(table["data"]) >= 5


@pytest.mark.parametrize("setting", ["online", "offline"])
def test_neither_hangs_nor_asks_without_a_network(tmp_path: Path, setting: str) -> None:
    code = (
        "from pathlib import Path; from reproductions.log_wandb import start; import wandb;"
        f"run = start('p', {setting!r}, Path({str(tmp_path)!r})); run.log({{'x': 1.5}}); wandb.finish()"
    )
    environment = {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT, stdin=subprocess.DEVNULL, env=environment
    )
    (found,) = offline_runs(tmp_path)
    assert [row["x"] for row in found["history"]] == [1.5]


def test_auto_is_offline_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mode("auto") == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode("auto") == "online" and mode("offline") == "offline"
