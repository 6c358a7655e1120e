"""A line chart as SVG: text stays text, colours come from the page's style sheet (classes s0, s1, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.report.render.markup import Markup, join, tag

WIDTH, HEIGHT = 380, 270
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 22, 38
MARKERS = ("circle", "square", "triangle", "diamond", "cross")
COLOURS = 5


@dataclass(frozen=True)
class Line:
    """A line of a chart. `style` chooses colour and marker; a `dashed` line has no markers, and may be `thin`.

    `band`: (low, high) per point. `solid`: per point, whether its marker is filled; dots lead to an open one.
    """

    label: str
    style: int
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    solid: tuple[bool, ...] = ()
    dashed: bool = False
    markers: bool = True
    thin: bool = False


@dataclass(frozen=True)
class Scale:
    """Data to pixels for both axes."""

    x: Callable[[float], float]
    y: Callable[[float], float]


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    x_ticks: Sequence[tuple[float, str]] = (),
    y_ticks: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Draw lines; `marks` are vertical rules with a label at their top. `description` is read out.

    Given `y_ticks` (the lowest and the highest enclose all values) take the place of round numbers.
    """
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in x_ticks]
    bands = [edge for line in lines for pair in line.band for edge in pair]
    round_numbers = () if y_ticks else ticks(min(bands + _ys(lines)), max(bands + _ys(lines)))
    y_places = list(y_ticks) or [(y, compact(y)) for y in round_numbers]
    x_places = list(x_ticks) or [(x, compact(x)) for x in ticks(min(xs), max(xs)) if x <= max(xs)]
    scale = Scale(
        _linear(min(xs), max(xs), LEFT, WIDTH - RIGHT), _linear(y_places[0][0], y_places[-1][0], HEIGHT - BOTTOM, TOP)
    )
    parts = [
        tag("title", title),
        tag("desc", description),
        *[_rule(scale, y, label) for y, label in y_places],
        *[_label(scale.x(x), HEIGHT - BOTTOM + 15, label, "middle") for x, label in x_places],
        _label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_label, "middle"),
        tag("text", title, x=LEFT - 32, y=12, class_="chart-title"),
        *[_mark(scale, x, label) for x, label in marks],
        *[_band(scale, line) for line in lines if line.band],
        *[_line(scale, line) for line in lines],
    ]
    return tag("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", class_="chart")


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers that enclose low..high."""
    span = (high - low) or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten that enclose low..high; 1, 2, 5 between them where fewer than three decades are spanned."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if max(last, first + 1) - first > 2:
        step = -(-(last - first) // 7)  # at most eight of them
        return [10.0**power for power in range(first, last + step, step)]
    fine = [float(f"{factor}e{power}") for power in range(first, last + 1) for factor in (1, 2, 5)]
    below = max(tick for tick in fine if tick <= low * (1 + 1e-9))
    above = min((tick for tick in fine if tick >= high * (1 - 1e-9)), default=fine[-1])
    chosen = [tick for tick in fine if below <= tick <= above]
    return chosen if len(chosen) > 1 else [below, 2 * below]


def compact(value: float) -> str:
    """1500000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("-", "−")


def legend_sample(line: Line) -> Markup:
    """A short piece of the line for a legend outside the chart."""
    scale = Scale(lambda x: x, lambda y: y)
    kind = ("thin dashed" if line.thin else "dashed") if line.dashed else ""
    drawn = [_path(scale, ((2, 7), (32, 7)), kind, line.style)]
    drawn += [_marker(17, 7, line.style, filled=True)] if line.markers else []
    return tag("svg", drawn, viewBox="0 0 34 14", width=34, height=14, aria_hidden="true", class_="sample")


def _ys(lines: Sequence[Line]) -> list[float]:
    return [y for line in lines for _, y in line.points]


def _linear(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _rule(scale: Scale, y: float, label: str) -> Markup:
    at = f"{scale.y(y):.1f}"
    rule = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="rule")
    return join(rule, _label(LEFT - 6, scale.y(y) + 4, label, "end"))


def _mark(scale: Scale, x: float, label: str) -> Markup:
    at = f"{scale.x(x):.1f}"
    rule = tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="mark")
    return join(rule, _label(scale.x(x) - 4, TOP + 9, label, "end"))


def _band(scale: Scale, line: Line) -> Markup:
    upper = [(x, high) for (x, _), (_, high) in zip(line.points, line.band, strict=True)]
    lower = [(x, low) for (x, _), (low, _) in zip(line.points, line.band, strict=True)]
    return tag("polygon", points=_pixels(scale, upper + lower[::-1]), class_=f"band s{line.style % COLOURS}")


def _line(scale: Scale, line: Line) -> Markup:
    solid = line.solid or (True,) * len(line.points)
    inside = [point for point, filled in zip(line.points, solid, strict=True) if filled]
    beyond = [point for point, filled in zip(line.points, solid, strict=True) if not filled]
    kind = ("thin dashed" if line.thin else "dashed") if line.dashed else "" if line.markers else "thin"
    parts = [_path(scale, inside, kind, line.style)] if inside else []
    if beyond:
        parts.append(_path(scale, inside[-1:] + beyond, kind or "dotted", line.style))
    if line.markers and not line.dashed:
        parts += [
            _marker(scale.x(x), scale.y(y), line.style, ok) for (x, y), ok in zip(line.points, solid, strict=True)
        ]
    return tag("g", parts)


def _path(scale: Scale, points: Sequence[tuple[float, float]], kind: str, style: int) -> Markup:
    return tag(
        "polyline", points=_pixels(scale, points), class_=" ".join(filter(None, ("line", kind, f"s{style % COLOURS}")))
    )


def _marker(x: float, y: float, style: int, filled: bool) -> Markup:
    shape = MARKERS[(style + style // COLOURS) % len(MARKERS)]
    r = 3.2
    outlines = {
        "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
        "triangle": [(0, -r - 1), (r + 0.6, r), (-r - 0.6, r)],
        "diamond": [(0, -r - 1), (r + 1, 0), (0, r + 1), (-r - 1, 0)],
        "cross": [
            (-r, -1),
            (-1, -1),
            (-1, -r),
            (1, -r),
            (1, -1),
            (r, -1),
            (r, 1),
            (1, 1),
            (1, r),
            (-1, r),
            (-1, 1),
            (-r, 1),
        ],
    }
    class_ = f"{'marker' if filled else 'marker open'} s{style % COLOURS}"
    if shape == "circle":
        return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=r, class_=class_)
    return tag("polygon", points=" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in outlines[shape]), class_=class_)


def _pixels(scale: Scale, points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
