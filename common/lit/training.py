"""Training by maximum likelihood: a thin LightningModule around a plain model, whatever it predicts."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from common.metrics.token_loss import TokenLoss
from common.nn.shards import whole


class Diverged(RuntimeError):
    """The loss or its gradient is no longer finite."""


Penalty = Callable[[nn.Module], AbstractContextManager[Callable[[], Tensor]]]
"""Of a model, within which it is called once: what its call adds to the loss of each target, ()."""


class Trained(LightningModule):
    """optimizer: parameters -> Optimizer; schedule: (update, total updates) -> factor of its rate.

    A batch has N targets (words of translations, symbols of a text, labels of documents) and B items that they belong to;
    a subclass says what the model makes of it. The loss of an update is the mean over the targets of the whole update:
    all ranks and all accumulated micro-batches. label_smoothing is of this loss alone; every nll that is reported, of
    training too, is that of the right answers. Randomness (dropout) of an update is a function of seed and update alone,
    so that a resumed run repeats it. A gradient that is not finite stops the run before it reaches the weights.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Callable[..., Optimizer],
        schedule: Callable[[int, int], float],
        total_updates: int,
        clip_norm: float,
        dev_items: int,
        seed: int,
        label_smoothing: float = 0.0,
        penalty: Penalty | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing: got {label_smoothing}, expected from 0 to below 1")
        self.label_smoothing, self.penalty = label_smoothing, penalty
        self.model = model
        self.optimizer, self.schedule = optimizer, schedule
        self.total_updates, self.clip_norm, self.seed = total_updates, clip_norm, seed
        self.dev = TokenLoss(dev_items)
        self.diverged_at: int | None = None

    @property
    def updates_made(self) -> int:
        """All, unless the gradient of one was not finite."""
        return self.total_updates if self.diverged_at is None else self.diverged_at - 1

    @abstractmethod
    def logits(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits (N, V), fp32, and right answers (N,) of the N targets of a batch, item by item."""

    @abstractmethod
    def counts(self, batch: Any) -> Tensor:
        """Number of targets of each item, (B,), int64."""

    def nll(self, batch: Any) -> Tensor:
        """Negative log-likelihood (N,) in nats of the N targets, in the order of `logits`."""
        return functional.cross_entropy(*self.logits(batch), reduction="none")

    def losses(self, batch: Any) -> tuple[Tensor, Tensor]:
        """What training minimises and the nll, each (N,)."""
        if self.penalty is None:
            return self.likelihood(batch)
        with self.penalty(self.model) as added:
            loss, nll = self.likelihood(batch)
            return loss + added(), nll

    def likelihood(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The nll with label smoothing and without, each (N,)."""
        if not self.label_smoothing:
            nll = self.nll(batch)
            return nll, nll.detach()
        loss, nll = smoothed(*self.logits(batch), self.label_smoothing)
        return loss, nll.detach()

    def item_nll(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Summed nll (B,) in nats and number of targets (B,) of each item."""
        counts = self.counts(batch)
        return summed(self.nll(batch), counts), counts

    def configure_model(self) -> None:
        """Shards the model where the strategy has a mesh of processes to do so (fsdp). Raises ValueError for weights whose
        gradients pass a hook, which shards would not have."""
        if self.device_mesh is not None and not isinstance(self.model, FSDPModule):
            if hooked := [name for name, p in self.model.named_parameters() if p._backward_hooks]:
                raise ValueError(
                    f"trainer: got fsdp, expected cpu, gpu or ddp where a part of {', '.join(hooked)} is frozen"
                )
            fully_shard(self.model, mesh=self.device_mesh["data_parallel"])

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        torch.manual_seed((self.seed * 1_000_003 + batch_idx) * 1009 + self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        loss, nll = (of_tokens.sum() for of_tokens in self.losses(batch))
        # Lightning divides by the micro-batches and averages over ranks: undo both, divide by the update's tokens
        shards = self.trainer.world_size * self.trainer.accumulate_grad_batches
        if (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0:
            self.trainer.datamodule.batch_done()  # type: ignore[attr-defined]
        return {"loss": loss * shards / batch.update_tokens, "nll": nll, "tokens": batch.target_tokens}

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Rescales the gradient to L2 norm at most clip_norm (Bahdanau et al. 2014, B.2: 1)."""
        norm = whole(nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm))
        if not torch.isfinite(norm):
            self.diverged_at = self.global_step + 1
            raise Diverged(
                f"gradient norm {norm.item()} at update {self.global_step + 1} (rate "
                f"{optimizer.param_groups[0]['lr']:.2e}): stopped before the weights changed. Lower optim.optimizer.lr "
                "or optim.clip_norm; the last good checkpoint is kept."
            )

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.dev.update(*self.item_nll(batch), batch.index)

    def on_validation_epoch_end(self) -> None:
        self.log("dev_nll", self.dev.compute()["nll_per_token"], logger=False)  # the Curves callback hands it on
        self.dev.reset()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        optimizer = self.optimizer(self.parameters())
        schedule = LambdaLR(optimizer, lambda update: self.schedule(update, self.total_updates))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def summed(values: Tensor, counts: Tensor) -> Tensor:
    """Sums of runs of values (N,): of the first counts[0] of them, of the next counts[1], .. (B,)."""
    item = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    return values.new_zeros(len(counts)).index_add(0, item, values)


def smoothed(logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Cross entropy against (1 - epsilon) of the right word + epsilon / V of each of all V, and the nll, (N,) each.

    Szegedy et al. 2016, section 7, with the uniform distribution, as Vaswani et al. 2017, section 5.4, take it over: the
    right word and the special ones have their share as all others. logits: (N, V), of real positions alone; target: (N,).
    """
    log_p = logits.log_softmax(-1)
    nll = functional.nll_loss(log_p, target, reduction="none")
    share = epsilon / logits.shape[-1]
    # a sum and not a mean: its gradient is one number a row, expanded without a copy
    return (1 - epsilon) * nll - share * log_p.sum(-1), nll
