"""results.csv: one value a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from common.report.measures import Field, Reading
from common.report.stats import Estimate
from common.report.views import Cell, Report

HEADER = ("paper", "scale", "table", "row", "column", "kind", "seed", "value", "low", "high", "unit", "status")
Line = tuple[str, ...]


def long_csv(report: Report) -> str:
    """Every number in long form. `kind`: ours, seed, published, difference, scorer, length, against base, claim."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    for lines in (_tables(report), _scorers(report), _lengths(report), _ablations(report), _claims(report)):
        for line in lines:
            writer.writerow((report.published.paper, report.scale, *line))
    return buffer.getvalue()


def _value(value: Estimate | float | str | None) -> Line:
    if isinstance(value, Estimate):
        return repr(value.value), repr(value.low), repr(value.high)
    return ("" if value is None else str(value)), "", ""


def _unit(reading: Reading | None) -> str:
    return "" if reading is None or isinstance(reading, Field) else reading.about.unit


def _cell(where: Line, cell: Cell, unit: str, note: str) -> Iterator[Line]:
    for kind, value in (("ours", cell.ours), ("published", cell.published), ("difference", cell.difference)):
        if value is not None:
            yield (*where, kind, "", *_value(value), unit, note)
    for seed, value in cell.seeds:
        yield (*where, "seed", str(seed), *_value(value), unit, note)


def _tables(report: Report) -> Iterator[Line]:
    for view in report.tables:
        for row in view.rows:
            for column, cell in zip(view.columns, row.cells, strict=True):
                yield from _cell((view.table.id, row.id, column.id), cell, _unit(column.ours), row.note)


def _scorers(report: Report) -> Iterator[Line]:
    for row in report.scorers.rows if report.scorers else ():
        for metric, cell in zip(report.scorers.metrics if report.scorers else (), row.cells, strict=True):
            yield ("scorers", row.id, metric.name, "scorer", "", *_value(cell.ours), metric.unit, "")


def _lengths(report: Report) -> Iterator[Line]:
    for view in report.lengths:
        for metric, series in view.panels:
            for line in series:
                for (low, high, _), (_, estimate) in zip(view.bins, line.points, strict=True):
                    status = "control" if line.control else ""
                    name = f"{metric.name} {low}-{high}"
                    yield (view.table.id, line.row, name, "length", "", *_value(estimate), metric.unit, status)


def _ablations(report: Report) -> Iterator[Line]:
    if report.ablations is None:
        return
    for line in report.ablations.lines:
        for column, cell, difference in zip(report.ablations.columns, line.row.cells, line.differences, strict=True):
            where = ("ablations", line.row.id, column.id)
            yield from _cell(where, cell, _unit(column.ours), line.overrides)
            yield (*where, "against base", "", *_value(difference), _unit(column.ours), line.overrides)


def _claims(report: Report) -> Iterator[Line]:
    for outcome in report.outcomes:
        rows = " ".join(outcome.claim.rows)
        yield (
            "claims",
            rows,
            outcome.claim.id,
            "claim",
            "",
            *_value(outcome.effect),
            outcome.claim.unit,
            outcome.verdict,
        )
