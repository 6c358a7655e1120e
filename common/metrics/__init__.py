"""Metrics. A result is a `Score`: the value, how it was computed, and what it was computed from.

Without torch, so that stored sentences can be scored again; `TokenLoss`, for training, is in `common.metrics.token_loss`.
"""

from common.metrics.aer import aer
from common.metrics.alignment import monotonicity
from common.metrics.bleu import bleu, chrf
from common.metrics.ladder import ladder
from common.metrics.perplexity import perplexity
from common.metrics.score import Score

__all__ = ["Score", "aer", "bleu", "chrf", "ladder", "monotonicity", "perplexity"]
