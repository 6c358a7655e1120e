"""A plugin for the pytest of a changed tree: it writes down each event at once, so that what was known outlives a crash.

Stands alone: it is loaded by its file's name, next to a tree that may be of anything.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

MISTAKES = (SyntaxError, ImportError, NameError, AttributeError, TypeError)
"""Raised by a fault that is badly written rather than by a wrong value: no proof that a test notices anything."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--witness", help="file that the events go to, one JSON object a line")
    parser.addoption("--cpu-seconds", type=int, help="computing time after which the process is ended, by SIGXCPU")


def pytest_configure(config: pytest.Config) -> None:
    limit = config.option.cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    config.pluginmanager.register(Witness(Path(config.option.witness), config.rootpath))


class Witness:
    def __init__(self, file: Path, root: Path) -> None:
        self.file, self.root = file, root

    def _note(self, **event: Any) -> None:
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note(event="start", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.skipped:
            self._note(event=report.outcome, test=report.nodeid)

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """When a test, its set-up or the loading of its file ends in an exception."""
        chain = [call.excinfo.value]
        while chain[-1].__cause__ is not None:  # what an interpreter of kernels wraps
            chain.append(chain[-1].__cause__)
        while isinstance(chain[-1], BaseExceptionGroup):  # hypothesis: several ways to fail, of which one will do
            chain.append(chain[-1].exceptions[0])
        self._note(
            event="error",
            test=node.nodeid,
            during=getattr(report, "when", "collect"),
            error=type(chain[-1]).__name__,
            mistake=any(isinstance(error, MISTAKES) for error in chain),
        )

    def pytest_sessionfinish(self) -> None:
        """Which modules of the tree's own packages came from elsewhere."""
        ours = {path.name for path in self.root.iterdir() if path.is_dir()}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.split(".")[0] in ours and file and not Path(file).is_relative_to(self.root):
                self._note(event="stray", test=name)
