"""What a report shows, as plain data: each renderer draws the same views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.report.compare import Outcome
from common.report.heads import Heads
from common.report.measures import Metric
from common.report.published import Column, Published, Table
from common.report.results import Results
from common.report.sentences import Alignment
from common.report.stats import Estimate


@dataclass(frozen=True)
class Cell:
    """One value of ours beside the published one. `seeds`: (seed, value) behind `ours`.

    `difference` is ours - published; `within`: whether it is inside the table's tolerance, None where not comparable.
    `refused`: why there is no value of ours; `unlike`: why none is taken from the published one.
    """

    ours: Estimate | float | str | None = None
    seeds: tuple[tuple[int, float], ...] = ()
    published: float | str | None = None
    difference: Estimate | float | None = None
    within: bool | None = None
    refused: str = ""
    unlike: str = ""


@dataclass(frozen=True)
class RowView:
    """One line of a table: `note` says what is special about it (failed, stale, not run and why)."""

    id: str
    label: str
    seeds: int
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TableView:
    """A published table with our values. By column id: `counts`, sentences behind it; `units` of a measured one."""

    table: Table
    columns: tuple[Column, ...]
    rows: tuple[RowView, ...]
    counts: Mapping[str, int]
    comparable: bool
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether it holds repeated measurements."""
        return bool(self.table.quantities)

    @property
    def unit(self) -> str:
        """The unit that all columns of ours share; empty where they differ."""
        ours = {self.units.get(column.id, "") for column in self.columns if column.ours is not None}
        return ours.pop() if len(ours) == 1 else ""

    def has_published(self, index: int) -> bool:
        """Whether the paper prints this column for any row."""
        return any(row.cells[index].published is not None for row in self.rows)

    def printed_digits(self, index: int) -> int:
        """Decimals of the published column: as many as its most exact value has, so that 6.00 stands below 8.46."""
        values = [row.cells[index].published for row in self.rows]
        return max([len(f"{v:.6f}".rstrip("0").split(".")[1]) for v in values if isinstance(v, float)], default=0)

    def has_difference(self, index: int) -> bool:
        """Whether any row has a difference to show in this column, or a reason why there is none."""
        return any(row.cells[index].difference is not None or row.cells[index].unlike for row in self.rows)


@dataclass(frozen=True)
class ScorersView:
    """The same hypotheses under each scorer. `signatures` go with `metrics`; `truncated` hypotheses by row label."""

    metrics: tuple[Metric, ...]
    signatures: tuple[str, ...]
    rows: tuple[RowView, ...]
    truncated: Mapping[str, int]


@dataclass(frozen=True)
class Series:
    """A line over source lengths: (mean length, estimate) per bin. `limit`: the longest training sentence."""

    row: str
    label: str
    points: tuple[tuple[float, Estimate], ...]
    limit: int | None
    control: bool


@dataclass(frozen=True)
class LengthView:
    """Scores against source length. `bins`: (low, high, sentences); `omitted`: too small; `beyond`: longer ones."""

    table: Table
    bins: tuple[tuple[int, int, int], ...]
    omitted: tuple[tuple[int, int, int], ...]
    beyond: int
    panels: tuple[tuple[Metric, tuple[Series, ...]], ...]


@dataclass(frozen=True)
class QuantityLine:
    """One row over points: (point, estimate) of ours, (point, value) as published, (point, reason) where refused."""

    row: str
    label: str
    points: tuple[tuple[float, Estimate], ...]
    published: tuple[tuple[float, float], ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QuantityView:
    """A quantity against its points, for a log-log chart."""

    table: Table
    quantity: str
    unit: str
    lines: tuple[QuantityLine, ...]

    @property
    def title(self) -> str:
        """What the figure shows."""
        return f"{self.table.title}: {self.quantity}{f' ({self.unit})' if self.unit else ''} against its points"

    @property
    def in_table(self) -> bool:
        """Whether the table has these numbers in columns of its own."""
        return any(reading.name == self.quantity for _, reading in self.table.quantities)

    @property
    def points(self) -> list[float]:
        """Every point of any line."""
        return sorted({x for line in self.lines for x, _ in [*line.points, *line.published]})


@dataclass(frozen=True)
class ElsewhereView:
    """A quantity measured on another machine, beside the published table that reads it (None: there is none).

    `facts`: where the numbers come from; `points` head the columns; a row without a measured value is published alone.
    """

    source: str
    device: str
    facts: Mapping[str, str]
    quantity: str
    unit: str
    table: Table | None
    points: tuple[str, ...]
    rows: tuple[RowView, ...]

    @property
    def title(self) -> str:
        """What the table shows."""
        beside = f", beside {self.table.title}" if self.table else ""
        return f"Measured elsewhere, {self.device}: {self.quantity}{f' ({self.unit})' if self.unit else ''}{beside}"


@dataclass(frozen=True)
class AlignmentView:
    """Alignments of one row, for a published figure that shows such."""

    table: Table
    label: str
    seed: int
    alignments: tuple[Alignment, ...]


@dataclass(frozen=True)
class HeadsView:
    """What every layer and head of one row looks at, sentence by sentence."""

    table: Table
    label: str
    seed: int
    sentences: tuple[Heads, ...]


@dataclass(frozen=True)
class AblationRow:
    """A line of the user's own: values as in the first table, and the difference to the row that it changes."""

    row: RowView
    base: str
    overrides: str
    differences: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class AblationsView:
    """All ablation lines, with the measured columns of the first table."""

    columns: tuple[Column, ...]
    lines: tuple[AblationRow, ...]


@dataclass(frozen=True)
class Curve:
    """One learning curve: (target tokens, value)."""

    row: str
    label: str
    seed: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class RunView:
    """Where one run comes from."""

    name: str
    status: str
    facts: Mapping[str, str]
    command: str


@dataclass(frozen=True)
class Report:
    """Everything a renderer needs."""

    published: Published
    results: Results
    outcomes: tuple[Outcome, ...]
    tables: tuple[TableView, ...]
    scorers: ScorersView | None = None
    lengths: tuple[LengthView, ...] = ()
    alignments: tuple[AlignmentView, ...] = ()
    heads: tuple[HeadsView, ...] = ()
    quantities: tuple[QuantityView, ...] = ()
    elsewhere: tuple[ElsewhereView, ...] = ()
    ablations: AblationsView | None = None
    curves: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    not_run: tuple[tuple[str, str], ...] = ()
    shared_facts: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[RunView, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def scale(self) -> str:
        """The scale of the runs."""
        return self.results.scale

    @property
    def row_order(self) -> list[str]:
        """Rows in the order of the first table, then all others: the colour of a row is the same in every figure."""
        listed = [row.id for view in self.tables[:1] for row in view.rows]
        listed += [row for row in self.results.rows if row not in listed]
        drawn = dict.fromkeys(line.row for view in self.quantities for line in view.lines)
        return listed + [row for row in drawn if row not in listed]
