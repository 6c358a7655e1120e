"""Measurements of other machines: reproductions/<paper>/measured/*.json, shown beside the published figures.

    {"device": "NVIDIA H200", "versions": {"torch": "2.13.0"}, "date": "2026-01-31",
     "rows": [{"label": "triton", "quantity": "forward_ms", "unit": "ms", "at": {"1024": [0.21, ...]},
               "refused": {"65536": "needs 64 GiB"}}]}

`device` is a text or facts about it; every other key beside `rows` is provenance and shown as it stands. `at` and
`refused` are those of samples.json: a list of repeats a point. A row stands beside the published row of the same label,
or of the id that it gives as `row`. A quantity stands beside each published table with columns that read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.report.facts import fact_text
from common.report.medians import Sample, estimate
from common.report.published import Published, PublishedRow, Table
from common.report.samples import Samples, in_order, read_json, samples_of
from common.report.schema import Node
from common.report.views import Cell, ElsewhereView, RowView


@dataclass(frozen=True)
class BenchRow:
    """What was measured of one method. `row`: the id of the published row that it belongs to, or its own label."""

    label: str
    row: str
    quantity: str
    samples: Samples


@dataclass(frozen=True)
class Bench:
    """One file. `facts`: versions, date and whatever else it says of itself."""

    file: Path
    device: str
    facts: Mapping[str, str]
    rows: tuple[BenchRow, ...]


def load_benches(folder: Path) -> list[Bench]:
    """Read every file, by name; an absent or empty folder gives none. Raises ValueError naming file, row and key."""
    return [read_bench(file) for file in sorted(folder.glob("*.json"))]


def read_bench(file: Path) -> Bench:
    """Read one file."""
    node = read_json(file)
    device = node.get("device", (str, Mapping))
    node.child("versions")
    node.text("date")
    rows = tuple(_row(child) for child in node.children("rows"))
    if not rows:
        raise node.error("rows", "expected at least one")
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row.label, row.quantity) in seen:
            raise node.error("rows", f"{row.label!r} has {row.quantity!r} twice, expected once")
        seen.add((row.label, row.quantity))
    others = {key: fact_text(value) for key, value in node.data.items() if key not in ("device", "rows")}
    return Bench(file, fact_text(device), {key: text for key, text in others.items() if text}, rows)


def _row(node: Node) -> BenchRow:
    label = node.text("label")
    row = BenchRow(label, node.text("row", label), node.text("quantity"), samples_of(node))
    node.done()
    return row


def elsewhere_views(published: Published, benches: Sequence[Bench]) -> list[ElsewhereView]:
    """A table per file, quantity and published table that reads it. Raises ValueError for a unit that is not its own."""
    views = []
    for bench in benches:
        for quantity in dict.fromkeys(row.quantity for row in bench.rows):
            rows = [row for row in bench.rows if row.quantity == quantity]
            tables = [t for t in published.tables if any(reading.name == quantity for _, reading in t.quantities)]
            views += [_view(bench, quantity, rows, table) for table in tables or [None]]
    return views


def _view(bench: Bench, quantity: str, rows: Sequence[BenchRow], table: Table | None) -> ElsewhereView:
    columns = {r.point(): (c, r) for c, r in table.quantities if r.name == quantity} if table else {}
    readings = [reading for _, reading in columns.values()]
    factor = readings[0].factor if readings else 1.0
    stated = readings[0].unit if readings else ""
    units = {row.samples.unit for row in rows} | ({stated} if stated and factor == 1 else set())
    if len(units) > 1:
        raise ValueError(
            f"{bench.file}: {quantity}: got units {', '.join(sorted(units))}, expected one and the table's"
        )
    points = in_order([*columns, *(point for row in rows for point in [*row.samples.at, *row.samples.refused])])
    names = {point: column.id for point, (column, _) in columns.items()}
    lines, taken = [], set()
    for row in rows:
        theirs = _published_row(row, table)
        taken.add(theirs.id if theirs else "")
        cells = tuple(_cell(row.samples, factor, theirs, point, names.get(point, "")) for point in points)
        lines.append(RowView(row.row, row.label, 1, "", cells))
    for theirs in table.rows if table else ():
        if theirs.id not in taken and any(name in theirs.values for name in names.values()):
            cells = tuple(Cell(published=theirs.values.get(names.get(point, ""))) for point in points)
            lines.append(RowView(theirs.id, theirs.label, 0, "not measured on this device", cells))
    unit = stated or units.pop()
    return ElsewhereView(bench.file.name, bench.device, bench.facts, quantity, unit, table, tuple(points), tuple(lines))


def _published_row(row: BenchRow, table: Table | None) -> PublishedRow | None:
    return next((other for other in (table.rows if table else ()) if row.row in (other.id, other.label)), None)


def _cell(samples: Samples, factor: float, theirs: PublishedRow | None, point: str, column: str) -> Cell:
    published = theirs.values.get(column) if theirs else None
    if point not in samples.at:
        return Cell(published=published, refused=samples.refused.get(point, ""))
    repeats = np.array(samples.at[point]) * factor
    found = estimate([Sample(((repeats,),), timed=samples.timed)])
    return Cell(found if found.exact or found.se > 0 else found.value, (), published)
