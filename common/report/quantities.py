"""From runs to effects on a measured quantity: medians at points, rows compared turn by turn, exponents over points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.report.effects import Missing
from common.report.measures import Quantity
from common.report.medians import Sample, estimate, least_squares
from common.report.results import Row, Run
from common.report.samples import Samples, in_order, number_of
from common.report.scores import Array
from common.report.stats import RESAMPLES, Estimate

FEWEST_POINTS = 3  # of an exponent: two would always lie on a line
UNPAIRED = "not paired: other points, or not measured together"
Taken = dict[str, Array]


@dataclass(frozen=True)
class Effect:
    """An estimate on the scale of its test; `note`: how two rows were compared."""

    estimate: Estimate
    note: str = ""


def samples_of(row: Row, reading: Quantity) -> dict[str, Samples]:
    """The quantity of each finished run that has it, by folder name. Raises ValueError where its unit is another."""
    found = {run.folder.name: run.samples[reading.name] for run in row.ok if reading.name in run.samples}
    expected = reading.unit if reading.unit and reading.factor == 1 else next((s.unit for s in found.values()), "")
    for run in row.ok:
        if run.folder.name in found and found[run.folder.name].unit != expected:
            raise ValueError(
                f"{run.folder}/samples.json: {reading.name}.unit: got {found[run.folder.name].unit!r}, "
                f"expected {expected!r} as elsewhere"
            )
    return found


def unit_of(rows: Sequence[Row], reading: Quantity) -> str:
    """The unit of a reading after its factor; empty where no run has it. Raises ValueError where rows disagree."""
    units = {samples.unit: name for row in rows for name, samples in samples_of(row, reading).items()}
    if len(units) > 1:
        told = ", ".join(f"{unit!r} ({name})" for unit, name in units.items())
        raise ValueError(f"{reading.name}: runs have different units: {told}: measure them again")
    return reading.unit or next(iter(units), "")


def refusal(row: Row, reading: Quantity, at: str) -> str:
    """Why the row has no value at a point, as its runs say; empty where they don't."""
    reasons = {s.refused[at] for s in samples_of(row, reading).values() if at in s.refused}
    return "; ".join(sorted(reasons))


def points_of(row: Row, reading: Quantity) -> list[str]:
    """Every point at which some run of the row has a value, in order."""
    return in_order([point for samples in samples_of(row, reading).values() for point in samples.at])


def taken(row: Row, reading: Quantity, points: Sequence[str]) -> dict[str, Taken]:
    """Repeats by run (folder name) and point, of the runs that have all the points. Raises Missing where none has."""
    found = samples_of(row, reading)
    if not found:
        raise Missing(f"no run of {row.id} has measured {reading.name}")
    for point in points:
        if not any(point in samples.at for samples in found.values()):
            reason = refusal(row, reading, point)
            raise Missing(f"{row.id} {f'refused {point}: {reason}' if reason else f'was not measured at {point}'}")
    whole = {name: samples for name, samples in found.items() if all(point in samples.at for point in points)}
    if not whole:
        raise Missing(f"no run of {row.id} was measured at all of {', '.join(points)}")
    return {name: {p: np.array(s.at[p]) * reading.factor for p in points} for name, s in whole.items()}


def value_at(row: Row, reading: Quantity, row_number: int = 0, *, resamples: int = RESAMPLES) -> Effect:
    """The median at a point."""
    point = reading.point(row_number)
    runs = taken(row, reading, [point])
    return Effect(estimate([_sample(row, reading, runs, [point])], resamples=resamples))


def by_seed(row: Row, reading: Quantity, point: str) -> tuple[tuple[int, float], ...]:
    """(seed, median) of each run at a point."""
    runs = taken(row, reading, [point])
    return tuple((run.seed, float(np.median(runs[name][point]))) for run in row.ok if (name := run.folder.name) in runs)


def contrast(
    first: Row, second: Row, reading: Quantity, points: tuple[str, str], *, log: bool, resamples: int = RESAMPLES
) -> Effect:
    """First minus second, each at its point; log: the logarithm of first over second.

    Rows measured together are compared turn by turn: the median of the differences of same turns, in which a machine
    that slows down slows both. Other rows, other points and counts: the difference of the medians.
    """
    if points[0] == points[1]:
        return _contrast(first, second, reading, [points[0]], (1.0,), log, resamples)
    samples = []
    for row, point in zip((first, second), points, strict=True):
        runs = taken(row, reading, [point])
        samples.append(_sample(row, reading, _logs(row, runs) if log else runs, [point]))
    return Effect(estimate(samples, resamples=resamples), UNPAIRED)


def exponent(
    rows: Sequence[Row], reading: Quantity, over: tuple[float, float], *, resamples: int = RESAMPLES
) -> tuple[Effect, list[str], float]:
    """Slope of log value on log point by least squares, or the difference of two rows' slopes at the same points.

    Returns the effect, the points, and the largest deviation of a row's medians from its line, as a share.
    """
    points = [point for point in common_points(rows, reading) if over[0] <= (number_of(point) or 0.0) <= over[1]]
    if len(points) < FEWEST_POINTS:
        raise Missing(
            f"{reading.name}: an exponent needs {FEWEST_POINTS} points from {over[0]:g} to {over[1]:g}, "
            f"got {', '.join(points) or 'none'}"
        )
    at = np.log([number_of(point) or np.nan for point in points])
    weights = least_squares(at)
    deviation = max(_deviation(row, reading, points, at, weights) for row in rows)
    if len(rows) == 2:
        return _contrast(rows[0], rows[1], reading, points, weights, True, resamples), points, deviation
    runs = _logs(rows[0], taken(rows[0], reading, points))
    return Effect(estimate([_sample(rows[0], reading, runs, points, weights)], resamples=resamples)), points, deviation


def common_points(rows: Sequence[Row], reading: Quantity) -> list[str]:
    """Points that are numbers and that every row has measured. Raises Missing where a row has none of the quantity."""
    for row in rows:
        taken(row, reading, [])
    found = [points_of(row, reading) for row in rows]
    numeric = {point for point in found[0] if number_of(point) is not None}
    return in_order(numeric.intersection(*found[1:]))


def _deviation(row: Row, reading: Quantity, points: list[str], at: Array, weights: tuple[float, ...]) -> float:
    runs = _logs(row, taken(row, reading, points))
    values = np.array([[np.median(run[point]) for point in points] for run in runs.values()]).mean(axis=0)
    line = values.mean() + float(values @ np.array(weights)) * (at - at.mean())
    return float(np.expm1(np.abs(values - line).max()))


def _contrast(
    first: Row,
    second: Row,
    reading: Quantity,
    points: list[str],
    weights: tuple[float, ...],
    log: bool,
    resamples: int,
) -> Effect:
    runs = [taken(row, reading, points) for row in (first, second)]
    if log:
        runs = [_logs(row, by_run) for row, by_run in zip((first, second), runs, strict=True)]
    timed = any(_timed(row, reading) for row in (first, second))
    pairs = [
        (runs[0][a.folder.name], runs[1][b.folder.name])
        for a in first.ok
        for b in second.ok
        if measured_together(a, b) and a.folder.name in runs[0] and b.folder.name in runs[1]
    ]
    pairs = [(a, b) for a, b in pairs if all(min(len(a[point]), len(b[point])) > 1 for point in points)]
    if pairs:
        turns = tuple(tuple(_turns(a[point], b[point]) for point in points) for a, b in pairs)
        of = max(len(by_run) for by_run in runs)
        note = "compared turn by turn" + (f" in {len(pairs)} of {of} runs" if len(pairs) < of else "")
        return Effect(estimate([Sample(turns, weights, timed)], resamples=resamples), note)
    samples = [
        _sample(row, reading, by_run, points, weights) for row, by_run in zip((first, second), runs, strict=True)
    ]
    return Effect(estimate(samples, resamples=resamples), UNPAIRED)


def measured_together(first: Run, second: Run) -> bool:
    """Whether repeats of the same index are of the same turn: the two were measured in one go."""
    return all(
        first.field(key) is not None and first.field(key) == second.field(key) for key in ("table", "seed", "started")
    )


def _turns(first: Array, second: Array) -> Array:
    shared = min(len(first), len(second))
    return first[:shared] - second[:shared]


def _timed(row: Row, reading: Quantity) -> bool:
    return any(samples.timed for samples in samples_of(row, reading).values())


def _sample(
    row: Row,
    reading: Quantity,
    runs: dict[str, Taken],
    points: Sequence[str],
    weights: tuple[float, ...] = (1.0,),
) -> Sample:
    return Sample(tuple(tuple(run[p] for p in points) for run in runs.values()), weights, _timed(row, reading))


def _logs(row: Row, runs: dict[str, Taken]) -> dict[str, Taken]:
    for run in runs.values():
        for point, repeats in run.items():
            if (repeats <= 0).any():
                raise Missing(f"the effect is undefined: {row.id} has a value of {repeats.min():g} at {point}")
    return {name: {point: np.log(repeats) for point, repeats in run.items()} for name, run in runs.items()}
