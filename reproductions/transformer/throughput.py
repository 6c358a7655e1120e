"""How long a training update takes by the length of its sentences: a Transformer and recurrent models of equal size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from common.bench.sizes import equal_sizes
from common.bench.timing import interleaved, seconds_of
from common.bench.update import update
from data.batch import made_up_batch


@dataclass(frozen=True)
class Throughput:
    """`update_ms`: milliseconds of an update per thousand target tokens, by words a sentence, models of a length in turns;
    `tokens_per_second`; `parameters`. models: row -> what makes a model of the sizes of its vocabularies.

    Each update has about `tokens` target tokens, so that no model is starved by short sentences. Raises ValueError where
    the models' sizes lie further apart than a tenth.
    """

    models: Mapping[str, Callable[..., nn.Module]]
    vocabulary: int
    lengths: Sequence[int]
    tokens: int
    precision: str
    device: str
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        models = {row: self.build(row) for row in self.models}
        found: dict[str, dict[str, Any]] = {
            row: {
                "parameters": {"unit": "M", "at": {"default": [size / 1e6]}, "refused": {}},
                "update_ms": {"unit": "ms", "at": {}, "refused": {}},
                "tokens_per_second": {"unit": "tokens/s", "at": {}, "refused": {}},
            }
            for row, size in equal_sizes(models).items()
        }
        for length in self.lengths:
            sentences = max(1, round(self.tokens / (length + 1)))
            tokens = sentences * (length + 1)
            steps = {row: self.step(model, sentences, length) for row, model in models.items()}
            seconds = interleaved({row: partial(seconds_of, step) for row, step in steps.items()}, repeats=self.repeats)
            for row, taken in seconds.items():
                found[row]["update_ms"]["at"][str(length)] = [1e6 * s / tokens for s in taken]
                found[row]["tokens_per_second"]["at"][str(length)] = [tokens / s for s in taken]
        return found

    def build(self, row: str) -> nn.Module:
        size = self.vocabulary
        return self.models[row](source_words=size, target_words=size).to(self.device)

    def step(self, model: nn.Module, sentences: int, length: int) -> Callable[[], None]:
        batch = made_up_batch(self.vocabulary, self.vocabulary, sentences, length).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        return update(model, optimizer, batch, self.precision)
