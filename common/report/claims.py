"""reproductions/<paper>/claims.yaml: what a paper claims, as something that a result can contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from common.report.lengths import Bins
from common.report.measures import SCALES, Field, Measure, Reading, read_reading
from common.report.published import Published
from common.report.schema import Node, load_yaml

# kind -> (fewest rows, most rows). The effect is a difference; of a ratio claim a ratio, of a slope claim a slope.
KINDS = {"ordering": (2, 9), "gap": (2, 2), "ratio": (2, 2), "slope": (1, 2), "equivalence": (2, 2), "bound": (1, 1)}
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

    @property
    def unit(self) -> str:
        """The unit of the effect."""
        about = self.reading.about.unit if isinstance(self.reading, Measure) else ""
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
    Raises ValueError naming file, claim, key and what is expected.
    """
    node = load_yaml(path)
    lengths = node.child("lengths")
    bins = {scale: _bins(lengths.child(scale)) for scale in SCALES}
    lengths.done()
    claims = tuple(_claim(child, published) for child in node.children("claims"))
    result = Claims(node.text("paper"), bins, claims)
    node.done()
    if result.paper != published.paper:
        raise node.error("paper", f"got {result.paper!r}, expected {published.paper!r} as in {published.file}")
    ids = [claim.id for claim in claims]
    if len(set(ids)) != len(ids):
        raise node.error("claims", f"ids must differ, got {', '.join(ids)}")
    return result


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
    direction = 1 if kind == "equivalence" else DIRECTIONS[node.choice("direction", DIRECTIONS)]
    threshold = node.number("threshold", None)
    default_null = 1.0 if kind == "ratio" else 0.0
    if kind == "bound":
        default_null = node.number("threshold")
    relative_to = node.pair("relative_to", None)
    claim = Claim(
        id=node.text("id"),
        claim=node.text("claim"),
        place=node.text("place"),
        kind=kind,
        rows=rows,
        reading=read_reading(node),
        direction=direction,
        target=_target(node, kind, rows, direction, published),
        band=node.pair("band", None),
        threshold=threshold,
        null=node.number("no_effect", default_null),
        margin=node.number("margin") if kind == "equivalence" else None,
        relative=node.get("relative", bool, False),
        baseline=None if relative_to is None else (int(relative_to[0]), int(relative_to[1])),
        not_testable=_not_testable(node),
        note=node.text("note", ""),
    )
    node.done()
    _check(node, claim, published)
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
        raise node.error("published", f"a {kind} has no published number to be computed from: state a threshold")
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
    if claim.kind != "equivalence" and not sized:
        raise node.error("band", "state what counts as reproduced: published with band, or threshold")
    agrees = claim.target is None or claim.direction * (claim.target.value - claim.null) > 0
    if claim.target and claim.kind != "equivalence" and not agrees:
        raise node.error(
            "direction", f"the published effect {claim.target.value:+g} says otherwise: check the rows' order"
        )
    if claim.threshold is not None and claim.direction * (claim.threshold - claim.null) < 0:
        raise node.error("threshold", f"{claim.threshold:g} is on the wrong side of no effect ({claim.null:g})")
    if claim.kind == "slope" and isinstance(claim.reading, Field):
        raise node.error("field", "a slope needs a metric over sentences")
    if claim.baseline and isinstance(claim.reading, Measure) and claim.reading.source_tokens is None:
        raise node.error(
            "source_tokens", "missing, expected [low, high]: relative_to compares two ranges of source length"
        )
    for row in claim.rows:
        if not published.has_row(row):
            raise node.error("rows", f"no row {row!r} in {published.file}")
