"""How long a training update of a classifier takes by the length of its documents, kinds of attention in turns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from common.bench.sizes import equal_sizes
from common.bench.timing import interleaved, seconds_of
from data.symbols import vocabulary
from data.token_batch import made_up_labels


@dataclass(frozen=True)
class Speed:
    """`update_ms`: milliseconds of an update of `batch` documents by their length, models of a length in turns;
    `parameters` in thousands (Tay et al. 2020, table 2). models: row -> what makes a model of its vocabulary and classes.

    Raises ValueError where the models' sizes lie further apart than a tenth.
    """

    models: Mapping[str, Callable[..., nn.Module]]
    symbols: int
    classes: int
    lengths: Sequence[int]
    batch: int
    precision: str
    device: str
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        models = {
            row: make(vocabulary=vocabulary(self.symbols), classes=self.classes).to(self.device)
            for row, make in self.models.items()
        }
        found: dict[str, dict[str, Any]] = {
            row: {
                "parameters": {"unit": "K", "at": {"default": [size / 1e3]}, "refused": {}},
                "update_ms": {"unit": "ms", "at": {}, "refused": {}},
            }
            for row, size in equal_sizes(models).items()
        }
        for length in self.lengths:
            steps = {row: self.step(model, length) for row, model in models.items()}
            seconds = interleaved({row: partial(seconds_of, step) for row, step in steps.items()}, repeats=self.repeats)
            for row, taken in seconds.items():
                found[row]["update_ms"]["at"][str(length)] = [1e3 * s for s in taken]
        return found

    def step(self, model: nn.Module, length: int) -> Callable[[], None]:
        batch = made_up_labels(self.symbols, self.classes, self.batch, length).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

        def run() -> None:
            with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
                logits = model(batch.tokens, batch.real)
            loss = nn.functional.cross_entropy(logits.float(), batch.label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return run
