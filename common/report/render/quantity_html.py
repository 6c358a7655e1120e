"""A measured quantity against its points: a log-log chart with the published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.report.render import text
from common.report.render.chart import Line, compact, legend_sample, line_chart, log_ticks
from common.report.render.markup import Markup, join, tag
from common.report.render.tables_html import framed, head
from common.report.views import QuantityLine, QuantityView

NOTE = (
    "Both axes are logarithmic. Markers: ours, with bands of 95% intervals where there are any. Thin dashed lines, in the "
    "row's colour: as published, measured on the paper's own hardware. "
)
Points = Sequence[tuple[float, float]]


def quantity(view: QuantityView, order: list[str]) -> Markup:
    """The chart, its legend, what was refused, and the numbers behind a fold where no table has them."""
    ours = [_ours(line, order.index(line.row)) for line in view.lines if line.points]
    published = [_published(line, order.index(line.row)) for line in view.lines if line.published]
    chart = line_chart(
        [*published, *ours],
        title=f"{view.quantity}{f', {view.unit}' if view.unit else ''}",
        description="; ".join(filter(None, map(_described, view.lines))),
        x_label="point",
        x_ticks=[(math.log10(x), _place(x)) for x in _apart(view.points)],
        y_ticks=[(math.log10(y), _power(y)) for y in log_ticks(*_extent(view))],
    )
    refused = "; ".join(f"{line.label} at {point}: {why}" for line in view.lines for point, why in line.refused)
    return join(
        tag("h3", view.title),
        tag("p", view.table.caption, " ", view.table.comparable, class_="caption"),
        tag(
            "ul",
            [tag("li", legend_sample(line), tag("span", line.label)) for line in _legend(view, order)],
            class_="legend",
        ),
        tag("div", chart, class_="panels"),
        tag("p", NOTE, f"Refused: {refused}." if refused else "", class_="caption"),
        "" if view.in_table else tag("details", tag("summary", "The numbers"), _numbers(view)),
    )


def _ours(line: QuantityLine, style: int) -> Line:
    points = [(x, e.value) for x, e in line.points]
    # A limit at or below zero has no logarithm: the band then ends at the value.
    band = [(e.low if e.low > 0 else e.value, e.high) for _, e in line.points]
    drawn = () if all(low == high for low, high in band) else tuple((math.log10(a), math.log10(b)) for a, b in band)
    return Line(line.label, style, _logs(points), drawn)


def _published(line: QuantityLine, style: int) -> Line:
    return Line(f"{line.label}, published", style, _logs(line.published), dashed=True, markers=False, thin=True)


def _logs(points: Points) -> tuple[tuple[float, float], ...]:
    return tuple((math.log10(x), math.log10(y)) for x, y in points)


def _legend(view: QuantityView, order: list[str]) -> list[Line]:
    """A sample per row: its marker, or its dashes where we have nothing of it."""
    return [(_ours if line.points else _published)(line, order.index(line.row)) for line in view.lines]


def _extent(view: QuantityView) -> tuple[float, float]:
    values = [y for line in view.lines for _, y in line.published]
    for line in view.lines:
        values += [y for _, e in line.points for y in (e.value, e.high, e.low if e.low > 0 else e.value)]
    return min(values), max(values)


def _apart(points: list[float]) -> list[float]:
    """At most ten of the points, evenly thinned from the largest down."""
    step = -(-len(points) // 10)
    return points[::-1][::step][::-1]


def _place(x: float) -> str:
    """16384 as 16K, 0.25 as it is."""
    return f"{x / 1024:g}K" if x >= 1024 and x % 1024 == 0 else compact(x)


def _power(y: float) -> str:
    return compact(y) if 1e-3 <= y < 1e12 else f"{y:.0e}".replace("e-0", "e−").replace("e+", "e")


def _described(line: QuantityLine) -> str:
    ours = ", ".join(f"{x:g}: {text.number(e.value, None)}" for x, e in line.points)
    theirs = ", ".join(f"{x:g}: {y:g}" for x, y in line.published)
    parts = [f"ours {ours}" if ours else "", f"published {theirs}" if theirs else ""]
    return f"{line.label}: {', '.join(filter(None, parts))}"


def _numbers(view: QuantityView) -> Markup:
    header, rows = text.quantity_grid(view)
    names = [tag("th", name, scope="col") for name in header]
    lines = [tag("tr", tag("th", label, scope="row"), [tag("td", cell) for cell in cells]) for label, *cells in rows]
    return framed(view.title, head(names), tag("tbody", lines))
