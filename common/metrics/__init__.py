"""Metrics. A result is a `Score`: the value, how it was computed, and what it was computed from."""

from common.metrics.alignment import monotonicity
from common.metrics.bleu import bleu, chrf
from common.metrics.perplexity import TokenLoss, perplexity
from common.metrics.score import Score

__all__ = ["Score", "TokenLoss", "bleu", "chrf", "monotonicity", "perplexity"]
