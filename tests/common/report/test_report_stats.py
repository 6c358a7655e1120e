"""Bootstrap, tests and correction against closed forms and planted effects."""

import time
from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import norm, t

from common.report.scores import bleu, quotient
from common.report.stats import ROUNDING, Estimate, System, bootstrap, holm, with_unseen


def means(
    rng: np.random.Generator,
    *,
    seeds: int,
    clusters: int,
    effect: float,
    seed_sd: float,
    shared: np.ndarray | float = 0.0,
) -> System:
    """A system whose score is a mean: effect + what the chapters share + noise of chapter and of seed."""
    per_cluster = effect + shared + rng.normal(0, 0.3, clusters) + rng.normal(0, seed_sd, (seeds, 1))
    return System(np.stack([per_cluster * 20, np.full((seeds, clusters), 20.0)], axis=-1), quotient)


def difference(scores):
    return scores[0] - scores[1]


def test_what_may_be_unseen_in_a_hundred_items_that_are_alike():
    """All of 100 answered: by Clopper and Pearson 96.378 % to 100 %, as 0.96378^100 = 0.025; the limit of many items, that
    share being -ln(0.025) / n, is 3.689 % from 100. A gap of two rows moves by 200 at most."""
    alike = bootstrap([System(np.full((1, 100, 2), [100.0, 1.0]), quotient)])[0]
    assert alike.se < ROUNDING
    found = with_unseen(alike, 100, (0.0, 100.0))
    assert (found.value, found.high) == pytest.approx((100.0, 100.0)) and found.low == pytest.approx(96.378, abs=0.1)
    assert found.p_above(found.low) == pytest.approx(0.025) and found.p_above(90.0) < 0.001
    gap = with_unseen(Estimate(0.0, 0.0, 0.0, 0.0, 1), 2000, (-100.0, 100.0))
    assert (gap.low, gap.high) == pytest.approx((-0.3689, 0.3689), abs=1e-4)


def test_holm_worked_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 = 0.02, 0.03, 0.06, 0.04; the last may not fall below 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_stays_at_most_one_and_keeps_a_single_value():
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_standard_error_is_that_of_a_mean_of_clusters():
    values = np.random.default_rng(0).normal(5, 2, 50)
    system = System(np.stack([values, np.ones(50)], axis=-1)[None], quotient)
    [estimate] = bootstrap([system], resamples=20_000)
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.se == pytest.approx(values.std(ddof=1) / 50**0.5, rel=0.03)
    assert estimate.df == pytest.approx(49)
    half = t.ppf(0.975, 49) * estimate.se
    assert (estimate.low, estimate.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.05)


def test_standard_error_over_seeds_is_that_of_a_mean_of_seeds():
    # One cluster that never varies: only seeds give spread. Three seeds 1, 2, 6: sd / sqrt(3).
    seeds = np.array([1.0, 2.0, 6.0])
    sums = np.stack([np.repeat(seeds[:, None], 10, axis=1), np.ones((3, 10))], axis=-1)
    [estimate] = bootstrap([System(sums, quotient)], resamples=20_000)
    assert estimate.value == pytest.approx(3.0)
    assert estimate.se == pytest.approx(seeds.std(ddof=1) / 3**0.5, rel=0.03)
    assert estimate.df == pytest.approx(2, rel=0.01)


def test_the_same_seeds_take_out_what_the_seeds_share():
    """Seeds of 1, 2 and 6, and what is made of each, 0.4, 0.5 and 0.9 better: a mean of three differences, sd 0.2646."""
    base, gain = np.array([1.0, 2.0, 6.0]), np.array([0.4, 0.5, 0.9])
    pair = [
        System(np.stack([np.repeat(seeds[:, None], 10, axis=1), np.ones((3, 10))], axis=-1), quotient)
        for seeds in (base + gain, base)
    ]
    [together] = bootstrap(pair, difference, resamples=20_000, same_seeds=True)
    [apart] = bootstrap(pair, difference, resamples=20_000)
    assert together.value == apart.value == pytest.approx(0.6)
    assert together.se == pytest.approx(gain.std(ddof=1) / 3**0.5, rel=0.03)
    assert together.df == pytest.approx(2, rel=0.01)
    assert apart.se == pytest.approx(((base + gain).var(ddof=1) / 3 + base.var(ddof=1) / 3) ** 0.5, rel=0.03)


def test_pairing_takes_out_what_the_chapters_share():
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 10, 40)
    first, second = (means(rng, seeds=1, clusters=40, effect=e, seed_sd=0, shared=shared) for e in (0.5, 0.0))
    [paired] = bootstrap([first, second], difference)
    assert paired.se < 0.2 < 10 / 40**0.5  # the shared spread alone would give more than 1.5
    shuffled = System(second.sums[:, rng.permutation(40)], quotient)
    [unpaired] = bootstrap([first, shuffled], difference)
    assert unpaired.se > 1.0


@pytest.mark.parametrize(("seeds", "seed_sd"), [(1, 0.0), (3, 0.05), (3, 0.5), (2, 0.3)])
def test_a_true_null_is_rejected_about_one_time_in_twenty(seeds: int, seed_sd: float):
    rng = np.random.default_rng(2)
    rejected = missed = 0
    for repeat in range(400):
        shared = rng.normal(0, 1, 40)
        pair = [means(rng, seeds=seeds, clusters=40, effect=0, seed_sd=seed_sd, shared=shared) for _ in range(2)]
        [estimate] = bootstrap(pair, difference, resamples=300, seed=repeat)
        rejected += estimate.p_differs() < 0.05
        missed += not estimate.low <= 0 <= estimate.high
    assert 0.01 <= rejected / 400 <= 0.085
    assert 0.01 <= missed / 400 <= 0.085


def test_sentences_of_a_chapter_are_not_independent():
    """Resampling sentences where chapters vary would call nothing something far too often."""
    rng = np.random.default_rng(3)
    rejected = {"chapters": 0, "sentences": 0}
    for repeat in range(150):
        by_sentence = rng.normal(0, 1, (10, 1)) + rng.normal(0, 0.5, (10, 15))  # 10 chapters of 15 sentences
        for unit, values in (("chapters", by_sentence.mean(axis=1)), ("sentences", by_sentence.ravel())):
            system = System(np.stack([values, np.ones_like(values)], axis=-1)[None], quotient)
            rejected[unit] += bootstrap([system], resamples=300, seed=repeat)[0].p_differs() < 0.05
    assert rejected["chapters"] / 150 < 0.12
    assert rejected["sentences"] / 150 > 0.4


def test_a_detectable_effect_is_found_four_times_in_five():
    rng = np.random.default_rng(4)
    found = 0
    exact = (t.ppf(0.975, 39) + t.ppf(0.8, 39)) * 0.3 * 2**0.5 / 40**0.5
    for repeat in range(300):
        pair = [means(rng, seeds=1, clusters=40, effect=e, seed_sd=0) for e in (exact, 0.0)]
        [estimate] = bootstrap(pair, difference, resamples=300, seed=repeat)
        found += estimate.p_differs() < 0.05 and estimate.value > 0
        assert estimate.detectable == pytest.approx(exact, rel=0.5)
    assert 0.72 <= found / 300 <= 0.88


def test_p_values_of_an_estimate():
    estimate = Estimate(2.0, 0.0, 4.0, se=1.0, df=1e9)
    assert estimate.p_above() == pytest.approx(norm.sf(2))
    assert estimate.p_below() == pytest.approx(norm.cdf(2))
    assert estimate.p_differs() == pytest.approx(2 * norm.sf(2))
    assert estimate.p_differs(2.0) == pytest.approx(1.0)
    assert estimate.detectable == pytest.approx(1.95996 + 0.84162, abs=1e-4)


def test_equivalence_needs_both_sides():
    # Effect 0.5, standard error 0.5, margin 2: z of 3 to the upper edge, of 5 to the lower; the nearer one counts.
    assert Estimate(0.5, -0.5, 1.5, se=0.5, df=1e9).p_within(2.0) == pytest.approx(norm.sf(3))
    assert Estimate(-0.5, -1.5, 0.5, se=0.5, df=1e9).p_within(2.0) == pytest.approx(norm.sf(3))
    assert Estimate(3.0, 2.0, 4.0, se=0.5, df=1e9).p_within(2.0) == pytest.approx(norm.cdf(2))


def test_nothing_follows_from_one_value():
    [estimate] = bootstrap([System(np.array([[[3.0, 1.0]]]), quotient)])
    assert (estimate.value, estimate.se) == (3.0, 0.0)
    assert estimate.p_differs() == 1.0
    assert estimate.p_within(100.0) == 1.0


def test_trailing_dimensions_are_estimated_one_by_one():
    rng = np.random.default_rng(5)
    values = rng.normal([1.0, 7.0], 1.0, (2, 30, 2))
    both = bootstrap([System(np.stack([values, np.ones_like(values)], axis=-1), quotient)])
    alone = [bootstrap([System(np.stack([values[..., k], np.ones((2, 30))], axis=-1), quotient)])[0] for k in range(2)]
    for together, apart in zip(both, alone, strict=True):
        assert astuple(together) == pytest.approx(astuple(apart))


def test_two_thousand_resamples_take_less_than_a_second():
    rng = np.random.default_rng(6)
    systems = [System(rng.integers(1, 90, (3, 120, 10)).astype(float), bleu) for _ in range(2)]
    bootstrap(systems, difference, resamples=10)
    started = time.process_time()
    bootstrap(systems, difference, resamples=2000)
    assert time.process_time() - started < 1.0
