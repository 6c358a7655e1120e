"""One split of a long text in memory, and the pieces that it is evaluated in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from data.bucketing import Ints
from data.stream import Item

PART = 1 << 14
"""Bytes of a document that are resampled together."""


@dataclass(frozen=True)
class LongText:
    """The documents of a split, one after the other; document i starts at `starts[i]`."""

    symbols: NDArray[np.uint8]
    starts: Ints
    ids: Sequence[str]
    clusters: Sequence[str]

    def __len__(self) -> int:
        return len(self.symbols)

    def item(self, position: int, length: int) -> Item:
        """What is `length` long and starts at this position: named after the document it starts in, clustered with what
        starts in the same part of it. Parts, as a single page may be half of a split: a few clusters make no interval."""
        i = int(np.searchsorted(self.starts, position, side="right")) - 1
        place = position - int(self.starts[i])
        return Item(f"{self.ids[i]} +{place}", f"{self.clusters[i]}, part {place // PART + 1}", length)


def long_text(stored: Dataset) -> LongText:
    """Of the stored documents of a split; empty ones take no place."""
    columns = stored[:]
    lengths = np.fromiter(map(len, columns["text"]), dtype=np.int64, count=len(stored))
    symbols = np.frombuffer(b"".join(columns["text"]), dtype=np.uint8)
    return LongText(symbols, np.cumsum(lengths) - lengths, columns["id"], columns["cluster"])


@dataclass(frozen=True)
class Pieces:
    """Piece i shows symbols `starts[i] .. ends[i] - 1`; targets from its place `firsts[i]` on are scored."""

    starts: Ints
    ends: Ints
    firsts: Ints

    def __len__(self) -> int:
        return len(self.starts)


def overlapping(symbols: int, length: int, step: int) -> Pieces:
    """Pieces of `length` that start every `step` symbols, of which only the last `step` targets are scored, of the first
    piece all (Longformer, Beltagy et al. 2020, section 4.2). The last piece may be shorter.

    Targets are the next symbols: each symbol but the very first is scored once, with at least `length - step` symbols
    before it wherever the text has so many.
    """
    if symbols < 2:
        raise ValueError(f"got a text of {symbols} symbols, expected at least two, or there is nothing to predict")
    inputs = symbols - 1
    later = -(-max(0, inputs - length) // step)
    starts = np.arange(later + 1) * step
    return Pieces(starts, np.minimum(starts + length, inputs), np.where(starts > 0, length - step, 0))


def apart(symbols: int, length: int) -> Pieces:
    """Pieces of `length` one after the other, the last of what is left."""
    if symbols < 1:
        raise ValueError("got a text without a symbol, expected at least one")
    starts = np.arange(0, symbols, length)
    return Pieces(starts, np.minimum(starts + length, symbols), np.zeros_like(starts))
