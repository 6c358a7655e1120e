"""Training of sequence-to-sequence models by maximum likelihood: a thin LightningModule around a plain model."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from common.decode.types import StepModel
from common.metrics.token_loss import TokenLoss
from common.nn.shards import whole
from data.batch import Seq2SeqBatch


class Diverged(RuntimeError):
    """The loss or its gradient is no longer finite."""


class Seq2SeqModel(Protocol):
    """Teacher forcing: logits (N, V) of the N real target positions, in the order of target_mask."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor: ...


class Seq2Seq(LightningModule):
    """optimizer: parameters -> Optimizer; schedule: (update, total updates) -> factor of its rate.

    The loss of an update is the mean over the real target tokens of the whole update: all ranks and all accumulated
    micro-batches. label_smoothing is of this loss alone; every nll that is reported, of training too, is that of the
    right words. Randomness (dropout) of an update is a function of seed and update alone, so that a resumed run
    repeats it. A gradient that is not finite stops the run before it reaches the weights.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Callable[..., Optimizer],
        schedule: Callable[[int, int], float],
        total_updates: int,
        clip_norm: float,
        dev_sentences: int,
        seed: int,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing: got {label_smoothing}, expected from 0 to below 1")
        self.label_smoothing = label_smoothing
        self.model = model
        self.optimizer, self.schedule = optimizer, schedule
        self.total_updates, self.clip_norm, self.seed = total_updates, clip_norm, seed
        self.dev = TokenLoss(dev_sentences)

    @property
    def translator(self) -> StepModel:
        """The model as the decoder asks it."""
        return cast(StepModel, self.model)

    def logits(self, batch: Seq2SeqBatch) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and right words (N,) of the N real target tokens, in the order of target_mask."""
        logits = self.model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)
        return logits.float(), batch.target_out[batch.target_mask]

    def nll(self, batch: Seq2SeqBatch) -> Tensor:
        """Negative log-likelihood (N,) in nats of the N real target tokens, in the order of target_mask."""
        return functional.cross_entropy(*self.logits(batch), reduction="none")

    def losses(self, batch: Seq2SeqBatch) -> tuple[Tensor, Tensor]:
        """What training minimises and the nll, each (N,)."""
        if not self.label_smoothing:
            nll = self.nll(batch)
            return nll, nll.detach()
        loss, nll = smoothed(*self.logits(batch), self.label_smoothing)
        return loss, nll.detach()

    def configure_model(self) -> None:
        """Shards the model where the strategy has a mesh of processes to do so (fsdp)."""
        if self.device_mesh is not None and not isinstance(self.model, FSDPModule):
            fully_shard(self.model, mesh=self.device_mesh["data_parallel"])

    def on_train_batch_start(self, batch: Seq2SeqBatch, batch_idx: int) -> None:
        torch.manual_seed((self.seed * 1_000_003 + batch_idx) * 1009 + self.global_rank)

    def training_step(self, batch: Seq2SeqBatch, batch_idx: int) -> dict[str, Tensor]:
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
            raise Diverged(
                f"gradient norm {norm.item()} at update {self.global_step + 1} (rate "
                f"{optimizer.param_groups[0]['lr']:.2e}): stopped before the weights changed. Lower optim.optimizer.lr "
                "or optim.clip_norm; the last good checkpoint is kept."
            )

    def validation_step(self, batch: Seq2SeqBatch, batch_idx: int) -> None:
        self.dev.update(*self.sentence_nll(batch), batch.index)

    def sentence_nll(self, batch: Seq2SeqBatch) -> tuple[Tensor, Tensor]:
        """Summed nll (B,) in nats and number of tokens (B,), EOS counted, of each sentence."""
        nll = torch.zeros(batch.target_mask.shape, device=self.device)
        nll[batch.target_mask] = self.nll(batch)
        return nll.sum(1), batch.target_mask.sum(1)

    def on_validation_epoch_end(self) -> None:
        self.log("dev_nll", self.dev.compute()["nll_per_token"], logger=False)  # the Curves callback hands it on
        self.dev.reset()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        optimizer = self.optimizer(self.parameters())
        schedule = LambdaLR(optimizer, lambda update: self.schedule(update, self.total_updates))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


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
