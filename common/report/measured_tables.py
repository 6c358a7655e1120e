"""Cells, notes and figures of measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.report.effects import Missing
from common.report.measures import Quantity
from common.report.published import Plot, Published, Table
from common.report.quantities import by_seed, points_of, refusal, samples_of, unit_of, value_at
from common.report.results import Results, Row
from common.report.samples import number_of
from common.report.stats import Estimate
from common.report.views import Cell, QuantityLine, QuantityView


def quantity_cell(row: Row, reading: Quantity) -> Cell:
    """The median with its interval, or the reason of a refusal; without an interval where a time was taken once."""
    point = reading.point()
    try:
        found = value_at(row, reading).estimate
    except Missing:
        return Cell(refused=refusal(row, reading, point))
    return Cell(found if found.exact or found.se > 0 else found.value, by_seed(row, reading, point))


def runs_of(table: Table, row: Row | None) -> int:
    """Finished runs that measured a quantity of the table."""
    names = {name for _, reading in table.quantities for name in samples_of(row, reading)} if row else set()
    return len(names)


def missing_runs(table: Table, row: Row | None, scale: str) -> str:
    """Why a row of a table of measurements alone has no value of ours; empty where it has one, or has failed."""
    if row is None:
        return f"no run at scale {scale}"
    if not row.ok or runs_of(table, row) or any(c.ours and not isinstance(c.ours, Quantity) for c in table.columns):
        return ""
    return f"its runs have not measured {', '.join(dict.fromkeys(reading.name for _, reading in table.quantities))}"


def partly_refused(table: Table, row: Row | None) -> list[str]:
    """Points that one run of a row refused and another measured."""
    told: list[str] = []
    if row is None:
        return told
    for column, reading in table.quantities:
        reason = refusal(row, reading, reading.point())
        if reason and reading.point() in points_of(row, reading):
            told.append(f"{column.label} refused in another run: {reason}")
    return told


def units(table: Table, results: Results) -> dict[str, str]:
    """The unit of each measured column. Raises ValueError where rows disagree."""
    rows = [row for published in table.rows if (row := results.rows.get(published.id))]
    return {column.id: unit_of(rows, reading) for column, reading in table.quantities}


def quantity_view(table: Table, plot: Plot, results: Results, published: Published) -> QuantityView | None:
    """A quantity against its points for the rows of a plot; None where no row of ours has it at a point with a size."""
    reading = next((r for _, r in table.quantities if r.name == plot.quantity), Quantity(plot.quantity))
    lines = []
    for name in plot.rows:
        row, named = results.rows.get(name), table.row(name)
        assert named is not None
        points = _points(row, reading) if row else ()
        beside = published_points(name, reading, [table, *published.tables])
        refused = {point: reason for point, reason in _refused(row, reading)} if row else {}
        if points or beside:
            label = row.label if row else named.label
            lines.append(QuantityLine(name, label, points, beside, tuple(refused.items())))
    if not any(line.points for line in lines):
        return None
    rows = [row for name in plot.rows if (row := results.rows.get(name))]
    return QuantityView(table, plot.quantity, unit_of(rows, reading), tuple(lines))


def _points(row: Row, reading: Quantity) -> tuple[tuple[float, Estimate], ...]:
    """(point, estimate) wherever both have a logarithm."""
    numbers = [(point, number) for point in points_of(row, reading) if (number := number_of(point)) is not None]
    found = [(number, value_at(row, replace(reading, at=(point,))).estimate) for point, number in numbers]
    return tuple((number, estimate) for number, estimate in found if estimate.value > 0)


def _refused(row: Row, reading: Quantity) -> list[tuple[str, str]]:
    return [item for samples in samples_of(row, reading).values() for item in samples.refused.items()]


def published_points(row: str, reading: Quantity, tables: Sequence[Table]) -> tuple[tuple[float, float], ...]:
    """What the first table that prints a row of the same quantity, in the same unit, has for it: (point, value)."""
    for table in tables:
        values = named.values if (named := table.row(row)) else {}
        found = [
            (number, value)
            for column, other in table.quantities
            if (other.name, other.factor) == (reading.name, reading.factor)
            and (number := number_of(other.point())) is not None
            and isinstance(value := values.get(column.id), float)
            and value > 0
        ]
        if found:
            return tuple(sorted(found))
    return ()
