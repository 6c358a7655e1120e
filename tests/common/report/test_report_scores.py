"""BLEU and chrF from sums: worked by hand, and against sacreBLEU on random text."""

import math

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from common.report.scores import bleu, chrf, quotient


def test_bleu_worked_by_hand():
    # "the cat sat on the mat" against "the cat sat on a mat yesterday": 5 of 6 words, 3 of 5 pairs, 2 of 4 triples,
    # 1 of 3 fours match; brevity penalty exp(1 - 7/6).
    sums = np.array([6, 7, 5, 3, 2, 1, 6, 5, 4, 3], dtype=float)
    expected = 100 * math.exp(1 - 7 / 6) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu(sums) == pytest.approx(expected, abs=1e-12)


def test_smoothing_halves_for_each_order_without_a_match():
    # No triples and no fours match: they count as 1/2 and 1/4 of a match.
    sums = np.array([6, 6, 4, 2, 0, 0, 6, 5, 4, 3], dtype=float)
    expected = 100 * (4 / 6 * 2 / 5 * 0.5 / 4 * 0.25 / 3) ** 0.25
    assert bleu(sums) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sums", [[0] * 10, [3, 3, 0, 0, 0, 0, 3, 2, 1, 0], [2, 2, 2, 1, 0, 0, 2, 1, 0, 0]])
def test_bleu_is_zero_without_a_match_or_without_four_grams(sums: list[int]):
    assert bleu(np.array(sums, dtype=float)) == 0.0
    reference = BLEU.compute_bleu(list(sums[2:6]), list(sums[6:]), sums[0], sums[1], smooth_method="exp")
    assert reference.score == 0.0


def test_no_penalty_for_a_translation_that_is_too_long():
    longer = np.array([12, 6, 6, 5, 4, 3, 12, 11, 10, 9], dtype=float)
    assert bleu(longer) == pytest.approx(100 * (6 / 12 * 5 / 11 * 4 / 10 * 3 / 9) ** 0.25, abs=1e-12)


def random_text(rng: np.random.Generator, n: int) -> list[str]:
    return [" ".join(rng.choice(["ab", "bc", "cab", "d", "éa"], rng.integers(1, 9))) for _ in range(n)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("ours", "scorer"), [(bleu, BLEU(tokenize="none", force=True)), (chrf, CHRF())])
def test_sums_give_what_sacrebleu_gives(seed: int, ours, scorer):
    rng = np.random.default_rng(seed)
    hypotheses, references = random_text(rng, 1 + seed), random_text(rng, 1 + seed)
    sums = np.array(scorer._extract_corpus_statistics(hypotheses, [references]), dtype=float).sum(axis=0)
    assert ours(sums) == pytest.approx(scorer.corpus_score(hypotheses, [references]).score, abs=1e-9)


def test_scores_are_vectorised_over_leading_dimensions():
    rng = np.random.default_rng(0)
    for score, width in ((bleu, 10), (chrf, 18), (quotient, 2)):
        sums = rng.integers(1, 50, (2, 3, width)).astype(float)
        each = [[score(sums[i, j]) for j in range(3)] for i in range(2)]
        np.testing.assert_allclose(score(sums), each, atol=1e-12)


def test_chrf_is_weighted_towards_recall():
    few_missed = np.array([20, 10, 10] * 6, dtype=float)  # precision 1/2, recall 1
    few_wrong = np.array([10, 20, 10] * 6, dtype=float)  # precision 1, recall 1/2
    assert chrf(few_missed) == pytest.approx(100 * 5 * 0.5 / (4 * 0.5 + 1))
    assert chrf(few_wrong) == pytest.approx(100 * 5 * 0.5 / (4 * 1 + 0.5))


def test_quotient_of_nothing_is_undefined():
    assert np.isnan(quotient(np.array([1.0, 0.0])))
