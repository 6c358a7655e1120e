"""Whole sequences for Lightning, each from its first symbol to its last: the next symbol is predicted where it is scored."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from datasets import Dataset
from torch import Tensor

from data.bucketing import BatchSize, Ints, Plan, epoch_batches, sorted_batches
from data.documents import ragged, symbols_of
from data.language_modeling import batch_of, causal
from data.long_data import LongData
from data.pairs import Counts, describe
from data.sources.long import SequenceSource
from data.store import load, prepare_documents
from data.stream import EpochData, Item, recorded
from data.symbols import vocabulary
from data.token_batch import TokenBatch


class SequenceData(LongData[TokenBatch], EpochData[TokenBatch]):
    """Documents of a source as sequences, `batch` of them an update; their labels are not used.

    A model sees CLS and all symbols but the last, and predicts those that the source scores. What a budget of target tokens
    counts is these.
    """

    source: SequenceSource

    def __init__(
        self,
        name: str,
        source: SequenceSource,
        batch: int,
        seed: int,
        allow_newer: bool = False,
        cache: str | None = None,
    ) -> None:
        super().__init__(name, source, seed, allow_newer, cache)
        if batch < 1:
            raise ValueError(f"data.batch: got {batch}, expected 1 sequence or more")
        self.batch_size = batch

    # Preparation

    def prepare_data(self) -> None:
        prepare_documents(self.name, self.source, self.context)

    def setup(self, stage: str | None = None) -> None:
        if not hasattr(self, "loaded"):
            _ = self.manifest
            self.loaded = {split: Sequences(data, self.source) for split, data in load(self.folder).items()}

    # What it is

    @property
    def vocabulary(self) -> int:
        """Number of ids, the special ones among them."""
        return vocabulary(self.source.symbols)

    @property
    def longest(self) -> int:
        """Symbols of the longest sequence, and so positions of a model; known before it is prepared."""
        return self.source.longest

    @property
    def length(self) -> int:
        return self.longest

    @property
    def test_positions(self) -> int:
        return self.source.size_of_test[1]

    @property
    def counts(self) -> Counts:
        return self.manifest["counts"]

    @property
    def record(self) -> dict[str, Any]:
        return recorded(self.manifest, self.counts)

    def size(self, split: str) -> int:
        return len(self.loaded[split].lengths)

    def items(self, split: str) -> list[Item]:
        return self.loaded[split].items()

    def item_of(self, split: str, batch: TokenBatch) -> Tensor:
        return batch.index[:, None].expand(batch.scored.shape)[batch.scored].cpu()

    def describe(self) -> str:
        return f"{self.name}: {describe(self.counts)}; batches of {self.batch_size} sequences"

    # Batches

    @property
    def train_targets(self) -> Ints:
        return self.loaded["train"].targets

    def make_plan(self, epoch: int) -> Plan:
        lengths = self.loaded["train"].lengths
        return epoch_batches(lengths, lengths, BatchSize("sentences", self.batch_size), 1, self.seed, epoch)

    def train_batch(self, rows: Ints) -> TokenBatch:
        return self.loaded["train"].batch(rows)

    def eval_batches(self, split: str, batch: BatchSize | None = None) -> Iterator[TokenBatch]:
        """Every sequence of the split once, the longest first."""
        sequences = self.loaded[split]
        size = batch or BatchSize("sentences", self.batch_size)
        plan = sorted_batches(sequences.lengths, sequences.lengths, size)
        return (sequences.batch(plan[k]) for k in range(len(plan)))


class Sequences:
    """A split in memory."""

    def __init__(self, stored: Dataset, source: SequenceSource) -> None:
        self.stored = stored
        texts = stored.select_columns(["text"])[:]["text"]
        self.ids = ragged([symbols_of(text) for text in texts], source.longest + 1)  # CLS in front
        self.scored = [source.scored(np.frombuffer(text, dtype=np.uint8)) for text in texts]
        self.lengths = self.ids.lengths - 1
        self.targets = np.array([int(scored.sum()) for scored in self.scored], dtype=np.int64)

    def batch(self, rows: Ints) -> TokenBatch:
        """The sequences at these positions, padded to the longest of them."""
        shown = []
        for row in rows.tolist():
            seen, targets, _ = causal(self.ids.row(row), 0)
            shown.append((seen, targets, self.scored[row]))
        return batch_of(shown, int(self.lengths[rows].max()), rows)

    def items(self) -> list[Item]:
        columns = self.stored.select_columns(["id", "cluster", "length"])[:]
        return [Item(*row) for row in zip(columns["id"], columns["cluster"], columns["length"], strict=True)]
