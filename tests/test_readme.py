"""The README's commands, run as they stand in a copy of the tree; the long ones are only planned."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from common.report.render.readme import insert_matrix
from reproductions.report import stored_results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()
]
# the environment these tests run in, in place of one made anew
HERE = [f"PY={sys.executable}", "READY="]


def make(command: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "make", f"the README shows {command!r}: only make is run here"
    full = [*words, *HERE, *options]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "ARGS"}
    return subprocess.run(full, cwd=folder, env=own, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with space")
    for name in (
        "Makefile",
        "common",
        "conf",
        "data",
        "reproductions",
        "README.md",
        "pyproject.toml",
        "requirements.lock",
    ):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    yaml_block = re.search(r"`my_conf/ablation/mine.yaml`:\n\n( +)```yaml\n(.*?)```", README, re.DOTALL)
    assert yaml_block
    (folder / "my_conf" / "ablation").mkdir(parents=True)
    (folder / "my_conf" / "ablation" / "mine.yaml").write_text(dedent(yaml_block[1] + yaml_block[2].lstrip()))
    return folder


PACKAGES = [
    line.split("#")[0].strip()
    for path in sorted((ROOT / "reproductions").glob("*/README.md"))
    for block in re.findall(r"```bash\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


@pytest.mark.parametrize("command", [*COMMANDS, *PACKAGES])
def test_every_command_is_a_target(command: str) -> None:
    planned = make(command, ROOT, "--dry-run")
    assert planned.returncode == 0, planned.stderr


def test_a_wrong_target_would_be_noticed() -> None:
    assert make("make repro-bahdanua", ROOT, "--dry-run").returncode != 0


LONG = ("make repro-bahdanau", "make test", "make plan BUDGET=15m", "make repro-all")
"""And what is at paper scale. Each has tests of its own."""


def test_commands_run_one_after_the_other(copy: Path) -> None:
    """As a newcomer types them, but for those that take long."""
    for command in COMMANDS:
        if command in LONG or "SCALE=paper" in command:
            continue
        done = make(command, copy)
        assert done.returncode == 0, done.stdout + done.stderr
        words = shlex.split(command)
        if words[1].startswith("repro-") and words[-1].startswith("ARGS="):
            line = words[-1][5:].split()[-1].removeprefix("ablation=")
            assert f"RNNsearch-50+{line}" in done.stdout
        told = {"verify": "as it was", "choose": "front", "doctor": "nothing wrong found"}
        assert told.get(words[1], "") in done.stdout


def test_the_verdicts_shown_are_those_of_the_stored_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert insert_matrix(text, stored_results()) == text


def test_the_python_example_runs() -> None:
    """As it stands; the last query of each head sees itself and the 128 keys before it."""
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(block, names)  # noqa: S102 - the README is ours
    q, k, v, out = (names[name].double() for name in ("q", "k", "v", "out"))
    weights = (q[0, :, -1:] @ k[0, :, -129:].mT / 8).softmax(-1)
    torch.testing.assert_close(out[0, :, -1:], weights @ v[0, :, -129:], atol=1e-5, rtol=1e-5)


def test_targets_named_in_the_text_exist() -> None:
    named = set(re.findall(r"`make ([a-z-]+)", README))
    assert {"help", "translate", "setup", "dry-run-bahdanau"} <= named
    for target in named - {"repro-<paper>", "results-<paper>"}:
        if not target.endswith("-"):
            assert make(f"make {target} RUN=x BUDGET=1m", ROOT, "--dry-run").returncode == 0, target
