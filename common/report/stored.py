"""The verdicts that a RESULTS.md holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from common.report.render.text import SIGNS

HEADER = ("verdict", "claim", "effect [95%]", "held against", "basis")


@dataclass(frozen=True)
class Stored:
    """One line of the verdicts. `verdict`: one of `compare`'s; `seeds`: what stands behind it, such as "one seed"."""

    verdict: str
    seeds: str
    claim: str
    effect: str
    held_against: str
    basis: str

    @property
    def shown(self) -> str:
        """As the report shows it."""
        return f"{SIGNS[self.verdict]} {self.verdict}" + (f" ({self.seeds})" if self.seeds else "")


@dataclass(frozen=True)
class StoredResults:
    """A RESULTS.md."""

    paper: str
    title: str
    scale: str
    verdicts: tuple[Stored, ...]

    def count(self, verdict: str) -> int:
        """How many claims have it."""
        return sum(one.verdict == verdict for one in self.verdicts)


def read_stored(file: Path, paper: str) -> StoredResults:
    """Read a paper's RESULTS.md. Raises ValueError where it is not one that a report wrote."""
    text = file.read_text(encoding="utf-8")
    title = re.search(r"^# Results: (.+)$", text, re.MULTILINE)
    scale = re.search(r"^Scale: (\w+)\.", text, re.MULTILINE)
    section = re.search(r"^## Verdicts\n\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    if not (title and scale and section):
        raise ValueError(f"{file}: expected a title, a scale and verdicts, as a report writes them")
    header, _, *rows = (cells(line) for line in section[1].splitlines())
    if header != HEADER:
        raise ValueError(f"{file}: got the columns {', '.join(header)}, expected {', '.join(HEADER)}")
    return StoredResults(paper, title[1], scale[1], tuple(_verdict(row, file) for row in rows))


def read_seconds(file: Path) -> dict[str, float]:
    """Of each run that a RESULTS.md lists, `<row>-s<seed>`: how long it took."""
    lines = (cells(line) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("| "))
    found = {line[0]: re.search(r"\bseconds ([\d.]+)", line[2]) for line in lines if len(line) == 4}
    return {run: float(seconds[1]) for run, seconds in found.items() if seconds and re.fullmatch(r".+-s\d+", run)}


def cells(line: str) -> tuple[str, ...]:
    """Those of a line of a pipe table."""
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])


def _verdict(row: tuple[str, ...], file: Path) -> Stored:
    named = {f"{sign} {verdict}": verdict for verdict, sign in SIGNS.items()}
    shown, _, seeds = row[0].partition(" (")
    if shown not in named or len(row) != len(HEADER):
        raise ValueError(f"{file}: got the verdict {row[0]!r}, expected one of {', '.join(named)}")
    return Stored(named[shown], seeds.removesuffix(")"), *row[1:])
