"""The figures of a page: score against source length, alignments, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.report.render import text
from common.report.render.chart import COLOURS, Line, legend_sample, line_chart
from common.report.render.heatmap import heatmap
from common.report.render.markdown import beyond_mark, length_note
from common.report.render.markup import Markup, join, tag
from common.report.render.tables_html import framed, head
from common.report.views import AlignmentView, Curve, LengthView, Series

CURVE_LABELS = {"train_nll": "training NLL per target token, nats", "dev_nll": "dev NLL per target token, nats"}


def length(view: LengthView, order: list[str]) -> Markup:
    """A panel per metric, one legend, and the numbers behind a fold. The `order` of all rows gives each its colour."""
    panels = [
        line_chart(
            [_length_line(line, order.index(line.row), view) for line in series],
            title=metric.label,
            description="; ".join(
                f"{_name(s)}: {', '.join(text.number(e.value) for _, e in s.points)}" for s in series
            ),
            x_label="words in the source sentence",
            x_ticks=[(edge, str(edge)) for edge in (view.bins[0][0] - 1, *(high for _, high, _ in view.bins))],
            marks=[(limit + 0.5, f"≤ {limit}") for limit in sorted({s.limit for s in series if s.limit})],
        )
        for metric, series in view.panels
    ]
    note = (
        "Filled markers: lengths that the row was trained on. Open markers and dotted lines: longer than any training "
        "sentence (upright rules). Bands: 95% intervals over clusters of sentences and seeds. "
    )
    if any(line.control for line in view.panels[0][1]):
        note += "Dashed, in the row's colour: the control. "
    return join(
        tag("h3", f"{view.table.title}: score against source length"),
        tag("p", view.table.caption, " ", view.table.comparable, class_="caption"),
        _legend([_length_line(line, order.index(line.row), view) for line in view.panels[0][1] if not line.control]),
        tag("div", panels, class_="panels"),
        tag("p", note, length_note(view), class_="caption"),
        tag(
            "details",
            tag("summary", "The numbers"),
            [_numbers(metric.label, series, view) for metric, series in view.panels],
        ),
    )


def _name(line: Series) -> str:
    return line.label + (", control" if line.control else "")


def _length_line(line: Series, style: int, view: LengthView) -> Line:
    return Line(
        label=_name(line),
        style=style,
        points=tuple((x, estimate.value) for x, estimate in line.points),
        band=() if line.control else tuple((estimate.low, estimate.high) for _, estimate in line.points),
        solid=tuple(line.limit is None or high <= line.limit for _, high, _ in view.bins),
        dashed=line.control,
    )


def _legend(lines: Sequence[Line]) -> Markup:
    return tag("ul", [tag("li", legend_sample(line), tag("span", line.label)) for line in lines], class_="legend")


def _numbers(title: str, series: Sequence[Series], view: LengthView) -> Markup:
    names = [tag("th", name, scope="col") for name in ("source words", "sentences", *map(_name, series))]
    rows = []
    for i, (low, high, n) in enumerate(view.bins):
        cells = []
        for line in series:
            estimate = line.points[i][1]
            value = text.number(estimate.value) + beyond_mark(line.limit, high)
            cells.append(tag("td", value, tag("span", text.interval(estimate), class_="interval")))
        rows.append(tag("tr", tag("th", f"{low}–{high}", scope="row"), tag("td", str(n)), cells))
    return framed(title, tag("caption", title), head(names), tag("tbody", rows))


def alignments(view: AlignmentView) -> Markup:
    """Heat maps of one row."""
    pictures = [
        tag(
            "figure",
            tag("figcaption", alignment.id),
            tag(
                "div",
                heatmap(alignment, f"Alignment of {alignment.id}"),
                class_="scroll",
                tabindex=0,
                role="region",
                aria_label=alignment.id,
            ),
        )
        for alignment in view.alignments
    ]
    return join(
        tag("h3", f"{view.table.title}: {view.label}, seed {view.seed}"),
        tag("p", view.table.caption, " ", view.table.comparable, class_="caption"),
        tag("p", "Source words across, words of the translation down; each line of cells sums to 1.", class_="caption"),
        tag("div", pictures, class_="heatmaps"),
    )


def curves(by_name: Mapping[str, Sequence[Curve]], order: list[str]) -> Markup:
    """Learning curves: one line per run, runs of a row in the same colour."""
    if not by_name:
        return tag("p", "No learning curves.", class_="soft")
    panels, legend = [], {}
    for name, lines in by_name.items():
        styles = [order.index(curve.row) for curve in lines]
        drawn = [
            Line(curve.label, style, curve.points, dashed=style >= COLOURS, markers=False)
            for curve, style in zip(lines, styles, strict=True)
        ]
        legend |= {line.style: line for line in drawn}
        ends = "; ".join(f"{curve.label} seed {curve.seed} ends at {curve.points[-1][1]:.2f}" for curve in lines)
        panels.append(line_chart(drawn, title=CURVE_LABELS[name], description=ends, x_label="target tokens seen"))
    return join(
        tag("h3", "Learning curves"),
        _legend([legend[style] for style in sorted(legend)]),
        tag("div", panels, class_="panels"),
        tag("p", "One line per seed.", class_="caption"),
    )
