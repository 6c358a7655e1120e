"""The generated parts of README.md: verdicts of all papers, and of those that it shows a short table and each claim."""

from __future__ import annotations

from collections.abc import Sequence

from common.report.render import text
from common.report.render.markdown import table
from common.report.stored import StoredResults
from common.report.views import Report

WIDEST = 9
"""Columns of a table that can still be read there."""


def insert_results(readme: str, report: Report, link: str) -> str:
    """Replace what stands between <!-- results:<paper>:start --> and :end, where it shows this paper at all."""
    name = f"results:{report.published.paper}"
    return _between(readme, name, short_results(report, link)) if f"<!-- {name}:" in readme else readme


def insert_matrix(readme: str, results: Sequence[StoredResults]) -> str:
    """Replace what stands between <!-- verdicts:start --> and :end by the number of each verdict, a line a paper."""
    shown = [verdict for verdict in text.SIGNS if any(of.count(verdict) for of in results)]
    rows = [
        [f"[`{of.paper}`](reproductions/{of.paper}/RESULTS.md)", of.scale, *(str(of.count(v) or "") for v in shown)]
        for of in results
    ]
    return _between(readme, "verdicts", table(["claims of", "scale", *(f"{text.SIGNS[v]} {v}" for v in shown)], rows))


def _between(readme: str, name: str, content: str) -> str:
    """Raises ValueError for a missing marker."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    if readme.count(start) != 1 or readme.count(end) != 1 or readme.index(start) > readme.index(end):
        raise ValueError(f"README.md: expected {start} and, below it, {end}, each once")
    before, rest = readme.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{content}\n{end}{after}"


def short_results(report: Report, link: str) -> str:
    """The first table, unless it is too wide, and a line per claim."""
    header, rows = text.grid(report.tables[0])
    verdicts = [
        [text.verdict_text(outcome), outcome.claim.claim, text.effect_text(outcome)] for outcome in report.outcomes
    ]
    parts = [
        f"Scale {report.scale}. {text.data_note(report)}",
        *([table(header, rows)] if len(header) <= WIDEST else []),
        table(["verdict", "claim", "effect [95%]"], verdicts),
        f"Everything else: [{link}]({link}).",
    ]
    return "\n\n".join(parts)
