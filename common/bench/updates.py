"""Training updates of models by the length of what they are given, all models of a length in turns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from common.bench.by_length import store
from common.bench.sizes import equal_sizes
from common.bench.timing import interleaved, seconds_of

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Updates(ABC):
    """Samples by row and quantity, a repeat each; `parameters` of every model too. Raises ValueError where the models' sizes
    lie further apart than a tenth.

    models: row -> what makes a model. precision: fp32, or bf16 for matrix products in bfloat16.
    """

    models: Mapping[str, Callable[..., nn.Module]]
    lengths: Sequence[int]
    precision: str
    device: str
    repeats: int
    threads: int

    @abstractmethod
    def build(self, make: Callable[..., nn.Module]) -> nn.Module: ...

    @abstractmethod
    def step(self, model: nn.Module, length: int, stage: int) -> Callable[[], None]:
        """An update; stage counts the lengths from 0."""

    @abstractmethod
    def record(
        self, rows: Rows, length: int, steps: Mapping[str, Callable[[], None]], seconds: Mapping[str, Sequence[float]]
    ) -> None:
        """Stores what was measured of a length; seconds: of `beside` too."""

    def beside(self) -> dict[str, Callable[[], object]]:
        """What else is timed in the same turns."""
        return {}

    def __call__(self, seed: int) -> Rows:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        models = {row: self.build(make).to(self.device) for row, make in self.models.items()}
        rows: Rows = {row: {} for row in models}
        for row, size in equal_sizes(models).items():
            store(rows, row, "parameters", "default", "M").append(size / 1e6)
        beside = self.beside()
        for stage, length in enumerate(self.lengths):
            steps = {row: self.step(model, length, stage) for row, model in models.items()}
            timers = {name: partial(seconds_of, call) for name, call in {**beside, **steps}.items()}
            self.record(rows, length, steps, interleaved(timers, repeats=self.repeats))
        return rows
