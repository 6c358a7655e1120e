"""Perplexity of a test set: sums over all tokens, divided and exponentiated once."""

import math
from collections.abc import Sequence

import numpy as np

from common.metrics.score import Score


def perplexity(*, nll: Sequence[float], tokens: Sequence[int]) -> Score:
    """exp(sum nll / sum tokens) of a test set.

    Args:
        nll: summed negative log-likelihood of each sentence, in nats.
        tokens: predicted tokens of each sentence, EOS counted.

    Returns:
        statistics (sentences, 2): nll, tokens.

    Raises:
        ValueError: if the two differ in length, or there is no token.
    """
    if len(nll) != len(tokens) or sum(tokens) == 0:
        raise ValueError(
            f"need nll and tokens of each sentence; got {len(nll)} and {len(tokens)}, {sum(tokens)} tokens"
        )
    value = math.exp(math.fsum(nll) / sum(tokens))
    return Score(value, "perplexity|exp(sum nll / sum tokens)|eos:yes", np.array([nll, tokens], dtype=np.float64).T)
