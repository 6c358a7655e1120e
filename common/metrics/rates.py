"""Scores that are a sum over all targets of a test set divided by their number."""

import math
from collections.abc import Sequence

import numpy as np

from common.metrics.score import Score

BITS = "bits per symbol|sum nll / ln 2 / sum symbols"
ACCURACY = "accuracy|right targets / all targets|percent"


def bits_per_symbol(*, nll: Sequence[float], targets: Sequence[int]) -> Score:
    """sum nll / ln 2 / sum targets: bits per character (or byte) of a text (Longformer, section 4.2, "BPC").

    nll: summed over each item, in nats; targets: predicted symbols of each. statistics: (items, 2), bits and symbols.
    Raises ValueError if the two differ in length, or there is no target.
    """
    bits = np.asarray(nll, dtype=np.float64) / math.log(2)
    return _rate(bits, targets, BITS)


def accuracy(*, hits: Sequence[int], targets: Sequence[int]) -> Score:
    """100 * right / all. hits: right answers of each item. statistics: (items, 2). Raises ValueError as above."""
    return _rate(100.0 * np.asarray(hits, dtype=np.float64), targets, ACCURACY)


def _rate(sums: np.ndarray, targets: Sequence[int], signature: str) -> Score:
    if len(sums) != len(targets) or sum(targets) == 0:
        raise ValueError(
            f"got values of {len(sums)} items and {sum(targets)} targets of {len(targets)}, expected as many"
        )
    return Score(math.fsum(sums) / sum(targets), signature, np.stack([sums, np.asarray(targets, float)], 1))
