"""What a job asks of its task: the parts that differ between translating, modelling text and classifying documents."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from common.lit.training import Trained

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Tested:
    """metrics: name -> {value, signature}; train_nll, dev_nll: mean per item, in nats; facts: more for result.json."""

    metrics: dict[str, dict[str, Any]]
    train_nll: float
    dev_nll: float
    facts: dict[str, Any] = field(default_factory=dict)


class Task(ABC):
    """`module`: the LightningModule of its rows."""

    module: type[Trained]

    @abstractmethod
    def sizes(self, data: Any) -> dict[str, int]:
        """Arguments of the model that prepared data decides, such as the size of its vocabulary."""

    def planned_sizes(self, data: Any) -> dict[str, int]:
        """The same of data that is not prepared: what it is expected to have."""
        return self.sizes(data)

    @abstractmethod
    def check(self, data: Any, config: Config) -> None:
        """Raises ValueError for data that can't be tested, before anything is trained."""

    @abstractmethod
    def made_up(self, data: Any, items: int, length: int) -> Any:
        """A batch of random items of that many targets each, of data that need not be prepared."""

    @abstractmethod
    def usual(self, data: Any) -> tuple[int, int]:
        """About how many items a training batch has, and how many targets or positions each."""

    @abstractmethod
    def evaluate(self, module: Any, data: Any, config: Config, folder: Path) -> Tested:
        """Tests a trained module; writes what a report resamples, an item a line, under folder."""

    @abstractmethod
    def test_seconds(self, module: Any, config: Config, data: Any) -> float:
        """About how long `evaluate` takes, measured on made-up batches."""


@torch.no_grad()
def training_nll(module: Trained, data: Any, batches: int = 20) -> float:
    """Mean nll per item, in nats, of the first training batches, without dropout."""
    sums = [module.item_nll(b.to(module.device))[0] for b in islice(data.train_stream(), batches)]
    return float(torch.cat(sums).double().mean())


def update(module: Trained, optimizer: torch.optim.Optimizer, batch: Any, bf16: bool) -> float:
    """One training update as the trainer does it; returns the loss."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = module.nll(batch).sum() / batch.update_tokens
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), module.clip_norm)
    optimizer.step()
    return loss.item()
