"""How far a job is, in a file: several jobs run side by side, and their launcher draws all bars."""

import json
import time
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

SECONDS_BETWEEN = 1.0


class Progress(Callback):
    """Writes {"done", "total", "note"} to path at most once a second."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.total = path, total
        self._written = 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_global_zero and time.monotonic() - self._written > SECONDS_BETWEEN:
            self.write(trainer.global_step, "training")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self.write(trainer.global_step, "testing")

    def write(self, done: int, note: str) -> None:
        self._written = time.monotonic()
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"done": done, "total": self.total, "note": note}))
        part.replace(self.path)
