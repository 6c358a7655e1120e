"""Tests run in a copy of the tree, in a process of their own, and what came of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STANDALONE = tuple(Path(__file__).with_name(name) for name in ("loader.py", "witness.py"))
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


@dataclass(frozen=True)
class Outcome:
    """kind: "passed"; "failed", a test did; "crashed", the process did in a test; or "broken": nothing was tested."""

    kind: str
    detail: str


class Runner:
    """Runs tests in a tree, each time in a fresh copy of one process that has imported some modules: see `loader`."""

    def __init__(self, tree: Path, cpu_seconds: int, imported: Sequence[str]) -> None:
        self.tree, self.cpu_seconds = tree, cpu_seconds
        self.beside = tempfile.TemporaryDirectory()
        for file in STANDALONE:
            shutil.copy(file, self.beside.name)
        self.loader = subprocess.Popen(
            [sys.executable, str(Path(self.beside.name, "loader.py")), *imported],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(),
        )  # fmt: skip

    def run(self, tests: Sequence[str]) -> Outcome:
        """The tests one by one until the first that fails."""
        events, output = (Path(self.beside.name, name) for name in ("events", "output"))
        events.write_text("")
        arguments = ["-q", "-x", "--tb=line", "-p", "witness", "-p", "no:cacheprovider", f"--witness={events}"]
        arguments += [f"--cpu-seconds={self.cpu_seconds}", *tests]
        asked = {"tree": str(self.tree), "arguments": arguments, "output": str(output)}
        assert self.loader.stdin is not None and self.loader.stdout is not None
        print(json.dumps(asked), file=self.loader.stdin, flush=True)
        code = int(self.loader.stdout.readline())
        noted = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
        told = output.read_text(encoding="utf-8", errors="replace").splitlines()
        return judge(code, noted, next((line for line in told if line.startswith("ERROR")), ""))

    def close(self) -> None:
        self.loader.communicate()
        self.beside.cleanup()


def judge(code: int, events: list[dict[str, Any]], told: str = "") -> Outcome:
    """code: of the process; events: as `witness` writes them; told: what pytest itself complained of."""
    named: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        named.setdefault(event["event"], []).append(event)
    at = short(named["start"][-1]["test"]) if "start" in named else "no test"
    if "stray" in named:
        return Outcome("broken", f"{named['stray'][0]['test']} was not loaded from the copy")
    if code < 0:
        name = signal.Signals(-code).name
        if -code in CRASHES and "start" in named:
            return Outcome("crashed", f"{at} ({name})")
        return Outcome("broken", f"ended by {name} in {at}")
    if "error" in named:
        error = named["error"][0]
        where = short(error["test"]) + ("" if error["error"] == "AssertionError" else f" ({error['error']})")
        if error["during"] != "call":
            return Outcome("broken", f"{error['during']} of {where}")
        return Outcome("broken", f"a mistake in {where}") if error["mistake"] else Outcome("failed", where)
    if "skipped" in named:
        return Outcome("broken", f"{short(named['skipped'][0]['test'])} is skipped")
    if code == 0 and "passed" in named:
        return Outcome("passed", f"all {len(named['passed'])} tests")
    return Outcome("broken", f"pytest ended with {code}: {told}")


def short(test: str) -> str:
    """Without its folders."""
    file, *rest = test.split("::", 1)
    return "::".join([Path(file).name, *rest])


def _environment() -> dict[str, str]:
    """Without what would lead to modules of another tree or to other options, and without pytest's plugins, which none of
    these tests needs and which take longer to load than most tests run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    # No bytecode: a file that is changed twice a second within the same size would be taken from it unchanged.
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
