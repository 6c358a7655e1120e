"""reproductions/<paper>/claims.yaml: what a paper claims, as something that a result can contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from common.report.lengths import Bins
from common.report.measures import SCALES, Field, Measure, Quantity, Reading, read_reading
from common.report.published import Published
from common.report.schema import Node, load_yaml

# kind -> (fewest rows, most rows). The effect is a difference; of a ratio claim a ratio, of a slope claim a slope, of an
# exponent claim the slope of log value on log point.
KINDS = {
    "ordering": (2, 9),
    "gap": (2, 2),
    "ratio": (2, 2),
    "slope": (1, 2),
    "equivalence": (2, 2),
    "bound": (1, 1),
    "exponent": (1, 2),
}
DIRECTIONS = {"greater": 1, "less": -1}


@dataclass(frozen=True)
class Target:
    """The published effect, computed from published.yaml, and the place it comes from."""

    table: str
    column: str
    rows: tuple[str, ...]
    value: float


@dataclass(frozen=True)
class Claim:
    """One claim. See `load_claims` for the meaning of the numbers.

    `rows` are in the order that the claim states: first minus second, first over second, first > second > third.
    """

    id: str
    claim: str
    place: str
    kind: str
    rows: tuple[str, ...]
    reading: Reading
    direction: int
    target: Target | None
    band: tuple[float, float] | None
    threshold: float | None
    null: float
    margin: float | None
    relative: bool
    baseline: tuple[int, int] | None
    not_testable: Mapping[str, str]
    note: str
    expected: float | None = None
    over: tuple[float, float] | None = None
    start: float | None = None

    @property
    def measured(self) -> bool:
        """Whether it reads repeated measurements."""
        return isinstance(self.reading, Quantity)

    @property
    def window(self) -> tuple[float, float] | None:
        """The effects that an equivalence, or an expected value with its margin, allows; None for other claims."""
        if self.margin is None:
            return None
        centre = self.expected or 0.0
        return centre - self.margin, centre + self.margin

    @property
    def unit(self) -> str:
        """The unit of the effect."""
        about = self.reading.about.unit if isinstance(self.reading, Measure) else ""
        if isinstance(self.reading, Quantity) and self.kind != "exponent":
            about = self.reading.unit
        if self.kind == "ratio" or self.baseline:
            return "times"
        if self.kind == "slope":
            return "% of own score per 10 words" if self.relative else f"{about} per 10 words"
        return about

    def big_enough(self, effect: float) -> bool:
        """Whether the size of an effect of the right direction counts as reproduced."""
        if self.target and self.band:
            size = effect / self.target.value
            return self.band[0] <= size <= self.band[1]
        if self.threshold is None:
            return True
        return self.direction * (effect - self.threshold) >= 0


@dataclass(frozen=True)
class Claims:
    """All claims of a paper, tested together. `bins`: of source length, by scale."""

    paper: str
    bins: Mapping[str, Bins]
    claims: tuple[Claim, ...]


def load_claims(path: Path, published: Published) -> Claims:
    """Read and check a claims.yaml against its published.yaml.

    Per claim: `direction` of the effect; either `published: {table, column, rows?}` with `band: [low, high]`, the range
    of effect / published effect that counts as reproduced, or `threshold`, the smallest effect that does; `no_effect`,
    the value that means none (ratio: 1, bound: its threshold, else 0); `margin`, within which two rows are equivalent;
    `source_tokens: [low, high]`, or `trained` for all lengths that the rows were trained on; `relative`, a slope in
    percent of the row's own score; `relative_to: [low, high]`, the score over that on sources of
    so many words; `testable: [scale]` and `not_testable: {scale: reason}`, declared beforehand for every scale.

    A claim on a measured `quantity` says where it reads: `at` a point, or one per row; a ratio also `from` a point on, at
    every measured one, of which the weakest decides; an exponent `over: [low, high]`, the range of points (one row: its
    exponent; two: the first's minus the second's). A ratio or an exponent may state `expected` and `margin` in place of
    direction and threshold: reproduced if the interval lies inside, contradicted if it lies outside.
    `lengths` may be left out where nothing is read over source lengths.
    Raises ValueError naming file, claim, key and what is expected.
    """
    node = load_yaml(path)
    bins: dict[str, Bins] = {}
    if "lengths" in node.data or needs_lengths(node, published):
        lengths = node.child("lengths")
        bins = {scale: _bins(lengths.child(scale)) for scale in SCALES}
        lengths.done()
    node.read.add("lengths")
    claims = tuple(_claim(child, published) for child in node.children("claims"))
    result = Claims(node.text("paper"), bins, claims)
    node.done()
    if result.paper != published.paper:
        raise node.error("paper", f"got {result.paper!r}, expected {published.paper!r} as in {published.file}")
    ids = [claim.id for claim in claims]
    if len(set(ids)) != len(ids):
        raise node.error("claims", f"ids must differ, got {', '.join(ids)}")
    return result


def needs_lengths(node: Node, published: Published) -> bool:
    """Whether a slope is claimed or a figure against source length drawn."""
    plots = [table.plot.kind for table in published.tables if table.plot]
    return "length" in plots or any(
        claim.data.get("kind") == "slope" and "quantity" not in claim.data for claim in node.children("claims")
    )


def _bins(node: Node) -> Bins:
    bins = Bins(node.get("width", int), node.get("up_to", int), node.get("fewest", int))
    node.done()
    return bins


def _claim(node: Node, published: Published) -> Claim:
    node.place = f"claims.{node.text('id')}"
    kind = node.choice("kind", KINDS)
    rows = node.texts("rows")
    fewest, most = KINDS[kind]
    if not fewest <= len(rows) <= most:
        raise node.error(
            "rows", f"{kind} takes {fewest if fewest == most else f'{fewest} to {most}'} rows, got {len(rows)}"
        )
    reading = read_reading(node)
    expected = node.number("expected", None) if kind in ("ratio", "exponent") else None
    two_sided = kind == "equivalence" or expected is not None
    direction = 1 if two_sided else DIRECTIONS[node.choice("direction", DIRECTIONS)]
    threshold = node.number("threshold", None)
    default_null = 1.0 if kind == "ratio" else 0.0
    if expected is not None:
        default_null = expected
    elif kind == "bound" or (kind == "exponent" and len(rows) == 1):
        default_null = node.number("threshold")
    relative_to = node.pair("relative_to", None)
    claim = Claim(
        id=node.text("id"),
        claim=node.text("claim"),
        place=node.text("place"),
        kind=kind,
        rows=rows,
        reading=reading,
        direction=direction,
        target=_target(node, kind, rows, direction, published),
        band=node.pair("band", None),
        threshold=threshold,
        null=node.number("no_effect", default_null),
        margin=node.number("margin") if two_sided else None,
        relative=node.get("relative", bool, False),
        baseline=None if relative_to is None else (int(relative_to[0]), int(relative_to[1])),
        not_testable=_not_testable(node),
        note=node.text("note", ""),
        expected=expected,
        over=node.pair("over") if kind == "exponent" else None,
        start=node.number("from", None) if kind == "ratio" else None,
    )
    node.done()
    _check(node, claim, published)
    _check_points(node, claim)
    return claim


def _target(node: Node, kind: str, rows: tuple[str, ...], direction: int, published: Published) -> Target | None:
    if node.get("published", Mapping, None) is None:
        return None
    reference = node.child("published")
    table, column = reference.text("table"), reference.text("column")
    names = reference.texts("rows", rows)
    reference.done()
    try:
        values = [published.value(table, row, column) for row in names]
    except ValueError as error:
        raise node.error("published", str(error)) from error
    if kind in ("gap", "ordering", "equivalence"):
        steps = [first - second for first, second in pairwise(values)]
        value = min(steps, key=lambda step: direction * step)
    elif kind == "ratio":
        value = values[0] / values[1]
    else:
        article = "an" if kind == "exponent" else "a"
        raise node.error(
            "published", f"{article} {kind} has no published number to be computed from: state a threshold"
        )
    return Target(table, column, names, value)


def _not_testable(node: Node) -> dict[str, str]:
    testable, reasons = node.texts("testable", ()), node.child("not_testable", {})
    for scale in SCALES:
        if (scale in testable) == (scale in reasons.data):
            raise node.error(
                "testable", f"scale {scale!r} must be either in testable or, with a reason, in not_testable"
            )
    not_testable = {scale: reasons.text(scale) for scale in SCALES if scale in reasons.data}
    reasons.done()
    if unknown := set(testable) - set(SCALES):
        raise node.error("testable", f"unknown scale {', '.join(sorted(unknown))}, expected {', '.join(SCALES)}")
    return not_testable


def _check(node: Node, claim: Claim, published: Published) -> None:
    """Checks that need the whole claim."""
    sized = (claim.target is not None and claim.band is not None) or claim.threshold is not None
    if claim.margin is None and not sized:
        raise node.error("band", "state what counts as reproduced: published with band, or threshold")
    agrees = claim.target is None or claim.direction * (claim.target.value - claim.null) > 0
    if claim.target and claim.margin is None and not agrees:
        raise node.error(
            "direction", f"the published effect {claim.target.value:+g} says otherwise: check the rows' order"
        )
    if claim.threshold is not None and claim.direction * (claim.threshold - claim.null) < 0:
        raise node.error("threshold", f"{claim.threshold:g} is on the wrong side of no effect ({claim.null:g})")
    if claim.kind == "slope" and isinstance(claim.reading, Quantity):
        raise node.error("kind", "a slope reads a metric over source lengths: over points of a quantity use exponent")
    if claim.kind == "slope" and isinstance(claim.reading, Field):
        raise node.error("field", "a slope needs a metric over sentences")
    if claim.baseline and isinstance(claim.reading, Measure) and claim.reading.source_tokens is None:
        raise node.error(
            "source_tokens", "missing, expected [low, high]: relative_to compares two ranges of source length"
        )
    for row in claim.rows:
        if not published.has_row(row):
            raise node.error("rows", f"no row {row!r} in {published.file}")


def _check_points(node: Node, claim: Claim) -> None:
    """Checks of where a claim on a measured quantity reads."""
    reading = claim.reading
    if not isinstance(reading, Quantity):
        if claim.kind == "exponent" or claim.start is not None or claim.expected is not None:
            raise node.error("quantity", "missing: exponent, from and expected are of a measured quantity")
        return
    if claim.baseline or claim.relative:
        raise node.error("relative_to" if claim.baseline else "relative", "a quantity has no source lengths")
    if claim.margin is not None and claim.margin < 0:
        raise node.error("margin", f"expected 0 or more, got {claim.margin:g}")
    if (claim.over is not None or claim.start is not None) == bool(reading.at):
        where = {"exponent": "over a range of points", "ratio": "at a point or from one on"}
        raise node.error("at", f"{claim.kind} reads {where.get(claim.kind, 'at a point')}")
    if len(reading.at) not in (0, 1, len(claim.rows)):
        raise node.error("at", f"expected one point, or one per row ({len(claim.rows)}), got {len(reading.at)}")
    if claim.expected is not None and (claim.target or claim.threshold is not None):
        raise node.error("expected", "stands with margin alone: leave out published, band and threshold")
    if claim.start is not None and (claim.target or claim.expected is not None):
        raise node.error("from", "takes a threshold: published and expected are of one point")
    if claim.kind == "ratio" and claim.window and claim.window[0] <= 0:
        raise node.error("margin", f"a ratio is positive: expected less than {claim.expected:g}")
