"""Memory of a training update, as it is and with one remedy each, predicted from small batches and measured on the full one.

Weights and Adam's moments by their sizes; beyond them predicted: from what updates of two and of four items have live at their
peak, which grows by the item; measured: how much the resident memory of a new process grows with the full batch.
"""

import ctypes
import gc
import resource
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from common.bench.memory import peak_bytes
from common.lit.training import Trained
from reproductions.doctor.subject import Report, Subject

SMALL = (2, 4)
SHORT = 16
MMAP_THRESHOLD = -3  # malloc.h
FUSED = "sdpa"
CLOSE = 0.1
Config = dict[str, Any]


def oom(subject: Subject) -> Report:
    """Each remedy in the order in which it costs least: what a fused kernel saves is free, a batch in parts costs time, a
    window costs sight, 16 bits digits, and blocks computed again a third more work."""
    items, length = subject.usual()
    report, whole = Report(), 0
    for name, remedy in remedies(subject.config, length):
        if isinstance(remedy, str):
            report.lines.append(f"{name}: {remedy}")
            continue
        predicted, found = predict(subject, remedy, items, length), measure(remedy, items, length)
        whole = whole or predicted
        line = f"{name}: predicted {predicted / 1e6:.0f} MB, {predicted / whole:.2f} of the whole"
        if found is None:
            report.lines.append(f"{line}; not measured: this system does not say what a process has resident")
            continue
        report.lines.append(f"{line}; measured {found / 1e6:.0f} MB")
        if abs(predicted - found) > CLOSE * found:
            report.faults.append(
                f"{name}: predicted {predicted / 1e6:.0f} MB, measured {found / 1e6:.0f}: beyond a tenth"
            )
    return report


class Remedy:
    """config: of the row with it. halves: gradients of two half batches are added up. bf16: products in 16 bits. again: blocks
    are computed again in the backward pass."""

    def __init__(self, config: Config, *, halves: bool = False, bf16: bool = False, again: bool = False) -> None:
        self.config, self.halves, self.bf16, self.again = config, halves, bf16, again


def remedies(config: Config, length: int) -> Iterator[tuple[str, Remedy | str]]:
    """Or why there is none."""
    yield "as it is", Remedy(config, bf16=str(config["trainer"]["precision"]).startswith("bf16"))
    attention = config["model"].get("attention")
    full = isinstance(attention, dict) and attention["_target_"] == "common.nn.sparse.Full"
    if not full:
        yield "fused kernel", "no model.attention of full attention to compute otherwise"
    elif attention["backend"] == FUSED:
        yield "fused kernel", "has one"
    else:
        yield "fused kernel", Remedy(_with(config, attention | {"backend": FUSED}))
    if full:
        window = {"backend": "chunked", "window": max(1, length // 8), "causal": attention.get("causal", False)}
        yield "window of an eighth", Remedy(_with(config, {"_target_": "common.nn.sparse.Windowed", **window}))
    else:
        yield "window of an eighth", "no model.attention of full attention to narrow"
    yield "two half batches", Remedy(config, halves=True)
    yield "16 bits", Remedy(config, bf16=True)
    yield "blocks computed again", Remedy(config, again=True)


def _with(config: Config, attention: Mapping[str, Any]) -> Config:
    return config | {"model": config["model"] | {"attention": dict(attention)}}


def predict(subject: Subject, remedy: Remedy, items: int, length: int) -> int:
    """Bytes."""
    module, update = made(remedy)
    counted = []
    for few in SMALL:
        batch = subject.made_up(few, length)
        update([batch])  # Adam's moments are there from now on
        counted.append(peak_bytes(partial(update, [batch])))
    each = (counted[1] - counted[0]) / (SMALL[1] - SMALL[0])
    at_once = items / 2 if remedy.halves else items
    return round(held(module) + counted[0] + (at_once - SMALL[0]) * each)


def held(module: nn.Module) -> int:
    """Bytes of weights and two moments of each."""
    return 3 * sum(p.nbytes for p in module.parameters())


def made(remedy: Remedy) -> tuple[Trained, Callable[[list[Any]], None]]:
    """The module and an update of it on parts of a batch, whose gradients are added."""
    module = Subject(remedy.config).drawn().train()
    if remedy.again:
        _again(module.model)
    optimizer = torch.optim.Adam(module.parameters())

    def update(parts: list[Any]) -> None:
        optimizer.zero_grad()
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=remedy.bf16):
                loss = module.nll(part).sum() / part.update_tokens
            loss.backward()
        optimizer.step()

    return module, update


def _again(model: nn.Module) -> None:
    """Raises ValueError for a model without a list of blocks."""
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part)]
    if not lists:
        raise ValueError(f"{type(model).__name__}: no list of blocks to compute again")
    for block in lists[0]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def measure(remedy: Remedy, items: int, length: int) -> int | None:
    """Bytes; None where the system does not say what a process has resident."""
    if not Path("/proc/self/statm").exists():
        return None
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_grown, remedy, items, length).result()


def _grown(remedy: Remedy, items: int, length: int) -> int:
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)  # of each tensor by itself, given back when it is freed
    subject = Subject(remedy.config)
    sizes = [items // 2, items - items // 2] if remedy.halves else [items]
    parts = [subject.made_up(size, length) for size in sizes]
    module, update = made(remedy)
    update([subject.made_up(1, min(length, SHORT))])  # moments, workspaces, libraries
    module.zero_grad()
    gc.collect()
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    update(parts)
    return held(module) + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
