"""Scores against source length: bins, and the slope over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.report.scores import Array

SLOPE_PER = 10  # words


@dataclass(frozen=True)
class Bins:
    """Bins of `width` source words up to `up_to`; one of fewer than `fewest` sentences is left out and named."""

    width: int
    up_to: int
    fewest: int

    def ranges(self, low: int = 1, high: int | None = None) -> list[tuple[int, int]]:
        """Inclusive ranges 1-10, 11-20, ... cut to low..high."""
        high = self.up_to if high is None else high
        starts = range(1, self.up_to + 1, self.width)
        cut = [(max(start, low), min(start + self.width - 1, high)) for start in starts]
        return [(first, last) for first, last in cut if first <= last]


def counts(source_tokens: Array, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Sentences in each range."""
    return [int(((source_tokens >= low) & (source_tokens <= high)).sum()) for low, high in ranges]


def slope(values: Array, lengths: Array, weights: Array) -> Array:
    """Weighted least squares slope of values (..., bins) on lengths (bins,), per 10 words.

    weights (..., bins): the number of sentences, as a bin's variance goes with its inverse; a bin of 0 drops out.
    """
    total = weights.sum(axis=-1, keepdims=True)
    values = np.where(weights > 0, values, 0.0)
    centred = lengths - (weights * lengths).sum(axis=-1, keepdims=True) / total
    spread = (weights * centred**2).sum(axis=-1)
    return SLOPE_PER * (weights * centred * values).sum(axis=-1) / spread
