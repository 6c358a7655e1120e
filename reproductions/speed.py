"""How long a training update of a classifier takes by the length of its documents, kinds of attention in turns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from common.bench.by_length import store
from common.bench.memory import peak_bytes
from common.bench.update import whole_update
from common.bench.updates import Rows, Updates
from data.symbols import vocabulary
from data.token_batch import made_up_labels


@dataclass(frozen=True, kw_only=True)
class Speed(Updates):
    """`update_ms`: milliseconds of an update of `batch` documents by their length; `speedup`: the first model's time over
    that of the same turn; `memory_mb`: peak of an update beyond weights and optimiser; `parameters` (Tay et al. 2020, table
    2). models: row -> what makes a model of its vocabulary and classes.
    """

    symbols: int
    classes: int
    batch: int

    def build(self, make: Callable[..., nn.Module]) -> nn.Module:
        return make(vocabulary=vocabulary(self.symbols), classes=self.classes)

    def step(self, model: nn.Module, length: int, stage: int) -> Callable[[], None]:
        batch = made_up_labels(self.symbols, self.classes, self.batch, length).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        return whole_update(model, optimizer, lambda: model(batch.tokens, batch.real), batch.label, self.precision)

    def record(
        self, rows: Rows, length: int, steps: Mapping[str, Callable[[], None]], seconds: Mapping[str, Sequence[float]]
    ) -> None:
        first = seconds[next(iter(steps))]
        for row, step in steps.items():
            store(rows, row, "update_ms", length).extend(1e3 * s for s in seconds[row])
            times = [f / s for f, s in zip(first, seconds[row], strict=True)]
            store(rows, row, "speedup", length, "times").extend(times)
            store(rows, row, "memory_mb", length, "MB").append(peak_bytes(step, device=self.device) / 1e6)
