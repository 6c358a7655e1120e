"""One training update of a model, the thing whose speed is compared."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn


class Batch(Protocol):
    """What `data.batch.Seq2SeqBatch` is, as far as a model reads it."""

    @property
    def source(self) -> Tensor: ...
    @property
    def source_mask(self) -> Tensor: ...
    @property
    def target_in(self) -> Tensor: ...
    @property
    def target_out(self) -> Tensor: ...
    @property
    def target_mask(self) -> Tensor: ...


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, precision: str) -> Callable[[], None]:
    """An update of a translation model, see `whole_update`."""

    def forward() -> Tensor:
        return model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)

    return whole_update(model, optimizer, forward, batch.target_out[batch.target_mask], precision)


def whole_update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[], Tensor],
    targets: Tensor,
    precision: str,
) -> Callable[[], None]:
    """All of an update: loss, gradients, clipping, optimiser. precision: fp32, or bf16 for matrix products in bfloat16.

    forward: logits (N, V) of targets (N,).
    """

    def run() -> None:
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = forward()
        loss = nn.functional.cross_entropy(logits.float(), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run
