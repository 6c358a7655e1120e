"""The generated part of README.md: a short table and the verdicts of one paper between two markers."""

from __future__ import annotations

from common.report.render import text
from common.report.render.markdown import table
from common.report.views import Report

WIDEST = 9
"""Columns of a table that can still be read there."""


def insert_results(readme: str, report: Report, link: str) -> str:
    """Replace what stands between <!-- results:<paper>:start --> and :end. Raises ValueError for a missing marker."""
    paper = report.published.paper
    start, end = f"<!-- results:{paper}:start -->", f"<!-- results:{paper}:end -->"
    if readme.count(start) != 1 or readme.count(end) != 1 or readme.index(start) > readme.index(end):
        raise ValueError(f"README.md: expected {start} and, below it, {end}, each once")
    before, rest = readme.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{short_results(report, link)}\n{end}{after}"


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
