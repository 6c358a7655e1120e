"""python -m tests.mutants [words of names or files] [share=1/4]: one line a fault and a summary.

share=1/4: the first of every four faults, 2/4 the second. Exit code 1 if a fault survives or proves nothing, 2 for a name that
is none.
"""

import math
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS
from tests.mutants.process import Outcome, Runner

ROOT = Path(__file__).parents[2]
PARTS = ("common", "conf", "data", "reproductions", "tests", "pyproject.toml")
WORKERS = 2
CPU_SECONDS = 120
"""Of one process, at most. Computing time: a busy machine takes nothing from it."""
IMPORTED = ("hypothesis", "numpy", "torch")
"""Once for all processes: each takes longer than most tests."""
AT_ONCE = 8
"""Tests of the unchanged tree in one process, whose computing time is limited as a fault's is."""

VERDICTS = {"failed": "caught", "crashed": "crash", "passed": "SURVIVES", "broken": "PROVES NOTHING"}


def main(
    words: Sequence[str],
    root: Path = ROOT,
    faults: Sequence[Fault] = FAULTS,
    limit: int = CPU_SECONDS,
    imported: Sequence[str] = IMPORTED,
) -> int:
    """words: only the faults whose name or file holds one of them, and of those a share. limit: computing time of one process,
    in seconds. imported: modules of other packages that the tests have without the time that importing them takes."""
    shares = [re.fullmatch(r"share=([1-9]\d*)/([1-9]\d*)", word) for word in words]
    every = [(int(share[1]) - 1, int(share[2])) for share in shares if share]
    words = [word for word, share in zip(words, shares, strict=True) if not share]
    found = {word: [fault for fault in faults if word in f"{fault.file} {fault.name}"] for word in words}
    if absent := [word for word, some in found.items() if not some]:
        print(
            f"no such fault: {', '.join(absent)}: expected a part of a name or file in tests/mutants/faults",
            file=sys.stderr,
        )
        return 2
    chosen = [fault for fault in faults if not words or any(fault in some for some in found.values())]
    for first, step in every:
        chosen = chosen[first::step]
    if not chosen:
        print(f"no fault left of {len(faults)}: expected a share of as many parts at most", file=sys.stderr)
        return 2
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends, ThreadPoolExecutor(WORKERS) as pool:
        copies = ends.enter_context(closing(Copies(root, Path(folder), limit, imported)))
        tests = sorted({test for fault in chosen for test in fault.tests})
        parts = range(math.ceil(len(tests) / AT_ONCE))
        for outcome in pool.map(copies.run, [tests[n :: len(parts)] for n in parts]):
            if outcome.kind != "passed":
                print(f"the unchanged tree does not pass, so that nothing can be shown: {outcome.detail}")
                return 1
        counts, width = dict.fromkeys(VERDICTS, 0), max(len(fault.name) for fault in chosen)
        for fault, (outcome, seconds) in zip(chosen, pool.map(copies.run_with, chosen), strict=True):
            counts[outcome.kind] += 1
            print(f"{VERDICTS[outcome.kind]:14} {seconds:5.1f} s  {fault.name:{width}}  {outcome.detail}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(chosen)} faults: {counts['failed']} caught, {counts['crashed']} crash their test, {counts['passed']} survive, "
        f"{counts['broken']} prove nothing; {time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
    )
    return 1 if counts["passed"] or counts["broken"] else 0


class Copies:
    """One of the tree for each worker, all the same."""

    def __init__(self, root: Path, folder: Path, limit: int, imported: Sequence[str]) -> None:
        first = folder / "0"
        first.mkdir()
        for part in PARTS:
            if (root / part).is_dir():
                shutil.copytree(root / part, first / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / part).exists():
                shutil.copy(root / part, first)
        others = [Path(shutil.copytree(first, folder / str(n))) for n in range(1, WORKERS)]
        self.runners = [Runner(tree, limit, imported) for tree in (first, *others)]
        self.free: SimpleQueue[Runner] = SimpleQueue()
        for runner in self.runners:
            self.free.put(runner)

    @contextmanager
    def _one(self) -> Iterator[Runner]:
        runner = self.free.get()
        try:
            yield runner
        finally:
            self.free.put(runner)

    def run(self, tests: Sequence[str]) -> Outcome:
        """In the tree as it is."""
        with self._one() as runner:
            return runner.run(tests)

    def run_with(self, fault: Fault) -> tuple[Outcome, float]:
        """In the tree with a fault, and the seconds that it took."""
        with self._one() as runner:
            start, file = time.monotonic(), runner.tree / fault.file
            try:
                changed = fault.applied(runner.tree)
            except ValueError as error:
                return Outcome("broken", f"does not apply: {error}"), 0.0
            before = file.read_bytes()
            try:
                file.write_text(changed, encoding="utf-8")
                return runner.run(fault.tests), time.monotonic() - start
            finally:
                file.write_bytes(before)

    def close(self) -> None:
        for runner in self.runners:
            runner.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
