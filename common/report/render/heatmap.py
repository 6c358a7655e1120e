"""Two small pictures as SVG: a heat map with word labels, and an effect with its interval."""

from __future__ import annotations

import math

from common.report.compare import Outcome
from common.report.render.markup import Markup, tag
from common.report.sentences import Alignment

CELL = 19
LETTER = 6.7
FAINTEST = 0.03
BAR_WIDTH, BAR_HEIGHT, BAR_MARGIN = 260, 30, 12


def heatmap(alignment: Alignment, title: str) -> Markup:
    """Target words down, source words across; the darker a cell, the more weight. Cells below 0.03 stay blank."""
    left = 10 + LETTER * max(map(len, alignment.target))
    longest = max(map(len, alignment.source))
    top = 10 + LETTER * longest * math.sin(math.radians(55))
    width, height = CELL * len(alignment.source), CELL * len(alignment.target)
    lean = LETTER * len(alignment.source[-1]) * math.cos(math.radians(55))
    cells = [
        tag(
            "rect",
            x=f"{left + CELL * j:.1f}",
            y=f"{top + CELL * i:.1f}",
            width=CELL,
            height=CELL,
            fill_opacity=f"{weight:.2f}",
        )
        for i, row in enumerate(alignment.weights)
        for j, weight in enumerate(row)
        if weight >= FAINTEST
    ]
    total_width, total_height = left + width + max(lean, 4), top + height + 4
    parts = [
        tag("title", title),
        tag(
            "desc", f"{len(alignment.target)} target words by {len(alignment.source)} source words; {_peaks(alignment)}"
        ),
        tag("rect", x=f"{left:.1f}", y=f"{top:.1f}", width=width, height=height, class_="frame"),
        tag("g", cells, class_="cells"),
        *[_across(word, left + CELL * (j + 0.5), top - 5) for j, word in enumerate(alignment.source)],
        *[_down(word, left - 5, top + CELL * (i + 0.5) + 4) for i, word in enumerate(alignment.target)],
    ]
    box = f"0 0 {total_width:.0f} {total_height:.0f}"
    return tag(
        "svg",
        parts,
        viewBox=box,
        width=f"{total_width:.0f}",
        height=f"{total_height:.0f}",
        role="img",
        class_="heatmap",
    )


def _peaks(alignment: Alignment) -> str:
    pairs = zip(alignment.target, alignment.weights.argmax(axis=1), strict=True)
    return "highest weights: " + ", ".join(f"{word} to {alignment.source[j]}" for word, j in pairs)


def _across(word: str, x: float, y: float) -> Markup:
    return tag("text", word, x=f"{x:.1f}", y=f"{y:.1f}", transform=f"rotate(-55 {x:.1f} {y:.1f})")


def _down(word: str, x: float, y: float) -> Markup:
    return tag("text", word, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="end")


def effect_bar(outcome: Outcome) -> Markup:
    """The effect (dot) with its interval (whiskers), no effect (full rule), and what counts as reproduced (shaded)."""
    effect, claim = outcome.effect, outcome.claim
    assert effect is not None
    low, high = wanted(outcome)
    edges = [effect.low, effect.high, claim.null, *(edge for edge in (low, high) if math.isfinite(edge))]
    span = (max(edges) - min(edges)) or 1.0

    def show(value: float) -> str:
        return f"{value:.3g}" if claim.measured else f"{value:.2f}"

    def at(value: float) -> float:
        place = BAR_MARGIN + (value - min(edges)) / span * (BAR_WIDTH - 2 * BAR_MARGIN)
        return min(max(place, 0.0), BAR_WIDTH)

    middle = BAR_HEIGHT / 2
    parts = [
        tag(
            "title",
            f"effect {show(effect.value)}, interval {show(effect.low)} to {show(effect.high)}, no effect at {claim.null:g}",
        ),
        tag("rect", x=f"{at(low):.1f}", y=3, width=f"{at(high) - at(low):.1f}", height=BAR_HEIGHT - 6, class_="wanted"),
        tag("line", x1=f"{at(claim.null):.1f}", x2=f"{at(claim.null):.1f}", y1=0, y2=BAR_HEIGHT, class_="null"),
        tag("line", x1=f"{at(effect.low):.1f}", x2=f"{at(effect.high):.1f}", y1=middle, y2=middle, class_="whisker"),
        *[
            tag("line", x1=f"{at(e):.1f}", x2=f"{at(e):.1f}", y1=middle - 5, y2=middle + 5, class_="whisker")
            for e in (effect.low, effect.high)
        ],
        tag("circle", cx=f"{at(effect.value):.1f}", cy=middle, r=4.5, class_="dot"),
    ]
    if claim.target:
        x = at(claim.target.value)
        parts.append(tag("polygon", points=f"{x:.1f},1 {x - 5:.1f},-6 {x + 5:.1f},-6", class_="published"))
    return tag("svg", parts, viewBox=f"0 -7 {BAR_WIDTH} {BAR_HEIGHT + 7}", role="img", class_="effect")


def wanted(outcome: Outcome) -> tuple[float, float]:
    """The range of effects that counts as reproduced; an open end is infinite."""
    claim = outcome.claim
    if claim.window is not None:
        return claim.window
    if claim.target and claim.band:
        low, high = sorted(claim.target.value * edge for edge in claim.band)
        return low, high
    assert claim.threshold is not None
    return (claim.threshold, math.inf) if claim.direction > 0 else (-math.inf, claim.threshold)
