"""Rows as jobs of a cluster: through submitit on this machine, and the script that SLURM would get."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from reproductions.cluster import adopt_ranks
from reproductions.compose import Job
from reproductions.train import main
from tests.repro.conftest import TINY

ROOT = Path(__file__).parents[2]
ROWS = "experiment=bahdanau/rnnsearch_50,bahdanau/rnnencdec_50"


def test_rows_run_as_jobs_and_one_that_fails_hides_no_other(
    tiny: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second row's folder is another's, as of a process that still writes into it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    good, other = (tiny(row=row, runs=tmp_path / "runs") for row in ("rnnsearch_50", "rnnencdec_50"))
    other.folder.mkdir(parents=True)
    settings = [o for o in good.overrides if not o.startswith("experiment=")]
    with FileLock(other.folder / ".lock"):
        assert main(["-m", ROWS, *settings, "hydra/launcher=submitit_local"]) == 1
    assert json.loads((good.folder / "result.json").read_text())["status"] == "ok"
    assert f"failed: {other.folder}" in capsys.readouterr().err
    assert not (other.folder / "result.json").exists()


SBATCH = """#!{python}
import shutil, sys
shutil.copy(sys.argv[-1], {script!r})
print("Submitted batch job 7")
"""


def test_two_nodes_of_eight_gpus_for_a_row(tmp_path: Path) -> None:
    """What is handed to sbatch; the stand-in for it keeps the script and runs nothing."""
    script = tmp_path / "script.sh"
    for name, text in (("sbatch", SBATCH.format(python=sys.executable, script=str(script))), ("srun", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    of_slurm = ("nodes=2", "tasks_per_node=8", "gpus_per_node=8", "partition=long", "timeout_min=600")
    process = subprocess.Popen(
        [
            sys.executable,
            *(
                "-m",
                "reproductions.train",
                "-m",
                "experiment=bahdanau/rnnsearch_50",
                *TINY,
                f"paths.runs={tmp_path}/runs",
            ),
            *("trainer=ddp", "trainer.num_nodes=2", "trainer.devices=8", "hydra/launcher=submitit_slurm"),
            *(f"hydra.launcher.{setting}" for setting in of_slurm),
        ],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until = time.monotonic() + 60
        while not script.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.2)
    finally:
        process.kill()
        _, error = process.communicate()
    assert script.exists(), error.decode()
    asked = dict(re.findall(r"#SBATCH --([\w-]+)=(\S+)", script.read_text()))
    assert {key: asked[key] for key in ("nodes", "ntasks-per-node", "gpus-per-node", "partition", "time")} == {
        "nodes": "2", "ntasks-per-node": "8", "gpus-per-node": "8", "partition": "long", "time": "600",
    }  # fmt: skip
    assert "srun" in script.read_text() and "submitit.core._submit" in script.read_text()


@pytest.mark.parametrize(("environment", "expected"), [
    ({"SLURM_STEP_ID": "0", "SLURM_LOCALID": "3", "SLURM_NODEID": "1"}, ("3", "1")),
    ({"SLURM_LOCALID": "0", "SLURM_NODEID": "0"}, (None, None)),
    ({"LOCAL_RANK": "2", "GROUP_RANK": "1"}, ("2", "1")),
    ({"LOCAL_RANK": "1", "NODE_RANK": "4", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}, ("1", "4")),
], ids=["srun", "the script around srun", "torchrun", "given already"])  # fmt: skip
def test_a_process_knows_its_rank(
    environment: Mapping[str, str], expected: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NODEID")
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in names} | dict(environment))
    adopt_ranks()
    assert (os.environ.get("LOCAL_RANK"), os.environ.get("NODE_RANK")) == expected


def test_a_launcher_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "experiment=bahdanau/rnnsearch_50", "scale=smoke", "hydra/launcher=submitit_slrum"]) == 2
    assert "submitit_slrum" in capsys.readouterr().err
