"""Training of sequence-to-sequence models by maximum likelihood: a thin LightningModule around a plain model."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from common.decode.types import StepModel
from common.metrics.perplexity import TokenLoss
from data.batch import Seq2SeqBatch


class Diverged(RuntimeError):
    """The loss or its gradient is no longer finite."""


class Seq2SeqModel(Protocol):
    """Teacher forcing: logits (N, V) of the N real target positions, in the order of target_mask."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor: ...


class Seq2Seq(LightningModule):
    """optimizer: parameters -> Optimizer; schedule: (update, total updates) -> factor of its rate.

    The loss of an update is the mean over the real target tokens of the whole update: all ranks and all accumulated
    micro-batches. Randomness (dropout) of an update is a function of seed and update alone, so that a resumed run
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
    ) -> None:
        super().__init__()
        self.model = model
        self.optimizer, self.schedule = optimizer, schedule
        self.total_updates, self.clip_norm, self.seed = total_updates, clip_norm, seed
        self.dev = TokenLoss(dev_sentences)

    @property
    def translator(self) -> StepModel:
        """The model as the decoder asks it."""
        return cast(StepModel, self.model)

    def nll(self, batch: Seq2SeqBatch) -> Tensor:
        """Negative log-likelihood (N,) in nats of the N real target tokens, in the order of target_mask."""
        logits = self.model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)
        return functional.cross_entropy(logits.float(), batch.target_out[batch.target_mask], reduction="none")

    def on_train_batch_start(self, batch: Seq2SeqBatch, batch_idx: int) -> None:
        torch.manual_seed((self.seed * 1_000_003 + batch_idx) * 1009 + self.global_rank)

    def training_step(self, batch: Seq2SeqBatch, batch_idx: int) -> dict[str, Tensor]:
        nll = self.nll(batch).sum()
        # Lightning divides by the micro-batches and averages over ranks: undo both, divide by the update's tokens
        shards = self.trainer.world_size * self.trainer.accumulate_grad_batches
        if (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0:
            self.trainer.datamodule.batch_done()  # type: ignore[attr-defined]
        return {"loss": nll * shards / batch.update_tokens, "nll": nll.detach(), "tokens": batch.target_tokens}

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Rescales the gradient to L2 norm at most clip_norm (Bahdanau et al. 2014, B.2: 1)."""
        norm = nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
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
