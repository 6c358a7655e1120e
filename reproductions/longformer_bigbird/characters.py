"""How fast the character models train, in symbols and as a share of what the machine can do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from common import bench
from common.bench.by_length import store
from common.bench.update import whole_update
from common.bench.updates import Rows, Updates
from data.symbols import BYTES, vocabulary
from data.token_batch import made_up_tokens

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PRODUCT = "product"


@dataclass(frozen=True, kw_only=True)
class CharacterStep(Updates):
    """`tokens_per_second` of updates of about `tokens` symbols in each stage of training, and `share_of_peak`: percent of the
    FLOPs a second that a large matrix product of the same dtype reaches in the same turn.

    models: row -> what makes a model of its vocabulary. lengths: of the sequences of each stage; windows double with it.
    """

    tokens: int

    def build(self, make: Callable[..., nn.Module]) -> nn.Module:
        return make(vocabulary=vocabulary(BYTES))

    def beside(self) -> dict[str, Callable[[], object]]:
        return {PRODUCT: self.product[0]}

    @cached_property
    def product(self) -> tuple[Callable[[], object], int]:
        return bench.product(DTYPES[self.precision], device=self.device)

    def sequences(self, length: int) -> int:
        return max(1, self.tokens // length)

    def step(self, model: nn.Module, length: int, stage: int) -> Callable[[], None]:
        batch = made_up_tokens(BYTES, self.sequences(length), length).to(self.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        targets = batch.targets[batch.scored]
        return whole_update(
            model, optimizer, lambda: model(batch.tokens, stage=stage)[batch.scored], targets, self.precision
        )

    def record(
        self, rows: Rows, length: int, steps: Mapping[str, Callable[[], None]], seconds: Mapping[str, Sequence[float]]
    ) -> None:
        tokens, work = self.sequences(length) * length, self.product[1]
        for row, step in steps.items():
            store(rows, row, "tokens_per_second", length, "symbols/s").extend(tokens / s for s in seconds[row])
            share = bench.count_flops(step) / work
            store(rows, row, "share_of_peak", length, "%").extend(
                100 * share * product / s for product, s in zip(seconds[PRODUCT], seconds[row], strict=True)
            )
