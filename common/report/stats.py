"""Intervals and tests: a bootstrap over clusters of test items and over seeds, Holm's correction, power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from common.report.scores import Array

RESAMPLES = 2000
LEVEL = 0.05
POWER = 0.80
ROUNDING = 1e-9
"""A standard error below it is none."""


@dataclass(frozen=True, eq=False)
class System:
    """What one row gave. `sums`: (seeds, clusters, ...) statistics summed per cluster; `score` maps sums to scores.

    `score` reduces the last dimension of the sums at least; what it leaves (length bins, say) is estimated one by one.
    """

    sums: Array
    score: Callable[[Array], Array]

    def scores(self, weights: Array) -> Array:
        """Scores of weighted clusters: weights (R, clusters) -> (R, seeds, ...)."""
        seeds, clusters, *rest = self.sums.shape
        flat = self.sums.transpose(1, 0, *range(2, self.sums.ndim)).reshape(clusters, -1)
        return self.score((weights @ flat).reshape(len(weights), seeds, *rest))


@dataclass(frozen=True)
class Estimate:
    """An effect with its 95% interval. `se`: standard error; `df`: its degrees of freedom; se 0: no spread is known.

    `exact`: there is none (bytes counted, say): the value is certain and its interval has no width.
    """

    value: float
    low: float
    high: float
    se: float
    df: float
    exact: bool = False

    def p_above(self, null: float = 0.0) -> float:
        """One-sided p-value of the effect being above `null` (1 where no spread is known: nothing can be concluded)."""
        if self.exact:
            return 0.0 if self.value > null else 1.0
        return 1.0 if self.se == 0 else float(t.sf((self.value - null) / self.se, self.df))

    def p_below(self, null: float = 0.0) -> float:
        """One-sided p-value of the effect being below `null`."""
        if self.exact:
            return 0.0 if self.value < null else 1.0
        return 1.0 if self.se == 0 else float(t.cdf((self.value - null) / self.se, self.df))

    def p_differs(self, null: float = 0.0) -> float:
        """Two-sided p-value of the effect differing from `null`."""
        return min(1.0, 2 * min(self.p_above(null), self.p_below(null)))

    def p_within(self, margin: float) -> float:
        """Two one-sided tests: p-value of |effect| being below `margin` (equivalence)."""
        return self.p_inside(-margin, margin)

    def p_inside(self, low: float, high: float) -> float:
        """Two one-sided tests: p-value of the effect lying between `low` and `high`."""
        return max(self.p_below(high), self.p_above(low))

    def p_outside(self, low: float, high: float) -> float:
        """One-sided p-value of the effect lying beyond the edge that it is nearer to."""
        return self.p_above(high) if self.value > (low + high) / 2 else self.p_below(low)

    @property
    def detectable(self) -> float:
        """Minimal detectable effect: what a two-sided 5% test finds with 80% power, (t_0.975 + t_0.80) * se."""
        return float(self.se * (t.ppf(1 - LEVEL / 2, self.df) + t.ppf(POWER, self.df)))


def bootstrap(
    systems: Sequence[System],
    combine: Callable[[Sequence[Array]], Array] = lambda scores: scores[0],
    *,
    resamples: int = RESAMPLES,
    seed: int = 1,
    same_seeds: bool = False,
) -> list[Estimate]:
    """Estimate combine(mean score of each system over its seeds), one Estimate per trailing element.

    Each resample draws clusters with replacement, the same for every system (paired), and seeds with replacement for
    each system by itself; with same_seeds the same for all, whose models of a seed then have to be made of each other.
    n - 1 of n are drawn, so that the variance is not too small by (n - 1) / n (Rao and Wu 1988).
    Percentiles of the draws then count three seeds as if their spread were known; so draws are stretched about the
    estimate by t / z at Satterthwaite's degrees of freedom, and p-values use that t. Clusters alone: t is nearly z.
    """
    rng = np.random.default_rng(seed)
    clusters = systems[0].sums.shape[1]
    assert all(system.sums.shape[1] == clusters for system in systems)
    cluster_weights = _draw(rng, clusters, resamples)
    points = [system.scores(np.ones((1, clusters)))[0] for system in systems]
    means = [point.mean(axis=0) for point in points]
    groups = [[*range(len(systems))]] if same_seeds else [[i] for i in range(len(systems))]
    sizes = [len(systems[group[0]].sums) for group in groups]
    assert all(len(systems[i].sums) == n for group, n in zip(groups, sizes, strict=True) for i in group)
    drawn = [_draw(rng, n, resamples) / n for n in sizes]
    seed_weights = [weights for group, weights in zip(groups, drawn, strict=True) for _ in group]
    value = combine(means)
    draws = combine(
        [
            np.einsum("rs,rs...->r...", weights, system.scores(cluster_weights))
            for weights, system in zip(seed_weights, systems, strict=True)
        ]
    )
    by_seeds = []
    for group, weights in zip(groups, drawn, strict=True):
        moved = [
            np.einsum("rs,s...->r...", weights, points[i]) if i in group else mean[None] for i, mean in enumerate(means)
        ]
        by_seeds.append(combine(moved).var(axis=0))
    degrees = _degrees(draws.var(axis=0), clusters, by_seeds, sizes)
    return estimates(value, draws, degrees)


def _draw(rng: np.random.Generator, n: int, resamples: int) -> Array:
    """Weights (resamples, n) of n - 1 draws out of n, scaled to sum to n."""
    drawn = max(n - 1, 1)
    return (rng.multinomial(drawn, np.full(n, 1 / n), size=resamples) * (n / drawn)).astype(np.float64)


def _degrees(total: Array, clusters: int, by_seeds: list[Array], seeds: list[int]) -> Array:
    """Satterthwaite: total^2 / sum of part^2 / df; the parts are the clusters and the seeds of each system."""
    rest = np.maximum(total - sum(by_seeds), 0)
    parts = rest**2 / max(clusters - 1, 1)
    for variance, n in zip(by_seeds, seeds, strict=True):
        parts = parts + variance**2 / max(n - 1, 1)
    return np.divide(total**2, parts, out=np.ones_like(total), where=parts > 0)


def estimates(value: Array, draws: Array, degrees: Array) -> list[Estimate]:
    """An Estimate of each trailing element of `value` from its draws (resamples, ...), stretched as in `bootstrap`."""
    stretch = t.ppf(1 - LEVEL / 2, degrees) / norm.ppf(1 - LEVEL / 2)
    low, high = np.percentile(value + (draws - value) * stretch, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)], axis=0)
    columns = (value, low, high, draws.std(axis=0), degrees)
    rows = zip(*(np.atleast_1d(column).tolist() for column in columns), strict=True)
    return [Estimate(value, low, high, se, df) for value, low, high, se, df in rows]


def with_unseen(effect: Estimate, clusters: int, limits: tuple[float, float]) -> Estimate:
    """Of an effect that no resample changes, as all clusters are alike: with what may have gone unseen.

    Up to a share -ln(0.05 / 2) / n of all clusters may be others without one of n being so in 2.5 of 100 draws (the rule of
    three: Hanley and Lippman-Hand 1983), and each moves the effect by the width of its limits at most.
    """
    assert clusters > 1
    low, high = limits
    reach = (high - low) * float(-np.log(LEVEL / 2)) / clusters
    df = clusters - 1
    return Estimate(
        effect.value,
        max(low, effect.value - reach),
        min(high, effect.value + reach),
        se=reach / float(t.ppf(1 - LEVEL / 2, df)),
        df=df,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in order: the k-th smallest of m times m - k + 1, made non-decreasing."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum(1.0, np.maximum.accumulate(np.asarray(p_values, dtype=float)[order] * factors))
    result = np.empty(len(p_values))
    result[order] = adjusted
    return result.tolist()
