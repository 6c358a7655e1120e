"""python -m reproductions.finished paper=bahdanau scale=small: whether every stored run is that of the present tree.

Compares configuration, source and data of each run of a published row. Exit code 1, and a line a run, where one is not.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproductions import provenance
from reproductions.bench import configured
from reproductions.compose import job
from reproductions.launcher import finished
from reproductions.measure import row_config


def outdated(paper: str, scale: str, runs: Path) -> Iterator[str]:
    for file in sorted((runs / paper / scale).glob("*/result.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        if not result["ablation"]:
            fits = measured_now if (file.parent / "samples.json").exists() else trained_now
            if not fits(paper, scale, result, runs):
                yield f"{file.parent}: not of the present configuration, source and data: run it again"


def trained_now(paper: str, scale: str, result: Mapping[str, Any], runs: Path) -> bool:
    row = (f"experiment={paper}/{result['row']}", f"scale={scale}", f"seed={result['seed']}")
    return finished(job((*row, f"paths.runs={runs}"), None))


def measured_now(paper: str, scale: str, result: Mapping[str, Any], runs: Path) -> bool:
    config = configured([f"bench={paper}", f"scale={scale}", f"seed={result['seed']}"])
    now = row_config(config, (), result["row"], config["rows"].get(result["row"], ""))
    hashes = {"config_hash": provenance.config_hash(now), "source_hash": provenance.source_hash(now)}
    return result["status"] == "ok" and all(result[key] == value for key, value in hashes.items())


def main(argv: Sequence[str]) -> int:
    given = dict(argument.split("=", 1) for argument in argv)
    problems = list(outdated(given["paper"], given["scale"], Path(given.get("runs", "runs"))))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
