"""Learning curves by hand: means over an interval, sums that travel in the checkpoint, rows cut on resume."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common.callbacks.curves import Curves

MODULE = SimpleNamespace(device=torch.device("cpu"))


def trainer(step: int) -> Any:
    return SimpleNamespace(
        global_step=step,
        is_global_zero=True,
        accumulate_grad_batches=1,
        sanity_checking=False,
        loggers=[],
        callback_metrics={"dev_nll": torch.tensor(1.5)},
        strategy=SimpleNamespace(reduce=lambda tensor, reduce_op: tensor),
        optimizers=[SimpleNamespace(param_groups=[{"lr": 0.25}])],
    )


def train(curves: Curves, updates: range) -> None:
    """Update k has k tokens and a summed nll of 2 k."""
    for k in updates:
        batch = SimpleNamespace(update_tokens=torch.tensor(k))
        curves.on_train_batch_start(trainer(k - 1), MODULE, batch, k - 1)  # type: ignore[arg-type]
        out = {"nll": torch.tensor(2.0 * k * (k % 2 + 1)), "tokens": torch.tensor(k)}
        curves.on_train_batch_end(trainer(k), MODULE, out, batch, k - 1)  # type: ignore[arg-type]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_a_mean_over_the_tokens_of_its_interval(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.csv", every=2)
    curves.on_train_start(trainer(0), MODULE)  # type: ignore[arg-type]
    train(curves, range(1, 5))
    curves.on_validation_end(trainer(4), MODULE)  # type: ignore[arg-type]
    first, second, dev = rows(curves.path)
    assert float(first["train_nll"]) == pytest.approx((4 * 1 + 2 * 2) / 3)
    assert float(second["train_nll"]) == pytest.approx((4 * 3 + 2 * 4) / 7)
    assert [first["target_tokens"], second["target_tokens"], dev["target_tokens"]] == ["3", "10", "10"]
    assert (dev["train_nll"], dev["dev_nll"], dev["lr"], dev["update"]) == ("", "1.5", "0.25", "4")


def test_a_resumed_run_cuts_what_lies_behind_its_checkpoint_and_goes_on_with_its_sums(tmp_path: Path) -> None:
    whole = Curves(tmp_path / "whole.csv", every=2)
    whole.on_train_start(trainer(0), MODULE)  # type: ignore[arg-type]
    train(whole, range(1, 7))

    killed = Curves(tmp_path / "killed.csv", every=2)
    killed.on_train_start(trainer(0), MODULE)  # type: ignore[arg-type]
    train(killed, range(1, 4))
    state = killed.state_dict()
    train(killed, range(4, 6))  # after the checkpoint: lost
    again = Curves(tmp_path / "killed.csv", every=2)
    again.load_state_dict(state)
    again.on_train_start(trainer(3), MODULE)  # type: ignore[arg-type]
    train(again, range(4, 7))

    def numbers(path: Path) -> list[dict[str, str]]:
        return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows(path)]

    assert numbers(again.path) == numbers(whole.path)
    assert again.total_tokens == whole.total_tokens == sum(range(1, 7))


def test_sums_lie_on_the_device_of_the_module_where_ranks_can_add_them(tmp_path: Path) -> None:
    """NCCL takes no tensor of the CPU."""
    curves = Curves(tmp_path / "curves.csv", every=1)
    seen: list[str] = []

    def reduce(tensor: torch.Tensor, reduce_op: str) -> torch.Tensor:
        seen.append(tensor.device.type)
        return torch.tensor([6.0, 3.0])

    one = trainer(1)
    one.strategy.reduce = reduce
    module = SimpleNamespace(device=torch.device("meta"))
    curves.on_train_start(one, module)  # type: ignore[arg-type]
    curves.on_train_batch_start(one, module, None, 0)  # type: ignore[arg-type]
    batch, out = SimpleNamespace(update_tokens=3), {"nll": torch.tensor(2.0), "tokens": torch.tensor(1)}
    curves.on_train_batch_end(one, module, out, batch, 0)  # type: ignore[arg-type]
    assert seen == ["meta"]
    assert rows(curves.path)[0]["train_nll"] == "2.0"
