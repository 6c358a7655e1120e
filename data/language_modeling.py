"""Long texts of bytes for Lightning: the next byte is predicted, or masked ones are."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.bucketing import BatchSize, Ints
from data.long_data import LongData
from data.long_text import LongText, Pieces, apart, long_text, overlapping
from data.masking import mask, masked_count
from data.pairs import Counts, describe
from data.sources.long import TextSource
from data.stages import Stage, Stages, arrange, read_stages
from data.store import SPLITS, load, prepare_texts
from data.stream import Item, recorded
from data.symbols import BYTES, PAD, Ids, ids_of, vocabulary
from data.token_batch import TokenBatch

OBJECTIVES = ("causal", "masked")
BLOCK = 1024
"""Bytes of an item."""
HIDDEN_BY = 64
"""Bytes of which `mask_rate` are hidden at a time in evaluation."""

Shown = tuple[Ints, Ints, NDArray[np.bool_]]
"""A sequence as the model sees it, its targets, and which of them are scored, (T,) each."""


class ByteData(LongData[TokenBatch]):
    """Text of a source, as batches of sequences.

    `objective`: causal: each byte is predicted from those before it; masked: `mask_rate` of a sequence's bytes are, from
    all others, see `data.masking`.
    Training reads sequences of `length` bytes, `batch` of them an update. Each epoch starts at another place, drawn from
    the seed, and goes once around the text: what is left over at its end is shorter than a sequence. A sequence may run
    over borders of documents, and from the end of the text to its beginning.
    `stages`: None, or [{share, length, batch}] that replace `length` and `batch`: each stage trains on that share of all
    target tokens, `target_tokens` in all (as `budget.target_tokens`); a batch says its stage, in evaluation the last one.
    Evaluation: `eval_length` and `eval_step`, see `data.long_text.overlapping`; masked: pieces of `eval_length` without
    overlap, the same bytes masked each time, whatever the seed and the length.
    `index` of a training batch is where in the text each sequence starts; in evaluation it counts the pieces.
    """

    source: TextSource

    def __init__(
        self,
        name: str,
        source: TextSource,
        objective: str,
        length: int,
        batch: int,
        eval_length: int,
        eval_step: int,
        mask_rate: float,
        seed: int,
        stages: Sequence[Mapping[str, Any]] | None = None,
        target_tokens: int | None = None,
        allow_newer: bool = False,
        cache: str | None = None,
    ) -> None:
        super().__init__(name, source, seed, allow_newer, cache)
        if objective not in OBJECTIVES or not 0 < mask_rate <= 1:
            raise ValueError(
                f"got data.objective {objective} and data.mask_rate {mask_rate}, expected one of {OBJECTIVES} and a rate "
                "above 0 and at most 1"
            )
        if min(length, batch, eval_length) < 1 or not 1 <= eval_step <= eval_length:
            raise ValueError(
                f"got data.length {length}, batch {batch}, eval_length {eval_length}, eval_step {eval_step}, expected at "
                "least 1, and a step of at most eval_length"
            )
        if stages and target_tokens is None:
            raise ValueError("data.stages: got no data.target_tokens, expected the number that they share")
        self.causal, self.mask_rate = objective == "causal", mask_rate
        self.eval_length, self.eval_step = eval_length, eval_step
        self.staged = read_stages(stages) if stages else [Stage(1.0, length, batch)]
        self.target_tokens = target_tokens
        self.length, self.batch_size = self.staged[0].length, self.staged[0].batch
        self._hidden: dict[str, tuple[Ids, NDArray[np.bool_]]] = {}

    # Preparation

    def prepare_data(self) -> None:
        prepare_texts(self.name, self.source, self.context)

    def setup(self, stage: str | None = None) -> None:
        if not hasattr(self, "texts"):
            _ = self.manifest  # now, since whoever trains for days may find the folder gone
            self.texts: dict[str, LongText] = {split: long_text(data) for split, data in load(self.folder).items()}

    # What it is

    @property
    def vocabulary(self) -> int:
        """Number of ids, the special ones among them."""
        return vocabulary(BYTES)

    @property
    def longest(self) -> int:
        """Bytes of the longest sequence of training and evaluation."""
        return max(self.eval_length, *(stage.length for stage in self.staged))

    @property
    def test_positions(self) -> int:
        """About how many places a model goes through in an evaluation of test; known before it is prepared."""
        again = self.eval_length // self.eval_step if self.causal else 1
        return self.source.size_of_test[1] * again

    @property
    def counts(self) -> Counts:
        return self.manifest["counts"]

    @property
    def xz_bits_per_byte(self) -> dict[str, float]:
        """What a strong general compressor makes of each split by itself: lzma, preset 9, extreme."""
        return self.manifest["xz_bits_per_byte"]

    @property
    def record(self) -> dict[str, Any]:
        return recorded(self.manifest, self.counts) | {"xz_bits_per_byte": self.xz_bits_per_byte}

    def size(self, split: str) -> int:
        return len(self.pieces(split))

    def items(self, split: str) -> list[Item]:
        """Blocks of `BLOCK` bytes of the text: whatever the pieces of an evaluation are, they are sums over the same bytes."""
        text = self.texts[split]
        return [text.item(start, min(BLOCK, len(text) - start)) for start in range(0, len(text), BLOCK)]

    def item_of(self, split: str, batch: TokenBatch) -> Tensor:
        starts = torch.from_numpy(self.pieces(split).starts)[batch.index.cpu()]
        position = starts[:, None] + torch.arange(batch.tokens.shape[1]) + int(self.causal)
        return position[batch.scored.cpu()] // BLOCK

    def describe(self) -> str:
        bound = ", ".join(f"{self.xz_bits_per_byte[split]:.3f} {split}" for split in SPLITS)
        sizes = ", then ".join(f"{stage.batch} sequences of {stage.length:,} bytes" for stage in self.staged)
        return f"{self.name}: {describe(self.counts)}; bits per byte of xz: {bound}; batches of {sizes}"

    # Training

    @cached_property
    def stages(self) -> Stages:
        """When which stage is trained; a single one without `stages`."""
        return arrange(self.staged, self.target_tokens or 0, lambda stage: stage.batch * self.targets(stage.length))

    def targets(self, length: int) -> int:
        """Targets of one training sequence that asks for `length` bytes."""
        real = min(length, len(self.texts["train"]) - self.causal)
        return real if self.causal else masked_count(real, self.mask_rate)

    def sequences(self, stage: int) -> int:
        """How many make an epoch."""
        return max(1, len(self.texts["train"]) // self.staged[stage].length)

    def train_batches(self, start_batch: int = 0) -> Iterator[TokenBatch]:
        k = start_batch
        while True:
            yield self.train_batch(k)
            k += 1

    def train_batch(self, k: int) -> TokenBatch:
        """Batch number k of the stream."""
        stage = self.stages.of(k)
        size, length = self.staged[stage].batch, self.staged[stage].length
        numbers = (k - self.stages.start(stage)) * size + np.arange(size)
        epochs, places = np.divmod(numbers, self.sequences(stage))
        train = self.texts["train"].symbols
        orders = {int(epoch): epoch_starts(len(train), length, self.seed, stage, int(epoch)) for epoch in epochs}
        starts = np.array([orders[int(epoch)][i] for epoch, i in zip(epochs, places, strict=True)])
        real = min(length, len(train) - self.causal)
        rows = [ids_of(train.take(np.arange(start, start + real + self.causal), mode="wrap")) for start in starts]
        rng = np.random.Generator(np.random.PCG64([self.seed, 0x3A5C, k]))
        shown = [self.shown(row, rng) for row in rows]
        return batch_of(shown, length, starts, stage)

    def steps_for_tokens(self, tokens: int) -> int:
        steps, left = 0, tokens
        for i, stage in enumerate(self.staged):
            each = stage.batch * self.targets(stage.length)
            updates = -(-max(0, left) // each)
            if i + 1 < len(self.staged):
                updates = min(updates, self.stages.ends[i] - self.stages.start(i))
            steps, left = steps + updates, left - updates * each
        return steps

    def epochs(self, steps: int) -> float:
        """By bytes read."""
        read = 0
        for i, stage in enumerate(self.staged):
            end = steps if i + 1 == len(self.staged) else min(steps, self.stages.ends[i])
            updates = max(0, end - self.stages.start(i))
            read += updates * stage.batch * min(stage.length, len(self.texts["train"]))
        return read / len(self.texts["train"])

    # Evaluation

    def pieces(self, split: str) -> Pieces:
        symbols = len(self.texts[split])
        return (
            overlapping(symbols, self.eval_length, self.eval_step) if self.causal else apart(symbols, self.eval_length)
        )

    def eval_batches(self, split: str, batch: BatchSize | None = None) -> Iterator[TokenBatch]:
        """The pieces of a split in order. `batch` None: about as many bytes as a batch of the first stage has."""
        first = self.staged[0]
        size = batch or BatchSize("tokens", first.batch * first.length)
        rows = size.size if size.unit == "sentences" else max(1, size.size // self.eval_length)
        pieces = self.pieces(split)
        for start in range(0, len(pieces), rows):
            yield self.eval_batch(split, pieces, np.arange(start, min(start + rows, len(pieces))))

    def eval_batch(self, split: str, pieces: Pieces, index: Ints) -> TokenBatch:
        symbols = self.texts[split].symbols
        spans = [(int(pieces.starts[i]), int(pieces.ends[i]), int(pieces.firsts[i])) for i in index]
        if self.causal:
            shown = [causal(ids_of(symbols[start : end + 1]), first) for start, end, first in spans]
        else:
            seen, scored = self.hidden(split)
            shown = [(seen[start:end], ids_of(symbols[start:end]), scored[start:end]) for start, end, _ in spans]
        return batch_of(shown, self.eval_length, index, len(self.staged) - 1)

    def hidden(self, split: str) -> tuple[Ids, NDArray[np.bool_]]:
        """A split as a masked model sees it, and which bytes are hidden: drawn in blocks of HIDDEN_BY, whatever the length
        of the pieces, so that models of short and of long context are asked for the same bytes."""
        if split not in self._hidden:
            whole, blocks = ids_of(self.texts[split].symbols), []
            for i, start in enumerate(range(0, len(whole), HIDDEN_BY)):
                rng = np.random.Generator(np.random.PCG64([SPLITS.index(split), i]))
                blocks.append(mask(whole[start : start + HIDDEN_BY], self.mask_rate, BYTES, rng))
            seen, scored = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
            self._hidden[split] = seen, scored
        return self._hidden[split]

    def shown(self, ids: Ids, rng: np.random.Generator) -> Shown:
        """A sequence of training for the model."""
        if self.causal:
            return causal(ids, 0)
        seen, scored = mask(ids, self.mask_rate, BYTES, rng)
        return seen, ids, scored


def causal(ids: Ids, first: int) -> Shown:
    """All but the last, what follows each, and that targets are scored from place `first` on."""
    return ids[:-1], ids[1:], np.arange(len(ids) - 1) >= first


@lru_cache(maxsize=4)
def epoch_starts(text: int, length: int, seed: int, stage: int, epoch: int) -> Ints:
    """Where in a text of so many bytes the sequences of an epoch of a stage start, in the order of training."""
    if text <= length:
        return np.zeros(1, dtype=np.int64)
    rng = np.random.Generator(np.random.PCG64([seed, stage, epoch]))
    return (rng.integers(text) + length * rng.permutation(text // length)) % text


def batch_of(rows: Sequence[Shown], length: int, index: Ints, stage: int = 0) -> TokenBatch:
    """Rows of ids, targets and scored places, each padded to `length`."""
    tokens, targets = (np.full((len(rows), length), PAD, dtype=np.int64) for _ in range(2))
    scored, real = (np.zeros((len(rows), length), dtype=bool) for _ in range(2))
    for i, (ids, right, chosen) in enumerate(rows):
        tokens[i, : len(ids)], targets[i, : len(ids)], scored[i, : len(ids)] = ids, right, chosen
        real[i, : len(ids)] = True
    tensors = (torch.from_numpy(array) for array in (tokens, targets, scored, real))
    return TokenBatch.of(*tensors, index=torch.from_numpy(index.astype(np.int64)), stage=stage)
