"""The checkpoint that a killed run goes on from."""

from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint


class Last(Checkpoint):
    """Saves the whole state to `path` every `every` updates and after each validation, which is every `check_every`.

    Where both fall on one update it is saved once, after the validation: Lightning does not repeat on resume a
    validation that was due when the checkpoint was written, and the best score so far would lack it. To be listed
    behind the ModelCheckpoint that keeps the best.
    """

    def __init__(self, path: Path, every: int, check_every: int) -> None:
        self.path, self.every, self.check_every = path, every, check_every

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        updated = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        step = trainer.global_step
        if updated and step % self.every == 0 and step % self.check_every:
            trainer.save_checkpoint(self.path)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            trainer.save_checkpoint(self.path)
