"""What all data modules are: prepared once, read as an endless stream of batches that can start anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import numpy as np
import pytorch_lightning as pl

from data.batch import Rows, RowsT, shard
from data.bucketing import BatchSize, Ints, Plan
from data.fetch import Download
from data.pairs import Counts
from data.sources.base import Context


@dataclass(frozen=True)
class Batches(Iterable[Rows]):
    """What Lightning takes for a data loader: it starts anew, where the data module then stands, at each `iter`."""

    start: Callable[[], Iterator[Rows]]

    def __iter__(self) -> Iterator[Rows]:
        return self.start()


@dataclass(frozen=True, slots=True)
class Item:
    """What is scored by itself: its name, what it belongs to (the unit of resampling), and how long it is."""

    id: str
    cluster: str
    length: int


def recorded(manifest: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    """What to say of prepared data wherever a number on it is shown: name, licence, domain, origin, source, counts."""
    said = {key: manifest[key] for key in ("name", "licence", "domain", "provenance")}
    return said | {"source": manifest["settings"]["source"], "counts": counts}


class StreamData(pl.LightningDataModule, ABC, Generic[RowsT]):
    """The base of the data modules.

    The state that a checkpoint holds is the number of batches trained on; a resumed stream goes on behind them.
    """

    name: str
    seed: int
    context: Context

    def __init__(self) -> None:
        super().__init__()
        self.batches_seen = 0

    # Preparation

    @abstractmethod
    def to_fetch(self) -> list[Download]:
        """What preparing would have to fetch now."""

    @property
    def downloads(self) -> bool:
        """Whether preparing fetches anything."""
        return bool(self.to_fetch())

    def plan(self) -> str:
        """What `prepare` will download and how much disk that takes, in a line; fetches nothing."""
        downloads = self.to_fetch()
        # Which folder it is depends on the content if any release will do.
        unknown = downloads and self.context.allow_newer
        if not unknown and self.folder.exists():
            return f"{self.name}: prepared in {self.folder}{self.left()}"
        what = "; ".join(map(str, downloads)) or "nothing to download"
        return f"{self.name}: {what}; to be prepared in {self.context.cache}"

    def left(self) -> str:
        """What `plan` adds where the folder is there and something else is not."""
        return ""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Of the prepared data."""

    @property
    def prepared(self) -> bool:
        """Whether nothing is left to be prepared."""
        return self.folder.exists()

    def prepare(self) -> None:
        """Fetch, prepare and load whatever is not yet there; several processes at once do no harm."""
        self.prepare_data()
        self.setup()

    @abstractmethod
    def setup(self, stage: str | None = None) -> None:
        """Load what is prepared."""

    # What it is

    @property
    @abstractmethod
    def checksum(self) -> str:
        """sha256 over the prepared rows of all splits, hex."""

    @property
    @abstractmethod
    def record(self) -> dict[str, Any]:
        """What to say of the data wherever a number on it is shown: see `recorded`."""

    @property
    @abstractmethod
    def splits(self) -> list[str]: ...

    @abstractmethod
    def size(self, split: str) -> int:
        """Number of rows that the `index` of an evaluated batch counts, without making them."""

    @abstractmethod
    def items(self, split: str) -> list[Item]:
        """What a split is scored and resampled by, the same for every model and way of cutting batches."""

    @abstractmethod
    def describe(self) -> str:
        """What was read, left out and kept, and how batches are cut, in a line."""

    # Batches

    @abstractmethod
    def train_batches(self, start_batch: int = 0) -> Iterator[RowsT]:
        """Endless whole batches from number `start_batch` on; batch k depends on the seed and k alone."""

    def train_stream(self, start_batch: int = 0, rank: int = 0, world: int = 1, accumulate: int = 1) -> Iterator[RowsT]:
        """Endless batches from number `start_batch` on; batch k depends on the seed and k alone.

        With `world` processes each gets its rank's shard of the same global batch, see `data.batch.shard`; with
        `accumulate` it gets its share in as many micro-batches, one after the other.
        """
        for batch in self.train_batches(start_batch):
            for part in range(accumulate):
                yield shard(batch, rank + world * part, world * accumulate)

    @abstractmethod
    def eval_batches(self, split: str, batch: BatchSize | None = None) -> Iterator[RowsT]:
        """Every row of the split once; `index` says which it is. `batch` None: as in training."""

    @abstractmethod
    def steps_for_tokens(self, tokens: int) -> int:
        """Number of batches of the stream until at least `tokens` targets are seen."""

    @abstractmethod
    def epochs(self, steps: int) -> float:
        """How many times the training split was read after so many batches of the stream."""

    # Lightning

    def train_dataloader(self) -> Batches:
        """The stream from behind the last batch done; in distributed training this process's share of it."""
        trainer = self.trainer
        shares = (trainer.global_rank, trainer.world_size, trainer.accumulate_grad_batches) if trainer else (0, 1, 1)
        return Batches(lambda: self.train_stream(self.batches_seen, *shares))

    def val_dataloader(self) -> Batches:
        """The whole dev set, in every process: its mean over processes is then its mean."""
        return Batches(lambda: self.eval_batches("dev"))

    def batch_done(self) -> None:
        """To be called once a global batch is trained on, before a checkpoint of that step is written."""
        self.batches_seen += 1

    def state_dict(self) -> dict[str, int]:
        return {"batches_seen": self.batches_seen}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.batches_seen = state_dict["batches_seen"]


class EpochData(StreamData[RowsT]):
    """Rows of different lengths: each epoch is planned as batches of rows, every row in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.latest_plan: tuple[int, Plan] | None = None

    @abstractmethod
    def make_plan(self, epoch: int) -> Plan:
        """The batches of an epoch, from the seed and the epoch alone."""

    @abstractmethod
    def train_batch(self, rows: Ints) -> RowsT:
        """The training rows at these positions."""

    @property
    @abstractmethod
    def train_targets(self) -> Ints:
        """Number of targets of each training row."""

    def epoch_plan(self, epoch: int) -> Plan:
        """The batches of an epoch; the latest is kept, since streams ask for one epoch after the other."""
        if self.latest_plan is None or self.latest_plan[0] != epoch:
            self.latest_plan = epoch, self.make_plan(epoch)
        return self.latest_plan[1]

    def train_batches(self, start_batch: int = 0) -> Iterator[RowsT]:
        epoch, skip = 0, start_batch
        while skip >= len(self.epoch_plan(epoch)):
            skip -= len(self.epoch_plan(epoch))
            epoch += 1
        while True:
            plan = self.epoch_plan(epoch)
            for k in range(skip, len(plan)):
                yield self.train_batch(plan[k])
            epoch, skip = epoch + 1, 0

    def steps_for_tokens(self, tokens: int) -> int:
        steps = epoch = 0
        while True:
            plan = self.epoch_plan(epoch)
            seen = np.cumsum(np.add.reduceat(self.train_targets[plan.order], plan.bounds[:-1]))
            if tokens <= seen[-1]:
                return steps + (int(np.searchsorted(seen, tokens)) + 1 if tokens > 0 else 0)
            tokens, steps, epoch = tokens - int(seen[-1]), steps + len(plan), epoch + 1

    def epochs(self, steps: int) -> float:
        epoch = 0
        while steps >= len(plan := self.epoch_plan(epoch)):
            steps, epoch = steps - len(plan), epoch + 1
        return epoch + int(plan.bounds[steps]) / len(plan.order)
