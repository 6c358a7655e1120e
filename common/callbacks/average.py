"""The mean of the weights at several updates near the end of training (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Collection
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from common.nn.shards import whole


def averaged_updates(total: int, count: int, every: float) -> list[int]:
    """The last of `total` updates and those before it, `every` of all updates apart: at most `count`, the last one last.

    The paper averages the last 5 checkpoints of the base model, 10 minutes apart, which at 0.4 s a step are 1500 of 100,000
    steps (every: 0.015), and the last 20 of the big one, 600 of 300,000 apart (0.002). Less than an update apart is one
    apart; before the first update there is none.
    """
    if count < 1 or not 0 < every <= 1:
        raise ValueError(f"got count {count} and every {every}, expected 1 or more and a share from above 0 to 1")
    apart = max(1, round(total * every))
    return [update for update in range(total - apart * (count - 1), total + 1, apart) if update > 0]


class Average(Callback):
    """Adds up the model's weights after each of `updates`; `mean` is what is tested in place of the last ones.

    The sums, in fp64 on the CPU, travel in the checkpoint: a resumed run gets the same mean.
    """

    def __init__(self, updates: Collection[int]) -> None:
        self.updates = frozenset(updates)
        self.count = 0
        self.sums: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "sums": self.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count, self.sums = state_dict["count"], state_dict["sums"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        updated = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if updated and trainer.global_step in self.updates:
            weights = {name: whole(tensor).cpu().double() for name, tensor in weights_of(pl_module).items()}
            self.sums = {name: tensor + self.sums.get(name, 0.0) for name, tensor in weights.items()}
            self.count += 1

    def load_mean(self, pl_module: LightningModule) -> None:
        """Puts the mean into the model. Raises ValueError where an update is missing, which would be another mean."""
        if self.count != len(self.updates):
            raise ValueError(f"weights to average: got those of {self.count} updates, expected {len(self.updates)}")
        for name, tensor in weights_of(pl_module).items():
            tensor.copy_(self.sums[name] / self.count)


def weights_of(pl_module: LightningModule) -> dict[str, Tensor]:
    """All parameters of the model, one that has two names twice. What it keeps besides, random draws say, stays as it is: a
    mean of draws is no draw."""
    model: Any = pl_module.model
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in buffers}
