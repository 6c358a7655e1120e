"""python -m reproductions.finished paper=bahdanau scale=small: whether every stored run is that of the present tree.

Compares configuration, source and data of each run of a published row. Exit code 1, and a line a run, where one is not.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from reproductions.compose import job
from reproductions.launcher import finished


def outdated(paper: str, scale: str, runs: Path) -> Iterator[str]:
    for file in sorted((runs / paper / scale).glob("*/result.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        if not result["ablation"]:
            row = (f"experiment={paper}/{result['row']}", f"scale={scale}", f"seed={result['seed']}")
            if not finished(job((*row, f"paths.runs={runs}"), None)):
                yield f"{file.parent}: not of the present configuration, source and data: run it again"


def main(argv: Sequence[str]) -> int:
    given = dict(argument.split("=", 1) for argument in argv)
    problems = list(outdated(given["paper"], given["scale"], Path(given.get("runs", "runs"))))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
