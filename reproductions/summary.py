"""python -m reproductions.summary scale=small [runs=runs]: one table of all papers, after make repro-all.

Rows that finished and failed, and the verdicts that each paper's report gives. Exit code 1 if a row failed or a paper has no
report.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from common.report.render.text import SIGNS
from common.report.stored import read_stored
from reproductions.report import ROOT

HEADER = ("paper", "finished", "failed", *SIGNS.values())


def of_paper(folder: Path, paper: str) -> tuple[list[str], list[str]]:
    """Its line, and what is wrong with it, from the folder of its runs."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*/result.json"))]
    failed = [f"{paper}/{record['row']}: {record['error']}" for record in records if record["status"] != "ok"]
    counts = [paper, str(len(records) - len(failed)), str(len(failed))]
    report = folder / "RESULTS.md"
    if not report.is_file():
        return [*counts, *("" for _ in SIGNS)], [*failed, f"{paper}: no report in {folder}"]
    verdicts = read_stored(report, paper)
    return [*counts, *(str(verdicts.count(verdict) or "") for verdict in SIGNS)], failed


def summary(papers: Sequence[str], scale: str, runs: Path) -> tuple[str, list[str]]:
    """The table, and what is wrong."""
    lines, wrong = [list(HEADER)], list[str]()
    for paper in papers:
        line, of_one = of_paper(runs / paper / scale, paper)
        lines.append(line)
        wrong += of_one
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    shown = ("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)
    legend = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
    return "\n".join([*shown, legend]), wrong


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    if len(given) < len(argv) or given.keys() - {"scale", "runs"}:
        print(f"error: got {' '.join(argv)!r}, expected scale=small [runs=runs]", file=sys.stderr)
        return 2
    papers = sorted(file.parent.name for file in (root / "reproductions").glob("*/published.yaml"))
    table, wrong = summary(papers, given.get("scale", "small"), Path(given.get("runs", root / "runs")))
    print(table)
    for line in wrong:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
