"""Text as symbols: a model of the next one, of hidden ones, or of a document's label."""

import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch

from common.lit.text import Classifier, LanguageModel, MaskedLanguageModel
from common.lit.training import Trained
from common.metrics.rates import accuracy, bits_per_symbol
from common.metrics.score import Score
from data.documents import DocumentData
from data.language_modeling import ByteData
from data.long_data import LongData
from data.sequences import SequenceData
from data.symbols import SPECIALS
from data.token_batch import LabelBatch, TokenBatch, made_up_labels, made_up_tokens
from reproductions.items import Record, scored_items
from reproductions.records import write_lines
from reproductions.tasks.base import Config, Task, Tested, training_nll

Symbols = ByteData | SequenceData


class TextTask(Task):
    """splits: what is tested, in this order."""

    def __init__(self, splits: list[str]) -> None:
        self.splits = tuple(splits)

    def check(self, data: LongData, config: Config) -> None:
        if missing := [split for split in self.splits if split not in data.splits]:
            raise ValueError(
                f"task.splits: got {', '.join(missing)}, expected of {', '.join(data.splits)} ({data.name})"
            )
        most, longest = config["model"].get("max_length"), self.longest(data)
        if most is not None and longest > most:
            raise ValueError(f"model.max_length: got {most}, expected {longest} or more, the longest of {data.name}")

    @abstractmethod
    def longest(self, data: Any) -> int:
        """Positions of the longest sequence of a batch."""

    def scores(self, records: list[Record]) -> dict[str, Score]:
        """By name, of the items of a split."""
        return {"accuracy": accuracy(hits=[r["hits"] for r in records], targets=[r["targets"] for r in records])}

    def evaluate(self, module: Trained, data: LongData, config: Config, folder: Path) -> Tested:
        """Writes items/<split>.jsonl: nll in nats, targets and right ones of every item."""
        module.eval()
        started = time.perf_counter()
        found = {split: scored_items(module, data, split) for split in self.splits}
        spent = time.perf_counter() - started
        metrics, targets = {}, 0
        for split, records in found.items():
            targets += sum(r["targets"] for r in records)
            write_lines(folder / "items" / f"{split}.jsonl", records)
            for name, score in self.scores(records).items():
                metrics[f"{split}/{name}"] = score.recorded
        dev = [record["nll"] for record in found.get("dev") or scored_items(module, data, "dev")]
        facts = {"test": {"targets": targets, "seconds": spent, "targets_per_second": targets / max(spent, 1e-9)}}
        return Tested(metrics, training_nll(module, data), sum(dev) / len(dev), facts)

    def test_seconds(self, module: Trained, config: Config, data: Any) -> float:
        """By the time of a forward pass; the dev set, which is scored too, is about half of test."""
        items, length = self.usual(data)
        batch = self.made_up(data, items, length)
        started = time.perf_counter()
        with torch.no_grad():
            module.logits(batch)
        return (time.perf_counter() - started) / (items * length) * 1.5 * data.test_positions


class _OfSymbols(TextTask):
    def sizes(self, data: Symbols) -> dict[str, int]:
        return {"vocabulary": data.vocabulary}

    def longest(self, data: Symbols) -> int:
        return data.longest

    def usual(self, data: Symbols) -> tuple[int, int]:
        return data.batch_size, data.length

    def made_up(self, data: Symbols, items: int, length: int) -> TokenBatch:
        return made_up_tokens(data.vocabulary - SPECIALS, items, length, masked=self.module is MaskedLanguageModel)

    def scores(self, records: list[Record]) -> dict[str, Score]:
        bits = bits_per_symbol(nll=[r["nll"] for r in records], targets=[r["targets"] for r in records])
        return {"bits": bits, **super().scores(records)}


class NextSymbol(_OfSymbols):
    """A language model, tested on every symbol with what is before it."""

    module = LanguageModel


class HiddenSymbols(_OfSymbols):
    """A masked language model, tested on the symbols that were hidden."""

    module = MaskedLanguageModel


class Labels(TextTask):
    """A classifier of documents, or of pairs of them."""

    module = Classifier

    def sizes(self, data: DocumentData) -> dict[str, int]:
        return {"vocabulary": data.vocabulary, "classes": data.classes, "pairs": data.paired}

    def longest(self, data: DocumentData) -> int:
        return data.max_length

    def usual(self, data: DocumentData) -> tuple[int, int]:
        return data.usual_batch

    def made_up(self, data: DocumentData, items: int, length: int) -> LabelBatch:
        return made_up_labels(data.vocabulary - SPECIALS, data.classes, items, length, data.paired)
