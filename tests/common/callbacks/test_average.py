"""The mean of weights by hand, over a real training, and over one that was killed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from common.callbacks.average import Average, averaged_updates
from common.callbacks.last import Last


class Counting(pl.LightningModule):
    """Its weight is 2^n after n updates: the gradient is minus the weight, the rate 1. Two names, one weight; a buffer that
    changes with each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"a": nn.Linear(1, 1, bias=False), "b": nn.Linear(1, 1, bias=False)})
        self.model["b"].weight = self.model["a"].weight
        nn.init.ones_(self.model["a"].weight)  # type: ignore[arg-type]
        self.model.register_buffer("seen", torch.zeros(1, dtype=torch.int64))
        self.model.register_buffer("drawn", torch.zeros(1))

    @property
    def weight(self) -> Tensor:
        return self.model["a"].weight  # type: ignore[return-value]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.model.drawn += 1  # type: ignore[operator]
        return -0.5 * self.weight.square().sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(torch.zeros(100, 1))  # type: ignore[arg-type]


def fit(folder: Path, updates: int, average: Average, resume: Path | None = None, accumulate: int = 1) -> Counting:
    """`Last` is listed first, as no callback is asked about its order: Lightning puts checkpoints last."""
    module = Counting()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=updates,
        accumulate_grad_batches=accumulate,
        callbacks=[Last(folder / "last.ckpt", every=1, check_every=10**6), average],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, ckpt_path=resume, weights_only=False)
    return module


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((100_000, 5, 0.015), [94_000, 95_500, 97_000, 98_500, 100_000]),
        ((300_000, 20, 0.002), list(range(288_600, 300_001, 600))),
        ((10, 3, 0.2), [6, 8, 10]),
        ((10, 3, 0.001), [8, 9, 10]),
        ((10, 5, 0.3), [1, 4, 7, 10]),
        ((7, 1, 0.5), [7]),
    ],
)
def test_updates_to_be_averaged(settings: tuple[int, int, float], expected: list[int]) -> None:
    assert averaged_updates(*settings) == expected


@pytest.mark.parametrize(("count", "every"), [(0, 0.1), (2, 0.0), (2, 1.5)])
def test_what_averages_nothing_is_refused(count: int, every: float) -> None:
    with pytest.raises(ValueError, match=f"got count {count} and every {every}, expected 1 or more and a share"):
        averaged_updates(10, count, every)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_mean_of_a_training(tmp_path: Path, accumulate: int) -> None:
    """After updates 3, 5 and 6 the weight is 8, 32 and 64: mean 104 / 3."""
    average = Average([3, 5, 6])
    module = fit(tmp_path, 6, average, accumulate=accumulate)
    assert module.weight.item() == 64
    average.load_mean(module)
    assert module.weight.item() == pytest.approx(104 / 3)
    assert module.model["b"].weight is module.weight
    assert module.model.drawn == 6 * accumulate, "what is drawn is no weight"


def test_a_killed_training_has_the_same_mean(tmp_path: Path) -> None:
    fit(tmp_path, 5, Average([3, 5, 6]))
    average = Average([3, 5, 6])
    module = fit(tmp_path, 6, average, resume=tmp_path / "last.ckpt")
    average.load_mean(module)
    assert module.weight.item() == pytest.approx(104 / 3)


def test_in_fp64(tmp_path: Path) -> None:
    """2^24 + 1 is no fp32 number: (2^24 + 1 + 1) / 3 is right all the same."""
    average, module = Average([1, 2, 3]), Counting()
    for step, value in ((1, 2.0**24), (2, 1.0), (3, 1.0)):
        nn.init.constant_(module.weight, value)
        trainer: Any = SimpleNamespace(global_step=step, accumulate_grad_batches=1)
        average.on_train_batch_end(trainer, module, None, None, step - 1)
    assert average.sums["a.weight"].item() == 2.0**24 + 2


def test_a_missing_update_is_no_mean(tmp_path: Path) -> None:
    average = Average([3, 9])
    module = fit(tmp_path, 6, average)
    with pytest.raises(ValueError, match="got those of 1 updates, expected 2"):
        average.load_mean(module)
