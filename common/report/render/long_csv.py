"""results.csv: one value a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from common.report.measures import Measure, Quantity, Reading
from common.report.stats import Estimate
from common.report.views import Cell, Report

HEADER = ("paper", "scale", "table", "row", "column", "kind", "seed", "value", "low", "high", "unit", "status")
Line = tuple[str, ...]


def long_csv(report: Report) -> str:
    """Every number in long form.

    `kind`: ours, seed, published, difference, not compared, refused, scorer, length, quantity, elsewhere, against base, claim.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    measured = (_quantities(report), _elsewhere(report))
    for lines in (_tables(report), _scorers(report), _lengths(report), *measured, _ablations(report), _claims(report)):
        for line in lines:
            writer.writerow((report.published.paper, report.scale, *line))
    return buffer.getvalue()


def _value(value: Estimate | float | str | None) -> Line:
    if isinstance(value, Estimate):
        return repr(value.value), repr(value.low), repr(value.high)
    return ("" if value is None else str(value)), "", ""


def _unit(reading: Reading | None) -> str:
    return reading.about.unit if isinstance(reading, Measure) else reading.unit if isinstance(reading, Quantity) else ""


def _cell(where: Line, cell: Cell, unit: str, note: str) -> Iterator[Line]:
    for kind, value in (("ours", cell.ours), ("published", cell.published), ("difference", cell.difference)):
        if value is not None:
            yield (*where, kind, "", *_value(value), unit, note)
    if cell.refused:
        yield (*where, "refused", "", *_value(None), unit, cell.refused)
    if cell.unlike:
        yield (*where, "not compared", "", *_value(None), unit, cell.unlike)
    for seed, value in cell.seeds:
        yield (*where, "seed", str(seed), *_value(value), unit, note)


def _tables(report: Report) -> Iterator[Line]:
    for view in report.tables:
        for row in view.rows:
            for column, cell in zip(view.columns, row.cells, strict=True):
                unit = view.units.get(column.id) or _unit(column.ours)
                yield from _cell((view.table.id, row.id, column.id), cell, unit, row.note)


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


def _quantities(report: Report) -> Iterator[Line]:
    """Figures over points that are in no table."""
    for view in (view for view in report.quantities if not view.in_table):
        for line in view.lines:
            for x, estimate in line.points:
                yield (view.table.id, line.row, f"{x:g}", "quantity", "", *_value(estimate), view.unit, view.quantity)
            for x, value in line.published:
                yield (view.table.id, line.row, f"{x:g}", "published", "", *_value(value), view.unit, view.quantity)
            for point, reason in line.refused:
                yield (view.table.id, line.row, point, "refused", "", *_value(None), view.unit, reason)


def _elsewhere(report: Report) -> Iterator[Line]:
    """Of each file: what it measured. The published numbers beside it are those of the tables."""
    for view in report.elsewhere:
        table = f"{view.source}:{view.table.id}" if view.table else view.source
        for row in view.rows:
            for point, cell in zip(view.points, row.cells, strict=True):
                where = (table, row.label, f"{view.quantity} {point}")
                if cell.ours is not None:
                    yield (*where, "elsewhere", "", *_value(cell.ours), view.unit, view.device)
                if cell.refused:
                    yield (*where, "refused", "", *_value(None), view.unit, cell.refused)


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
            outcome.unit,
            outcome.verdict,
        )
