"""Pairs as ids in flat arrays: a batch is then a gather, cheap enough to need no worker processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from data.batch import Seq2SeqBatch
from data.vocab import EOS, PAD, Vocab


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Self:
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        lengths = np.concatenate([np.zeros(1, np.int64), *(part.lengths for part in parts)])
        return cls(np.concatenate([part.values for part in parts]), np.cumsum(lengths))

    def select(self, rows: NDArray[np.int64]) -> Self:
        """These rows, in this order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        place = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return type(self)(self.values[place], offsets)

    def row(self, i: int) -> NDArray[np.int64]:
        return self.values[self.offsets[i] : self.offsets[i + 1]].astype(np.int64)

    def padded(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, longest) ids with PAD on the right."""
        part = self.select(rows)
        mask = np.arange(part.lengths.max()) < part.lengths[:, None]
        ids = np.full(mask.shape, PAD, dtype=np.int64)
        ids[mask] = part.values
        return ids


def encode(tokens: pa.ListArray, vocab: Vocab) -> Ragged:
    """Ids of a column of lists of words, each row with EOS at its end. Every distinct word is looked up once."""
    words = tokens.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = tokens.flatten().dictionary_encode()
    units = Ragged.of([vocab.encode([word]) for word in distinct.dictionary.to_pylist()])
    text = units.select(distinct.indices.to_numpy(zero_copy_only=False).astype(np.int64))
    starts = text.offsets[np.concatenate([np.zeros(1, np.int64), np.cumsum(words)])]
    offsets = starts + np.arange(len(starts))
    values = np.empty(offsets[-1], dtype=np.int32)
    ends = offsets[1:] - 1
    is_text = np.ones(len(values), dtype=bool)
    is_text[ends] = False
    values[is_text] = text.values
    values[ends] = EOS
    return Ragged(values, offsets)


@dataclass(frozen=True)
class Encoded:
    """One split: both sides of every pair, words (or their pieces) and EOS."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def batch(self, rows: NDArray[np.int64]) -> Seq2SeqBatch:
        """The pairs at these positions, padded to the longest of them."""
        source, target = (torch.from_numpy(side.padded(rows)) for side in (self.source, self.target))
        return Seq2SeqBatch.of(source, target, torch.from_numpy(rows.astype(np.int64)))
