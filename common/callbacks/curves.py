"""Learning curves: means over an interval of updates, not single batches."""

import csv
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

COLUMNS: tuple[str, ...] = ("update", "target_tokens", "train_nll", "dev_nll", "lr", "tokens_per_second")


class Curves(Callback):
    """Writes a row to `path` every `every` updates and after each validation, and hands it to the loggers.

    train_nll is per real target token over the interval, all ranks and micro-batches; tokens_per_second counts
    training time alone. The sums travel in the checkpoint; rows past the checkpoint of a resumed run are cut, so
    that the file is that of an uninterrupted run.
    """

    def __init__(self, path: Path, every: int) -> None:
        self.path, self.every = path, every
        self.nll = self.tokens = self.seconds = 0.0
        self.total_tokens, self.total_seconds = 0, 0.0
        self._started = 0.0

    def state_dict(self) -> dict[str, Any]:
        names = ("nll", "tokens", "seconds", "total_tokens", "total_seconds")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        rows: list[dict[str, str]] = []
        if self.path.exists() and trainer.global_step:
            with self.path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if int(row["update"]) <= trainer.global_step]
        if trainer.is_global_zero:
            with self.path.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seconds = time.perf_counter() - self._started
        self.nll += outputs["nll"].item()
        self.tokens += outputs["tokens"].item()
        self.total_tokens += int(batch.update_tokens) if batch_idx % trainer.accumulate_grad_batches == 0 else 0
        self.seconds += seconds
        self.total_seconds += seconds
        updated = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if updated and trainer.global_step % self.every == 0:
            sums = torch.tensor([self.nll, self.tokens], device=pl_module.device)
            nll, tokens = (float(total) for total in trainer.strategy.reduce(sums, reduce_op="sum"))
            self._write(trainer, {"train_nll": nll / tokens, "tokens_per_second": tokens / self.seconds})
            self.nll = self.tokens = self.seconds = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._write(trainer, {"dev_nll": float(trainer.callback_metrics["dev_nll"])})

    def _write(self, trainer: Trainer, row: dict[str, float]) -> None:
        row |= {"update": trainer.global_step, "target_tokens": self.total_tokens, "lr": rate(trainer)}
        if trainer.is_global_zero:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS).writerow(row)
            for logger in trainer.loggers:
                logger.log_metrics(row, step=trainer.global_step)


def rate(trainer: Trainer) -> float:
    """Learning rate of the next update."""
    return trainer.optimizers[0].param_groups[0]["lr"]
