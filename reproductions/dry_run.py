"""A row without its data: built at full size, one update on the CPU with a made-up batch."""

import math
import time
from typing import Any

import torch
from hydra.utils import instantiate

from common.lit.training import Trained
from reproductions.job import build_module, task_of
from reproductions.tasks.base import update

Config = dict[str, Any]
POSITIONS = 600
"""The longest item of a made-up batch: beyond a window of 512 keys, and no multiple of a block."""


def build(config: Config, data: Any) -> Trained:
    """data: need not be prepared."""
    torch.manual_seed(config["seed"])
    return build_module(config, task_of(config).planned_sizes(data), total=1000, dev=1)


def dry_run(config: Config) -> str:
    """Parameters, loss before and after one update. Raises if anything is not finite or does not move."""
    if config["ensemble"]:
        return f"{config['label']}: nothing to train; tested together: {', '.join(config['ensemble'])}"
    data, task = instantiate(config["data"]), task_of(config)
    module = build(config, data)
    batch = task.made_up(data, 1, min(task.usual(data)[1], POSITIONS))
    optimizer = module.optimizer(module.parameters())
    # a tenth of an early update's rate: with some schedules the rate alone means nothing, and a first step may be the longest
    for group in optimizer.param_groups:
        group["lr"] *= 0.1 * module.schedule(99, module.total_updates)
    started, losses = time.perf_counter(), []
    for _ in range(2):
        torch.manual_seed(config["seed"])  # the same dropout, so that the losses can be compared
        losses.append(update(module, optimizer, batch, bf16=False))
    parameters = sum(p.numel() for p in module.parameters())
    if not losses[1] < losses[0] < float("inf"):
        raise RuntimeError(f"{config['row']}: an update took the loss from {losses[0]} to {losses[1]}")
    choices = module.logits(batch)[0].shape[1]
    return (
        f"{config['label']}: {parameters:,} parameters, loss {losses[0]:.3f} (ln {choices} = {math.log(choices):.3f}), "
        f"{losses[1]:.3f} after one update, {time.perf_counter() - started:.1f} s"
    )
