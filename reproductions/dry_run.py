"""A row without its data: built at full size, one update on the CPU with a made-up batch."""

import time
from typing import Any

import torch

from common.lit.seq2seq import Seq2Seq
from data.batch import Seq2SeqBatch, made_up_batch
from data.vocab import SPECIALS
from reproductions.job import build_module


def vocabulary(config: dict[str, Any]) -> tuple[int, int]:
    data = config["data"]
    return len(SPECIALS) + data["source_vocab_size"], len(SPECIALS) + data["target_vocab_size"]


def build(config: dict[str, Any]) -> Seq2Seq:
    torch.manual_seed(config["seed"])
    return build_module(config, *vocabulary(config), total=1000, dev=1)


def update(module: Seq2Seq, optimizer: torch.optim.Optimizer, batch: Seq2SeqBatch, bf16: bool) -> float:
    """One training update as the trainer does it; returns the loss."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = module.nll(batch).sum() / batch.update_tokens
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), module.clip_norm)
    optimizer.step()
    return loss.item()


def dry_run(config: dict[str, Any]) -> str:
    """Parameters, loss before and after one update. Raises if anything is not finite or does not move."""
    if config["ensemble"]:
        return f"{config['label']}: nothing to train; tested together: {', '.join(config['ensemble'])}"
    module = build(config)
    batch = made_up_batch(*vocabulary(config), sentences=2, words=6)
    optimizer = module.optimizer(module.parameters())
    for group in optimizer.param_groups:  # of an early update: with some schedules the rate alone means nothing
        group["lr"] *= module.schedule(99, module.total_updates)
    started, losses = time.perf_counter(), []
    for _ in range(2):
        torch.manual_seed(config["seed"])  # the same dropout, so that the losses can be compared
        losses.append(update(module, optimizer, batch, bf16=False))
    parameters = sum(p.numel() for p in module.parameters())
    if not losses[1] < losses[0] < float("inf"):
        raise RuntimeError(f"{config['row']}: an update took the loss from {losses[0]} to {losses[1]}")
    return (
        f"{config['label']}: {parameters:,} parameters, loss {losses[0]:.3f} (ln V = "
        f"{torch.tensor(float(vocabulary(config)[1])).log():.3f}), {losses[1]:.3f} after one update, "
        f"{time.perf_counter() - started:.1f} s"
    )
