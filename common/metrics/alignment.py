"""How monotone an attention matrix is: does the attended source position rise with the target position?"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata


def monotonicity(weights: np.ndarray, *, seed: int | Sequence[int]) -> tuple[float, float]:
    """Monotonicity of one sentence, and its null.

    A target word i attends to the expected source position e_i = sum_j weights[i, j] * j. The statistic is Spearman's
    rank correlation of e_i with i: 1 if every word looks further right than the one before, -1 if the order is
    reversed, 0 if all look at the same place. The null is the statistic of the same matrix with its target words
    shuffled: over many sentences it averages 0, with the spread that sentences of these lengths have by chance.

    Args:
        weights: (target words, source words), every row a distribution; without the row of EOS.
        seed: of the shuffle. Give each sentence its own, e.g. (seed, sentence), or those of one length share an order.

    Returns:
        (statistic, null), each from -1 to 1.

    Raises:
        ValueError: for fewer than two target words, which have no order, or rows that are no distributions.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or len(weights) < 2:
        raise ValueError(f"need a matrix (target words >= 2, source words); got shape {weights.shape}")
    if not (weights >= 0).all() or not np.allclose(weights.sum(axis=1), 1, atol=1e-2):
        raise ValueError(
            f"every row must be a distribution over source words; got rows summing to {weights.sum(axis=1)}"
        )
    expected = np.round(weights @ np.arange(weights.shape[1]), 4)  # float noise is no order
    shuffled = np.random.default_rng(seed).permutation(expected)
    return _rises(expected), _rises(shuffled)


def _rises(values: np.ndarray) -> float:
    if (values == values[0]).all():
        return 0.0
    return float(np.corrcoef(np.arange(len(values)), rankdata(values))[0, 1])
