"""reproductions/<paper>/published.yaml: the numbers a paper prints, where, and how comparable they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.report.measures import SCALES, SCORERS, SUBSETS, Measure, Quantity, Reading, read_reading
from common.report.schema import Node, load_yaml, near

EVIDENCE = ("read", "quoted", "recalled")
TARGET_EVIDENCE = ("read", "quoted")
PLOTS = ("length", "alignment", "heads", "quantity")


@dataclass(frozen=True)
class Column:
    """One column. `ours` says how our value is read; None where we measure nothing.

    `digits`: decimals; None for three significant figures, as times and bytes range widely. `scorer`: the kind of the
    one that the published values name, its own or its table's; empty where it is not stated, and not looked at.
    """

    id: str
    label: str
    ours: Reading | None
    digits: int | None
    scorer: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """One row: `values` by column id, numbers or text. `not_run`: why there is no run of ours behind it."""

    id: str
    label: str
    values: Mapping[str, float | str]
    not_run: str | None


@dataclass(frozen=True)
class Plot:
    """A figure drawn from our results in place of a published figure; `quantity`: what one of that kind shows."""

    kind: str
    rows: tuple[str, ...]
    split: str
    subset: str
    quantity: str = ""


@dataclass(frozen=True)
class Table:
    """A published table or figure. Absolute values are compared only at the scales `comparable_at`, to `tolerance`."""

    id: str
    title: str
    caption: str
    metric: str
    protocol: str
    evidence: str
    source: str
    notes: str
    comparable: str
    comparable_at: tuple[str, ...]
    tolerance: float | None
    columns: tuple[Column, ...]
    rows: tuple[PublishedRow, ...]
    plot: Plot | None
    not_run: str | None

    def row(self, row_id: str) -> PublishedRow | None:
        """The row of that id, or None."""
        return next((row for row in self.rows if row.id == row_id), None)

    @property
    def measured(self) -> bool:
        """Whether any column has a value of ours."""
        return any(column.ours for column in self.columns)

    @property
    def quantities(self) -> list[tuple[Column, Quantity]]:
        """Columns of repeated measurements, with what they read."""
        return [(column, column.ours) for column in self.columns if isinstance(column.ours, Quantity)]


@dataclass(frozen=True)
class Published:
    """All that a paper prints, as far as it was read."""

    paper: str
    title: str
    authors: tuple[str, ...]
    year: int
    arxiv: str
    venue: str
    tables: tuple[Table, ...]
    recipe: Mapping[str, Any]
    notes: tuple[str, ...]
    file: Path

    def table(self, table_id: str) -> Table:
        """The table of that id. Raises ValueError with near matches."""
        for table in self.tables:
            if table.id == table_id:
                return table
        raise self._error(table_id, f"no such table, {near(table_id, [t.id for t in self.tables])}")

    def value(self, table_id: str, row_id: str, column_id: str) -> float:
        """One published number. Raises ValueError where there is none, or its evidence does not make it a target."""
        table = self.table(table_id)
        place = f"{table_id}.{row_id}.{column_id}"
        if table.evidence not in TARGET_EVIDENCE:
            raise self._error(place, f"evidence {table.evidence!r}: a target needs {' or '.join(TARGET_EVIDENCE)}")
        row = table.row(row_id)
        if row is None:
            raise self._error(place, f"no such row, {near(row_id, [r.id for r in table.rows])}")
        value = row.values.get(column_id)
        if not isinstance(value, float):
            numbers = [key for key, other in row.values.items() if isinstance(other, float)]
            raise self._error(place, f"expected a number, got {value!r}; numbers of this row: {', '.join(numbers)}")
        return value

    @property
    def rows_of_others(self) -> list[str]:
        """Rows that are another paper's, named `<paper>/<row>`."""
        return list(dict.fromkeys(row.id for table in self.tables for row in table.rows if of_another_paper(row.id)))

    def has_row(self, row_id: str) -> bool:
        """Whether any table has that row."""
        return any(table.row(row_id) for table in self.tables)

    def _error(self, place: str, message: str) -> ValueError:
        return ValueError(f"{self.file}: {place}: {message}")


def of_another_paper(row: str) -> bool:
    """Whether a row is another paper's, `<paper>/<row>`."""
    return "/" in row


def load_published(path: Path) -> Published:
    """Read and check a published.yaml. Raises ValueError naming file, key and what is expected.

    A table with a column per point may say `points: {quantity, at: [...], unit?, factor?, digits?}` in place of, or
    after, its `columns`; its rows then hold `points: [...]`, a value for each, null where none is printed. A table, or
    a column of it, may name the `scorer` of its values: only ours of the same kind are then compared with them.
    """
    node = load_yaml(path)
    published = Published(
        paper=node.text("paper"),
        title=node.text("title"),
        authors=node.texts("authors"),
        year=node.get("year", int),
        arxiv=node.text("arxiv"),
        venue=node.text("venue"),
        tables=tuple(_table(child) for child in node.children("tables")),
        recipe=node.child("recipe", {}).data,
        notes=node.texts("notes", ()),
        file=path,
    )
    node.done()
    ids = [table.id for table in published.tables]
    if len(set(ids)) != len(ids):
        raise node.error("tables", f"ids must differ, got {', '.join(ids)}")
    return published


def _table(node: Node) -> Table:
    points = _points(node.child("points")) if "points" in node.data else ()
    node.read.add("points")
    columns_node = node.child("columns", {}) if points else node.child("columns")
    scorer = node.choice("scorer", SCORERS, "")
    columns = (*(_column(columns_node, key, scorer) for key in columns_node.data), *points)
    if len({column.id for column in columns}) < len(columns):
        raise node.error("points", "a point is a column already: their names must differ")
    rows_node = node.child("rows")
    table = Table(
        id=node.text("id"),
        title=node.text("title"),
        caption=node.text("caption"),
        metric=node.text("metric", ""),
        protocol=node.text("protocol", ""),
        evidence=node.choice("evidence", EVIDENCE),
        source=node.text("source"),
        notes=node.text("notes", ""),
        comparable=node.text("comparable", ""),
        comparable_at=node.texts("comparable_at", ()),
        tolerance=node.number("tolerance", None),
        columns=columns,
        rows=tuple(_row(rows_node.child(key), key, columns, points) for key in rows_node.data),
        plot=_plot(node.child("plot"), tuple(rows_node.data)) if "plot" in node.data else None,
        not_run=node.text("not_run", None),
    )
    node.read.add("plot")
    node.done()
    for scale in table.comparable_at:
        if scale not in SCALES:
            raise node.error("comparable_at", f"got {scale!r}, {near(scale, SCALES)}")
    if not (table.measured or table.plot or table.not_run):
        raise node.error(
            "not_run", "missing: a table without a column of ours and without a plot must say why it is not run"
        )
    if table.plot and (unknown := [row for row in table.plot.rows if table.plot.quantity and not table.row(row)]):
        raise node.error("plot.rows", f"got {unknown[0]!r}, {near(unknown[0], [row.id for row in table.rows])}")
    return table


def _points(node: Node) -> tuple[Column, ...]:
    """A column for each point that a quantity is measured at, named by it."""
    at, digits = node.texts("at"), node.get("digits", int, None)
    reading = read_reading(Node({**node.data, "at": at[0] if at else None}, node.file, node.place))
    node.read.update(("quantity", "unit", "factor"))
    node.done()
    if not isinstance(reading, Quantity) or not at:
        raise node.error("at", "expected a list of points of a quantity")
    return tuple(Column(point, point, replace(reading, at=(point,)), digits) for point in at)


def _column(parent: Node, key: str, scorer: str) -> Column:
    node = parent.child(key)
    ours_node = node.child("ours") if "ours" in node.data else None
    ours = read_reading(ours_node) if ours_node else None
    if ours_node:
        ours_node.done()
    if isinstance(ours, Quantity) and len(ours.at) != 1:
        raise node.error("ours.at", f"expected one point, got {list(ours.at)}")
    default = ours.about.digits if isinstance(ours, Measure) else None if isinstance(ours, Quantity) else 2
    digits = node.get("digits", int, default)
    column = Column(key, node.text("label"), ours, digits, node.choice("scorer", SCORERS, scorer))
    node.read.add("ours")
    node.done()
    return column


def _row(node: Node, key: str, columns: tuple[Column, ...], points: tuple[Column, ...]) -> PublishedRow:
    values: dict[str, float | str] = {}
    if points and "points" in node.data:
        listed = node.get("points", list)
        if len(listed) != len(points):
            raise node.error("points", f"expected {len(points)} values, one per point or null, got {len(listed)}")
        node = Node(
            {**dict(zip([column.id for column in points], listed, strict=True)), **node.data}, node.file, node.place
        )
        node.read.add("points")
    for column in columns:
        value = node.get(column.id, (int, float, str), None)
        if value is not None:
            values[column.id] = value if isinstance(value, str) else float(value)
    row = PublishedRow(key, node.text("label"), values, node.text("not_run", None))
    node.done()
    return row


def _plot(node: Node, rows: tuple[str, ...]) -> Plot:
    """A plot; one of a quantity shows every row of its table unless it names some."""
    kind = node.choice("kind", PLOTS)
    if kind == "quantity":
        plot = Plot(kind, node.texts("rows", rows), "", "", node.text("quantity"))
    else:
        plot = Plot(kind, node.texts("rows"), node.text("split", "test"), node.choice("subset", SUBSETS, "all"))
    node.done()
    return plot
