"""What a claim on a measured quantity rests on: one effect, or several that must all hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from common.report.claims import Claim
from common.report.effects import Missing
from common.report.measures import Quantity
from common.report.quantities import (
    Effect,
    common_points,
    contrast,
    exponent,
    points_of,
    refusal,
    samples_of,
    taken,
    unit_of,
    value_at,
)
from common.report.results import Row
from common.report.samples import in_order, number_of
from common.report.stats import Estimate


@dataclass(frozen=True)
class Steps:
    """`steps`: effects on the scale of the test (the logarithm of a ratio), with a name each; `remarks`: how read.

    `runs` by row; `exact`: no chance is involved; `mixed`: the runs are of different hardware, which only counts may be.
    """

    steps: tuple[Estimate, ...]
    names: tuple[str, ...]
    remarks: tuple[str, ...]
    unit: str
    runs: tuple[tuple[str, int], ...]
    exact: bool
    mixed: bool


def measured_steps(claim: Claim, reading: Quantity, rows: Sequence[Row], resamples: int) -> Steps:
    """Read the effects of a claim. Raises Missing where the rows do not give them."""
    unit = unit_of(rows, reading)
    if claim.over is not None:
        effect, points, deviation = exponent(rows, reading, claim.over, resamples=resamples)
        fit = f"points {', '.join(points)}; no median further than {deviation:.1%} from its line"
        effects, names, remarks, read = [effect], [""], [fit], [[points]] * len(rows)
    elif claim.start is not None:
        points, left_out = _from(claim.start, reading, rows)
        effects = [contrast(rows[0], rows[1], reading, (at, at), log=True, resamples=resamples) for at in points]
        names, remarks = [f"at {at}" for at in points], [f"points {', '.join(points)}", *left_out]
        read = [[[at] for at in points]] * len(rows)
    else:
        effects = _between(claim, reading, rows, resamples)
        names = [f"{first.label} against {second.label}" for first, second in pairwise(rows)] or [""]
        remarks = [_medians(reading, rows)] if len(rows) > 1 else []
        read = [[[reading.point(i)]] for i in range(len(rows))]
    remarks += [effects[0].note] if effects[0].note else []
    steps = tuple(effect.estimate for effect in effects)
    runs = tuple(
        (row.id, min(len(taken(row, reading, points)) for points in groups))
        for row, groups in zip(rows, read, strict=True)
    )
    exact = all(step.exact for step in steps)
    timed = any(samples.timed for row in rows for samples in samples_of(row, reading).values())
    mixed = (timed or not exact) and _mixed(rows, reading)
    return Steps(steps, tuple(names), tuple(remarks), unit, runs, exact, mixed)


def _between(claim: Claim, reading: Quantity, rows: Sequence[Row], resamples: int) -> list[Effect]:
    """Each row against the next; one row by itself."""
    if len(rows) == 1:
        return [value_at(rows[0], reading, resamples=resamples)]
    points = [(reading.point(i), reading.point(i + 1)) for i in range(len(rows) - 1)]
    return [
        contrast(first, second, reading, at, log=claim.kind == "ratio", resamples=resamples)
        for (first, second), at in zip(pairwise(rows), points, strict=True)
    ]


def _medians(reading: Quantity, rows: Sequence[Row]) -> str:
    medians = [value_at(row, reading, i, resamples=2).estimate.value for i, row in enumerate(rows)]
    return "; ".join(f"{row.label} {value:.4g}" for row, value in zip(rows, medians, strict=True))


def _from(start: float, reading: Quantity, rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Points from `start` on that both rows have, and a word on those left out. Both must have the first."""
    points = [point for point in common_points(rows, reading) if (number_of(point) or 0.0) >= start]
    if not points or number_of(points[0]) != start:
        reasons = [f" ({row.id}: {reason})" for row in rows if (reason := refusal(row, reading, f"{start:g}"))]
        raise Missing(f"{reading.name} was not measured at {start:g} in both rows{''.join(reasons)}")
    named = [point for row in rows for point in [*points_of(row, reading), *refused_points(row, reading)]]
    left = [point for point in in_order(named) if point not in points and (number_of(point) or 0.0) >= start]
    told = [f"{point} ({'; '.join(_absences(rows, reading, point))})" for point in left]
    return points, [f"left out: {', '.join(told)}"] if told else []


def _absences(rows: Sequence[Row], reading: Quantity, point: str) -> list[str]:
    without = [row for row in rows if point not in points_of(row, reading)]
    return [f"{row.id}: {refusal(row, reading, point) or 'not measured'}" for row in without]


def refused_points(row: Row, reading: Quantity) -> list[str]:
    """Points that some run of the row refused."""
    return [point for samples in samples_of(row, reading).values() for point in samples.refused]


def _mixed(rows: Sequence[Row], reading: Quantity) -> bool:
    machines = [run.field("hardware") for row in rows for run in row.ok if reading.name in run.samples]
    return any(machine != machines[0] for machine in machines)
