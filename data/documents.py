"""Labelled documents for Lightning, alone or in pairs: encoded in memory, read as an endless stream of batches."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor

from data.bucketing import BatchSize, Ints, Plan, epoch_batches, sorted_batches
from data.encoded import Ragged
from data.long_data import LongData
from data.pairs import Counts, count, describe, in_share
from data.sources.long import DocumentSource
from data.store import load, prepare_documents
from data.stream import EpochData, Item, recorded
from data.symbols import CLS, SPECIALS, Ids, ids_of, vocabulary
from data.token_batch import LabelBatch

LETTERS_A_WORD = 6
"""About, the space counted; for estimates."""
Read = Callable[[bytes], Ids]
"""From a text to the ids of its symbols or words."""
UNITS: dict[str, Any] = {"documents": "sentences", "symbols": "tokens"}


class DocumentData(LongData[LabelBatch], EpochData[LabelBatch]):
    """Documents of a source, as batches.

    CLS comes first; a document of more than `max_length` ids, CLS counted, is cut there, which is counted. An empty one
    is a lone CLS.
    `batch` is {unit: documents | symbols, size}: so many documents (pairs), or so many ids that a batch fills with its
    padding, on its longer side; `pool_batches` batches are sorted by length together, see `data.bucketing`.
    `words`: None, or documents are read as words between spaces in place of symbols: the most frequent ones of the whole
    train split, any other is one more; lengths and batches are then in words.
    `train_share` keeps that share of the training documents, a smaller share inside a larger one.
    What a budget of target tokens counts is documents.
    """

    source: DocumentSource

    def __init__(
        self,
        name: str,
        source: DocumentSource,
        max_length: int,
        batch: Mapping[str, Any],
        pool_batches: int,
        seed: int,
        train_share: float = 1.0,
        allow_newer: bool = False,
        cache: str | None = None,
        words: int | None = None,
    ) -> None:
        super().__init__(name, source, seed, allow_newer, cache)
        if words is not None and words < 1:
            raise ValueError(f"data.words: got {words}, expected 1 or more of the most frequent ones, or null")
        if not 0 < train_share <= 1:
            raise ValueError(f"data.train_share: got {train_share}, expected more than 0 and at most 1")
        if max_length < 2 or pool_batches < 1:
            raise ValueError(f"got max_length {max_length}, pool_batches {pool_batches}, expected at least 2 and 1")
        if batch.get("unit") not in UNITS or batch.get("size", 0) < 1:
            raise ValueError(
                f"data.batch: got {dict(batch)}, expected a unit of {list(UNITS)} and a size of at least 1"
            )
        self.max_length, self.words = max_length, words
        self.unit, self.batch_size = batch["unit"], BatchSize(UNITS[batch["unit"]], batch["size"])
        self.pool_batches, self.train_share = pool_batches, train_share

    # Preparation

    def prepare_data(self) -> None:
        prepare_documents(self.name, self.source, self.context)

    def setup(self, stage: str | None = None) -> None:
        """Raises ValueError if `train_share` leaves nothing to train on."""
        if hasattr(self, "loaded"):
            return
        self.counts: Counts = copy.deepcopy(self.manifest["counts"])
        stored = load(self.folder)
        read = symbols_of if self.words is None else Words(stored["train"], self.words)
        inside = np.array([in_share(cluster, self.train_share) for cluster in stored["train"]["cluster"]], dtype=bool)
        count(self.counts, "train", "outside train_share", int((~inside).sum()))
        count(self.counts, "train", "used", int(inside.sum()))
        if not inside.any():
            raise ValueError(f"{self.name}: no training document left of {len(inside)}; got {self.train_share=}")
        stored["train"] = stored["train"].select(np.flatnonzero(inside))
        self.loaded = {split: Documents(data, self.max_length, read) for split, data in stored.items()}
        for split, documents in self.loaded.items():
            count(self.counts, split, f"over {self.max_length - 1:,} symbols, cut", documents.cut)

    # What it is

    @property
    def vocabulary(self) -> int:
        """Number of ids, the special ones among them."""
        return vocabulary(self.source.symbols if self.words is None else 1 + self.words)

    @property
    def classes(self) -> int:
        """Number of labels."""
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """What the labels stand for."""
        return list(self.source.classes)

    @property
    def test_positions(self) -> int:
        """About how many ids test has, of both sides; known before it is prepared."""
        documents, symbols = self.source.size_of_test
        if self.words is not None:
            symbols //= LETTERS_A_WORD
        return min(symbols, documents * (1 + self.paired) * self.max_length)

    @property
    def usual_batch(self) -> tuple[int, int]:
        """About how many documents a batch has, and how many ids each, of one side; known before they are prepared."""
        documents = self.source.size_of_test[0] * (1 + self.paired)
        length = max(2, self.test_positions // documents)
        return max(1, self.batch_size.size // (1 if self.unit == "documents" else length)), length

    @property
    def paired(self) -> bool:
        """Whether a label is of two documents."""
        return self.source.paired

    @property
    def record(self) -> dict[str, Any]:
        return recorded(self.manifest, self.counts)

    def size(self, split: str) -> int:
        return len(self.loaded[split].label)

    def items(self, split: str) -> list[Item]:
        return self.loaded[split].items()

    def item_of(self, split: str, batch: LabelBatch) -> Tensor:
        return batch.index

    def labels(self, split: str) -> NDArray[np.int64]:
        """The labels of a split, in the order of `items`."""
        return self.loaded[split].label

    def describe(self) -> str:
        size = (
            f"{self.batch_size.size} documents" if self.unit == "documents" else f"at most {self.batch_size.size} ids"
        )
        return f"{self.name}: {describe(self.counts)}; batches of {size}"

    # Batches

    def make_plan(self, epoch: int) -> Plan:
        lengths = self.loaded["train"].lengths
        return epoch_batches(lengths, lengths, self.batch_size, self.pool_batches, self.seed, epoch)

    def train_batch(self, rows: Ints) -> LabelBatch:
        return self.loaded["train"].batch(rows)

    @property
    def train_targets(self) -> Ints:
        """A document is one."""
        return np.ones(self.size("train"), dtype=np.int64)

    def eval_batches(self, split: str, batch: BatchSize | None = None) -> Iterator[LabelBatch]:
        """Every document of the split once, the longest first; `batch` sentences are documents."""
        documents = self.loaded[split]
        plan = sorted_batches(documents.lengths, documents.lengths, batch or self.batch_size)
        return (documents.batch(plan[k]) for k in range(len(plan)))


class Documents:
    """A split in memory: CLS and what `read` makes of each document, cut at `max_length` ids."""

    def __init__(self, stored: Dataset, max_length: int, read: Read) -> None:
        self.stored = stored
        columns = stored.select_columns(["text", "other", "label"])[:]
        self.label = np.asarray(columns["label"], dtype=np.int64)
        sides = [[read(text) for text in columns["text"]]]
        if columns["other"][0] is not None:
            sides.append([read(text) for text in columns["other"]])
        self.text, *others = (ragged(side, max_length) for side in sides)
        self.other = others[0] if others else None
        self.cut = sum(any(len(side) >= max_length for side in row) for row in zip(*sides, strict=True))

    @property
    def lengths(self) -> Ints:
        """Ids of each document, CLS counted; of the longer one of a pair."""
        return self.text.lengths if self.other is None else np.maximum(self.text.lengths, self.other.lengths)

    def batch(self, rows: Ints) -> LabelBatch:
        """The documents at these positions, padded to the longest of them on each side."""
        other = None if self.other is None else torch.from_numpy(self.other.padded(rows))
        label, index = torch.from_numpy(self.label[rows]), torch.from_numpy(rows.astype(np.int64))
        return LabelBatch.of(torch.from_numpy(self.text.padded(rows)), label, other, index)

    def items(self) -> list[Item]:
        columns = self.stored.select_columns(["id", "cluster", "length"])[:]
        return [Item(*row) for row in zip(columns["id"], columns["cluster"], columns["length"], strict=True)]


class Words:
    """Numbers the `most` most frequent words of documents from 1, the more frequent first, ties by the alphabet; 0 is any
    other. A call gives the ids of a text."""

    def __init__(self, train: Dataset, most: int) -> None:
        columns = train.select_columns(["text", "other"])[:]
        counts = Counter(
            word for side in columns.values() for text in side if text is not None for word in text.split()
        )
        ordered = sorted(counts, key=lambda word: (-counts[word], word))[:most]
        self.number = {word: n for n, word in enumerate(ordered, start=1)}

    def __call__(self, text: bytes) -> Ids:
        return np.array([SPECIALS + self.number.get(word, 0) for word in text.split()], dtype=np.int64)


def symbols_of(text: bytes) -> Ids:
    return ids_of(np.frombuffer(text, dtype=np.uint8))


def ragged(texts: Sequence[Ids], max_length: int) -> Ragged:
    """CLS and the first `max_length - 1` ids of each text."""
    cut = [text[: max_length - 1] for text in texts]
    lengths = np.fromiter((len(text) + 1 for text in cut), dtype=np.int64, count=len(cut))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    values = np.full(offsets[-1], CLS, dtype=np.int32)
    is_text = np.ones(len(values), dtype=bool)
    is_text[offsets[:-1]] = False
    values[is_text] = np.concatenate(cut) if cut else []
    return Ragged(values, offsets)
