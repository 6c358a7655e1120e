"""python -m reproductions.plan budget=15m [scale=small] [papers=bahdanau,luong] [runs=runs]

Which tables of trained rows this machine can run in a time, and which claims they decide. Tables are timed on it, a few
updates of each model, the quickest first by what their stored runs took, until the time is spent; rows that are finished cost
nothing. Beside each claim that they decide stands its power: how likely an effect as large as the paper's (or as the threshold)
is seen, if the interval is as wide as the stored one.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import NormalDist

from common.report.claims import Claim, load_claims
from common.report.measures import SCALES
from common.report.published import load_published
from common.report.schema import near
from common.report.stats import LEVEL
from common.report.stored import Stored, read_seconds, read_stored
from reproductions.compose import Job, jobs_of
from reproductions.estimate import duration, estimates, makespan, model_key
from reproductions.launcher import slots, unfinished
from reproductions.report import ROOT

UNITS = {"s": 1, "m": 60, "h": 3600}
HOPELESS = 4
"""A table that took so many times the budget where its results were stored is not timed here."""


@dataclass(frozen=True)
class Planned:
    """A table, the jobs that are left of it, and their seconds."""

    paper: str
    table: str
    rows: tuple[str, ...]
    jobs: tuple[Job, ...]
    seconds: float


def seconds_of(text: str) -> float:
    """15m, 90s, 2h. Raises ValueError for anything else."""
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)):
        raise ValueError(f"budget={text}: expected a number and s, m or h, such as 15m")
    return float(found[1]) * UNITS[found[2]]


def tables_of(paper: str, root: Path = ROOT) -> list[str]:
    return sorted(file.stem for file in (root / "conf" / "table").glob(f"{paper}_*.yaml"))


def candidates(papers: Sequence[str], scale: str, runs: Path, root: Path = ROOT) -> Iterator[tuple[float, str, str]]:
    """Seconds that its rows took where results were stored, paper, table; infinite for one of which none is stored."""
    for paper in papers:
        file = root / "reproductions" / paper / "RESULTS.md"
        stored = read_seconds(file) if file.is_file() and scale == "small" else {}
        for table in tables_of(paper, root):
            rows = {
                job.config["row"] for job in jobs_of((f"table={table}", f"scale={scale}", f"paths.runs={runs}"), None)
            }
            known = [stored[f"{row}-s1"] for row in rows if f"{row}-s1" in stored]
            yield sum(known) / len(known) * len(rows) if known else float("inf"), paper, table


def plan(papers: Sequence[str], scale: str, runs: Path, budget: float) -> Iterator[Planned]:
    """Tables that fit, one after the other; a row that an earlier one has costs nothing in a later one."""
    left, taken = budget, set[Path]()
    for took, paper, table in sorted(candidates(papers, scale, runs)):
        jobs = jobs_of((f"table={table}", f"scale={scale}", f"paths.runs={runs}"), None)
        side_by_side = slots(jobs[0].config)
        if took < float("inf") and took / side_by_side > HOPELESS * budget:
            continue
        pending = [job for job in unfinished(jobs) if job.folder not in taken]
        times = estimates(pending)
        order = sorted(pending, key=lambda job: -times[model_key(job)])
        needed = makespan(order, times, side_by_side)
        if needed <= left:
            left -= needed
            taken |= {job.folder for job in pending}
            yield Planned(paper, table, tuple(job.config["row"] for job in jobs), tuple(pending), needed)


def power(claim: Claim, stored: Stored | None) -> float | None:
    """Of a two-sided test at the level of the intervals, if the effect is the published one, or the threshold.

    None where the stored results hold no interval for it, or where equality is claimed.
    """
    target = claim.target.value if claim.target else claim.threshold
    interval = re.search(r"\[(−?[\d.]+), (−?[\d.]+)\]", stored.effect) if stored else None
    if target is None or interval is None or claim.margin is not None or target == claim.null:
        return None
    low, high = (float(number.replace("−", "-")) for number in interval.groups())
    effect = target - claim.null
    if claim.kind == "ratio":
        low, high, effect = log(low), log(high), log(target / claim.null)
    normal = NormalDist()
    bound = normal.inv_cdf(1 - LEVEL / 2)
    error = (high - low) / (2 * bound)
    return normal.cdf(abs(effect) / error - bound) if error else 1.0


def decided(paper: str, scale: str, rows: set[str], root: Path = ROOT) -> Iterator[tuple[Claim, float | None]]:
    """The claims that these rows decide, each with its power."""
    folder = root / "reproductions" / paper
    claims = load_claims(folder / "claims.yaml", load_published(folder / "published.yaml")).claims
    file = folder / "RESULTS.md"
    results = read_stored(file, paper) if file.is_file() else None
    stored = {one.claim: one for one in results.verdicts} if results and results.scale == scale else {}
    for claim in claims:
        if set(claim.rows) <= rows and scale not in claim.not_testable:
            yield claim, power(claim, stored.get(f"{claim.claim} ({claim.place})"))


def main(argv: Sequence[str]) -> int:
    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    known = sorted(
        file.parent.name for file in (ROOT / "reproductions").glob("*/published.yaml") if tables_of(file.parent.name)
    )
    try:
        if len(given) < len(argv) or given.keys() - {"budget", "scale", "papers", "runs"} or "budget" not in given:
            raise ValueError(f"got {' '.join(argv)!r}, expected budget=15m [scale=small] [papers=...] [runs=runs]")
        budget, scale = seconds_of(given["budget"]), given.get("scale", "small")
        papers = given["papers"].split(",") if "papers" in given else known
        for name, value, choices in (*(("papers", paper, known) for paper in papers), ("scale", scale, SCALES)):
            if value not in choices:
                raise ValueError(f"{name}={value}: {near(value, choices)}")
        _print(list(plan(papers, scale, Path(given.get("runs", "runs")), budget)), scale)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _print(tables: Sequence[Planned], scale: str) -> None:
    total = 0.0
    for one in tables:
        total += one.seconds
        print(
            f"{one.table}: {len(one.jobs)} of {len(one.rows)} rows to run, {duration(one.seconds)}: make repro-{one.paper} TABLE={one.table}"
        )
    for paper in dict.fromkeys(one.paper for one in tables):
        rows = {row for one in tables if one.paper == paper for row in one.rows}
        for claim, chance in decided(paper, scale, rows):
            print(f"  {paper}: {claim.claim} power {'unknown' if chance is None else f'{chance:.2f}'}")
    print(f"together {duration(total)}" if tables else "no table fits")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
