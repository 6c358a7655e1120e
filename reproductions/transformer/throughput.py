"""How long a training update takes by the length of its sentences: a Transformer and recurrent models of equal size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from common.bench.by_length import store
from common.bench.update import update
from common.bench.updates import Rows, Updates
from data.batch import made_up_batch


@dataclass(frozen=True, kw_only=True)
class Throughput(Updates):
    """`update_ms`: milliseconds of an update per thousand target tokens, by words a sentence; `tokens_per_second`;
    `parameters`. models: row -> what makes a model of the sizes of its vocabularies.

    Each update has about `tokens` target tokens, so that no model is starved by short sentences.
    """

    vocabulary: int
    tokens: int

    def build(self, make: Callable[..., nn.Module]) -> nn.Module:
        return make(source_words=self.vocabulary, target_words=self.vocabulary)

    def sentences(self, length: int) -> int:
        return max(1, round(self.tokens / (length + 1)))

    def step(self, model: nn.Module, length: int, stage: int) -> Callable[[], None]:
        batch = made_up_batch(self.vocabulary, self.vocabulary, self.sentences(length), length).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        return update(model, optimizer, batch, self.precision)

    def record(
        self, rows: Rows, length: int, steps: Mapping[str, Callable[[], None]], seconds: Mapping[str, Sequence[float]]
    ) -> None:
        tokens = self.sentences(length) * (length + 1)
        for row in steps:
            store(rows, row, "update_ms", length).extend(1e6 * s / tokens for s in seconds[row])
            store(rows, row, "tokens_per_second", length, "tokens/s").extend(tokens / s for s in seconds[row])
