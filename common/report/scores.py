"""Corpus scores from summed statistics, vectorised over leading dimensions (resamples, seeds, length bins).

A corpus score is a function of sums over sentences, never a mean of sentence scores: so a resample of a test set is
a weighted sum of the statistics that lie beside a result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BLEU_ORDER = 4
CHRF_ORDER = 6


def bleu(sums: Array) -> Array:
    """Corpus BLEU, 0 to 100, as sacreBLEU computes it by default (exponential smoothing, no effective order).

    sums: (..., 10) = system length c, reference length r, matches m_1..m_4, n-grams t_1..t_4.
    BLEU = BP * exp(1/4 * sum_n log p_n), BP = exp(min(0, 1 - r/c)), p_n = 100 m_n / t_n; the k-th order without a match
    gets p_n = 100 / (2^k t_n) instead. 0 without any match, or where some t_n is 0. Papineni et al. (2002), eq. 1-3.
    """
    system, reference = sums[..., 0], sums[..., 1]
    matches, totals = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
    unmatched = matches == 0
    numerators = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=-1), matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_precisions = np.log(100 * numerators / totals)
        score = np.exp(np.minimum(0.0, 1 - reference / system) + log_precisions.mean(axis=-1))
    scored = (matches > 0).any(axis=-1) & (totals > 0).all(axis=-1) & (system > 0)
    return np.where(scored, score, 0.0)


def multi_bleu(sums: Array) -> Array:
    """Corpus BLEU without smoothing, as multi-bleu.perl: 0 where some order has no match. sums: as `bleu`."""
    return np.where((sums[..., 2 : 2 + BLEU_ORDER] > 0).all(axis=-1), bleu(sums), 0.0)


def chrf(sums: Array) -> Array:
    """Corpus chrF2, 0 to 100, as sacreBLEU computes it by default (character order 6, no words, effective order).

    sums: (..., 18) = for each order n = 1..6: n-grams of the hypothesis, of the reference, matches.
    Precision and recall are averaged over the orders that occur on both sides; chrF = 5PR / (4P + R). Popovic (2015).
    """
    triples = sums.reshape(*sums.shape[:-1], CHRF_ORDER, 3)
    hypothesis, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    used = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(used.sum(axis=-1), 1)
    precision = np.divide(matches, hypothesis, out=np.zeros_like(matches), where=used).sum(axis=-1) / orders
    recall = np.divide(matches, reference, out=np.zeros_like(matches), where=used).sum(axis=-1) / orders
    denominator = 4 * precision + recall
    return 100 * np.divide(5 * precision * recall, denominator, out=np.zeros_like(denominator), where=denominator > 0)


def quotient(sums: Array) -> Array:
    """Return the first sum over the second: a mean, or a rate per token. sums: (..., 2). NaN where the second is 0."""
    top, bottom = sums[..., 0], sums[..., 1]
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)


def aer(sums: Array) -> Array:
    """Alignment error rate, 0 (best) to 1 (Och and Ney 2003). NaN without any link.

    sums: (..., 4) = made links that are sure, made links that are possible, made links, sure links.
    """
    hits, links = sums[..., 0] + sums[..., 1], sums[..., 2] + sums[..., 3]
    return 1 - np.divide(hits, links, out=np.full_like(hits, np.nan), where=links != 0)
