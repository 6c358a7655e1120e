"""Medians and their intervals against closed forms, explicit resampling and simulated data."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from common.report.medians import Sample, estimate, least_squares, median_draws, weakest
from common.report.stats import Estimate

Rng = np.random.Generator


def one(*runs, timed: bool = True) -> Estimate:
    """The estimate of one point, given the repeats of each run."""
    return estimate([Sample(tuple((np.array(run, dtype=float),) for run in runs), timed=timed)])


@pytest.mark.parametrize("n", [2, 3, 5, 6, 15])
def test_draws_are_medians_of_resamples(n: int):
    """The median of m draws is at most the k-th of n values if at least (m + 1) / 2 draws are."""
    m = n if n % 2 else n - 1
    drawn = median_draws(np.arange(n)[::-1].astype(float), 40_000, np.random.default_rng(0))
    for k in range(n):
        assert (drawn <= k).mean() == pytest.approx(binom.sf((m - 1) // 2, m, (k + 1) / n), abs=0.01)


def test_the_value_is_the_mean_over_runs_of_medians_however_many_repeats_a_run_has():
    found = one([1, 2, 30], [10.0] * 40 + [11.0])
    assert found.value == (2 + 10) / 2
    assert found.low < found.value < found.high


def test_one_lucky_repeat_does_not_move_it():
    assert one([5, 5.1, 4.9, 5.05, 500]).value == 5.05


def test_least_squares_is_the_slope():
    at, values = np.log([128.0, 256, 1024, 4096]), np.array([1.0, 1.7, 3.9, 4.4])
    assert np.dot(least_squares(at), values) == pytest.approx(np.polyfit(at, values, 1)[0])
    assert np.dot(least_squares(at), 3 + 1.9 * at) == pytest.approx(1.9)


def test_points_are_weighted():
    at = np.log([1.0, 2, 4, 8])
    repeats = [np.array([-0.01, 0, 0.01]) + 2 * x for x in at]
    assert estimate([Sample((tuple(repeats),), least_squares(at))]).value == pytest.approx(2.0)


@pytest.mark.parametrize("runs", [([7.0],), ([7.0], [7.0]), ([7.0, 7.0],), ([0.1], [0.1], [0.1])])
def test_what_is_counted_is_exact(runs: tuple[list[float], ...]):
    found = one(*runs, timed=False)
    assert found.exact and found.low == found.value == found.high == pytest.approx(runs[0][0])
    assert found.p_above(found.value - 1e-9) == 0.0 and found.p_below(found.value - 1e-9) == 1.0
    assert found.p_above(found.value + 1e-9) == 1.0 and found.p_below(found.value + 1e-9) == 0.0


def test_a_time_taken_once_says_nothing_of_its_spread():
    for runs in (([7.0],), ([7.0], [7.0])):
        found = one(*runs)
        assert not found.exact and found.se == 0
        assert found.p_above(0.0) == 1.0


def test_a_point_timed_once_spoils_an_exponent():
    repeats = (np.array([1.0, 1.1, 0.9]), np.array([2.0]), np.array([3.0, 3.1, 2.9]))
    assert estimate([Sample((repeats,), (-0.5, 0.0, 0.5))]).se == 0


def test_counts_that_differ_between_runs_are_not_exact():
    found = one([7.0], [8.0], [9.0], timed=False)
    assert not found.exact and found.df == pytest.approx(2)
    assert found.se == pytest.approx(1 / 3**0.5, rel=0.05)


def test_repeats_that_hardly_ever_differ_give_a_certain_median():
    found = one([1000.0] * 30 + [1004.0], timed=False)
    assert found.exact and found.value == 1000.0


def test_constant_ratios_are_not_kept_apart_by_rounding():
    times = np.random.default_rng(0).uniform(1, 2, 9)
    assert estimate([Sample(((np.log(3 * times) - np.log(times),),))]).exact


def test_the_spread_over_runs_holds_that_of_repeats_already():
    """Runs of 21 repeats each, whose medians are 1.0, 1.3, 1.9: their mean has the error of three values."""
    repeats = np.linspace(-1, 1, 21)
    found = one(*(middle + repeats for middle in (1.0, 1.3, 1.9)))
    assert found.se == pytest.approx(np.std([1.0, 1.3, 1.9], ddof=1) / 3**0.5, rel=0.05)
    assert found.df == pytest.approx(2)


def test_two_independent_samples_are_subtracted():
    rng = np.random.default_rng(1)
    first, second = (Sample(((rng.normal(m, 1, 400),),)) for m in (5.0, 3.0))
    found = estimate([first, second], resamples=4000)
    assert found.value == pytest.approx(np.median(first.runs[0][0]) - np.median(second.runs[0][0]))
    assert found.se == pytest.approx((2 * np.pi / 2 / 400) ** 0.5, rel=0.2)  # of a median: sd * sqrt(pi / 2 / n)


def coverage(make: Callable[[Rng], list[Sample]], truth: float, sets: int = 250) -> tuple[float, float]:
    """The share of 95% intervals that hold the truth, and of p-values below 0.05."""
    rng = np.random.default_rng(2)
    found = [estimate(make(rng), resamples=300, seed=i) for i in range(sets)]
    held = sum(e.low <= truth <= e.high for e in found) / sets
    return held, sum(e.p_differs(truth) < 0.05 for e in found) / sets


def heavy(rng: Rng, n: int) -> np.ndarray:
    """Log times: noise, and one repeat in ten disturbed, so that it takes up to 30% longer."""
    return rng.normal(0, 0.03, n) + (rng.random(n) < 0.1) * rng.uniform(0, 0.26, n)


CENTRE = float(np.median(heavy(np.random.default_rng(3), 2_000_001)))


@pytest.mark.parametrize("repeats", [5, 10, 20, 50])
def test_an_interval_holds_the_median_time(repeats: int):
    held, rejected = coverage(lambda rng: [Sample(((heavy(rng, repeats),),))], CENTRE)
    assert 0.90 <= held <= 0.995
    assert rejected <= 0.08


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("repeats", [7, 20])
def test_an_interval_holds_the_median_ratio(repeats: int, paired: bool):
    def make(rng: Rng) -> list[Sample]:
        first, second = (np.log(3) + heavy(rng, repeats), heavy(rng, repeats))
        if not paired:
            return [Sample(((first,),)), Sample(((second,),))]
        drift = rng.normal(0, 0.5, repeats)
        return [Sample((((first + drift) - (second + drift),),))]

    held, rejected = coverage(make, float(np.log(3)))
    assert 0.90 <= held <= 0.995
    assert rejected <= 0.08


@pytest.mark.parametrize("repeats", [5, 20])
def test_an_interval_holds_the_exponent(repeats: int):
    at = np.log([128.0, 256, 512, 1024, 2048])

    def make(rng: Rng) -> list[Sample]:
        return [Sample((tuple(1.3 * x + heavy(rng, repeats) for x in at),), least_squares(at))]

    held, rejected = coverage(make, 1.3, sets=500)
    assert 0.90 <= held <= 0.995
    assert rejected <= 0.08


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1])
def test_an_interval_holds_over_runs_that_differ(spread: float):
    """Three runs whose times differ by nothing, by as much as repeats do, by far more."""

    def make(rng: Rng) -> list[Sample]:
        return [Sample(tuple((rng.normal(0, spread) + heavy(rng, 10),) for _ in range(3)))]

    held, _ = coverage(make, CENTRE)
    assert 0.88 <= held <= 1.0 if spread == 0 else 0.88 <= held <= 0.995


def test_repeats_alone_would_not_hold_over_runs_that_differ():
    """What the spread over runs is there for: pooled into one run, the same times are far too sure."""

    def pooled(rng: Rng) -> list[Sample]:
        return [Sample(((np.concatenate([rng.normal(0, 0.1) + heavy(rng, 10) for _ in range(3)]),),))]

    assert coverage(pooled, CENTRE)[0] < 0.8


def of(value: float, se: float = 0.1) -> Estimate:
    return Estimate(value, value - 1.96 * se, value + 1.96 * se, se, 1e9)


def test_the_weakest_of_one_is_itself():
    effect = of(0.3)
    found = weakest([effect], 1, 0.0)
    assert found.estimate == effect and found.favours
    assert found.p == pytest.approx(effect.p_differs())


def test_the_weakest_decides_and_its_interval_reaches_as_far_as_any():
    found = weakest([of(0.9), of(0.3), of(0.5, 0.4)], 1, 0.0)
    assert (found.index, found.estimate.value, found.favours) == (1, 0.3, True)
    assert found.estimate.low == pytest.approx(0.5 - 1.96 * 0.4)  # the uncertain one may be the weakest
    assert found.p == pytest.approx(of(0.5, 0.4).p_differs())
    assert found.estimate.high == pytest.approx(0.3 + 2.394 * 0.1, abs=1e-3)  # z of 1 - 0.025 / 3


def test_against_the_claim_every_point_had_a_chance():
    found = weakest([of(0.9), of(-0.3), of(0.5)], 1, 0.0)
    assert not found.favours
    assert found.p == pytest.approx(3 * of(-0.3).p_differs())


def test_less_is_the_mirror_of_greater():
    effects = [of(0.9), of(-0.2), of(0.4, 0.3)]
    up, down = weakest(effects, 1, 0.1), weakest([mirror(e) for e in effects], -1, -0.1)
    assert (down.p, down.favours, down.index, down.detectable) == (up.p, up.favours, up.index, up.detectable)
    assert down.estimate == mirror(up.estimate)


def mirror(effect: Estimate) -> Estimate:
    return replace(effect, value=-effect.value, low=-effect.high, high=-effect.low)


def simulated(truths: list[float], sets: int = 1000) -> tuple[float, float, float]:
    """Shares of: concluded for the claim; concluded against it; intervals that hold the smallest truth."""
    rng = np.random.default_rng(4)
    values = rng.normal(truths, 0.1, (sets, len(truths)))
    found = [weakest([of(value) for value in row], 1, 0.0) for row in values]
    sure = [f.p < 0.05 for f in found]
    held = [f.estimate.low <= min(truths) <= f.estimate.high for f in found]
    favour = sum(s and f.favours for s, f in zip(sure, found, strict=True))
    return favour / sets, sum(sure) / sets - favour / sets, sum(held) / sets


@pytest.mark.parametrize("truths", [[0.0, 5.0, 5.0], [0.0] * 6, [0.0]])
def test_faster_from_a_length_on_is_wrongly_concluded_at_most_one_time_in_forty(truths: list[float]):
    favour, against, held = simulated(truths)
    assert favour <= 0.04
    assert against <= 0.04
    assert held >= 0.94


def test_faster_from_a_length_on_can_be_found_and_refuted():
    assert simulated([0.5] * 8, 100)[0] > 0.95
    assert simulated([0.5] * 7 + [-0.5], 100)[1] > 0.95
