"""Intervals of medians: a bootstrap over repeats, the spread over runs, and the weakest of several points.

What is estimated is the mean over runs of a run's own value, and that is a weighted sum over points of the median of its
repeats: one point of weight 1 for a plain value; the weights of least squares for an exponent. Runs count alike,
however many repeats each has, so that repeats of one lucky run don't outvote the others. On a log scale the mean over
runs is a geometric one, and a difference is a ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t

from common.report.scores import Array
from common.report.stats import LEVEL, RESAMPLES, Estimate, estimates

ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Sample:
    """`runs`: per run and point the repeats, on the scale of the effect; `weights` of the points.

    `timed`: another repeat would have given another value, so a single one says nothing about its spread.
    """

    runs: tuple[tuple[Array, ...], ...]
    weights: tuple[float, ...] = (1.0,)
    timed: bool = True

    @property
    def spread_unknown(self) -> bool:
        """Whether a point was timed once, in one run."""
        return self.timed and len(self.runs) == 1 and any(len(repeats) == 1 for repeats in self.runs[0])

    @property
    def repeated(self) -> bool:
        """Whether agreement of all repeats means something: none was timed once."""
        return not self.timed or all(len(repeats) > 1 for run in self.runs for repeats in run)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """`draws` (resamples,) of a value, and the variances that they are made of, each with its degrees of freedom.

    `size` of the numbers that the value is made of: a spread far below it is rounding.
    """

    value: float
    size: float
    draws: Array
    parts: tuple[tuple[float, int], ...]


def estimate(samples: Sequence[Sample], *, resamples: int = RESAMPLES, seed: int = 1) -> Estimate:
    """Estimate one sample, or the first minus the second of two that are independent of each other.

    Each resample draws the repeats at every point of every run with replacement. Runs are too few to be drawn: where
    their values differ by more than their repeats explain, a normal deviate of the rest of that variance is added. Draws
    are stretched as in `stats.bootstrap`, by Satterthwaite's degrees of freedom: five repeats or three runs do not tell
    their own spread well (two hardly at all: of two that happen to agree the interval is too narrow). Where no draw
    differs from the value it is exact; where a time was taken once nothing is known of its spread (se 0).
    """
    rng = np.random.default_rng(seed)
    drawn = [_resampled(sample, resamples, rng) for sample in samples]
    value = drawn[0].value - sum(other.value for other in drawn[1:])
    draws = drawn[0].draws - sum(other.draws for other in drawn[1:])
    if any(sample.spread_unknown for sample in samples):
        return Estimate(value, value, value, 0.0, 1.0)
    if draws.std() <= ROUNDING * max(other.size for other in drawn):
        return Estimate(value, value, value, 0.0, 1.0, exact=all(sample.repeated for sample in samples))
    parts = [(variance, df) for other in drawn for variance, df in other.parts if variance > 0]
    degrees = sum(variance for variance, _ in parts) ** 2 / sum(variance**2 / df for variance, df in parts)
    return estimates(np.array(value), draws[:, None], np.array(degrees))[0]


def _resampled(sample: Sample, resamples: int, rng: np.random.Generator) -> _Drawn:
    n = len(sample.runs)
    medians = np.array([[np.median(repeats) for repeats in run] for run in sample.runs])
    weights = np.array(sample.weights)
    by_run = medians @ weights
    moves, parts = np.zeros(resamples), []
    for run, middle in zip(sample.runs, medians, strict=True):
        for repeats, median, weight in zip(run, middle, weights, strict=True):
            moved = weight * (median_draws(repeats, resamples, rng) - median) / n
            moves += moved
            parts.append((float(moved.var()), max(len(repeats) - 1, 1)))
    if n > 1 and (between := float(by_run.var(ddof=1)) / n) > (noise := sum(variance for variance, _ in parts)):
        moves += rng.normal(0.0, np.sqrt(between - noise), resamples)
        parts = [(between, n - 1)]
    return _Drawn(float(by_run.mean()), float(np.abs(medians * weights).max()), by_run.mean() + moves, tuple(parts))


def median_draws(repeats: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Medians of resamples of n repeats (n - 1 of them where n is even, so that a median is always one of them).

    Resampling is choosing places u in [0, 1) of the sorted repeats; the median of m = 2a - 1 such places is Beta(a, a).
    """
    n = len(repeats)
    a = (n + 1) // 2
    places = np.minimum((rng.beta(a, a, resamples) * n).astype(np.intp), n - 1)
    return np.sort(repeats)[places]


def least_squares(at: Array) -> tuple[float, ...]:
    """Weights of points `at` (n,) that make the least squares slope out of values there: sum of weight * value."""
    centred = at - at.mean()
    return tuple(float(weight) for weight in centred / (centred**2).sum())


@dataclass(frozen=True)
class Weakest:
    """The weakest of several effects, as one: `p` two-sided, `favours`: whether it lies on the claim's side."""

    estimate: Estimate
    p: float
    favours: bool
    detectable: float
    index: int


def weakest(effects: Sequence[Estimate], direction: int, null: float) -> Weakest:
    """Test that every effect lies on the claim's side of `null`, by the weakest one.

    For the claim all must hold, so the largest p-value decides and nothing is to be corrected (an intersection-union
    test; Berger 1982). Against it one is enough, and as many had the chance: the smallest p-value times their number.
    The interval of the weakest effect follows suit: towards no effect it reaches as far as the furthest interval of all,
    on the other side as far as the nearest limit when each is taken at LEVEL / number (a limit for one is one for
    the weakest).
    """
    toward = [_mirrored(effect) if direction < 0 else effect for effect in effects]
    null = direction * null
    index = int(np.argmin([effect.value for effect in toward]))
    p_for = max(effect.p_above(null) for effect in toward)
    p_against = min(1.0, len(toward) * min(effect.p_below(null) for effect in toward))
    value, low = toward[index].value, min(effect.low for effect in toward)
    high = max(value, min(_upper(effect, len(toward)) for effect in toward))
    merged = replace(toward[index], low=low, high=high, exact=all(effect.exact for effect in toward))
    return Weakest(
        _mirrored(merged) if direction < 0 else merged,
        min(1.0, 2 * min(p_for, p_against)),
        p_for < p_against,
        max(effect.detectable for effect in toward),
        index,
    )


def _mirrored(effect: Estimate) -> Estimate:
    return replace(effect, value=-effect.value, low=-effect.high, high=-effect.low)


def _upper(effect: Estimate, among: int) -> float:
    """The upper limit at LEVEL / 2 / among."""
    if among == 1 or effect.se == 0:
        return effect.high
    return effect.value + float(t.ppf(1 - LEVEL / 2 / among, effect.df)) * effect.se
