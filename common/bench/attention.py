"""python -m common.bench attention: times of attention by contestant, mask, pass and length, in one JSON file.

Everything of one length is measured in turns, a square matrix product among it, so that ratios and shares of the peak
meet the same clocks. What a contestant refuses, what does not fit into memory and what would take longer than the
budget are rows too, with the reason.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch

from common.bench import machine
from common.bench.group import History, measure
from common.bench.record import SCHEMA, UNITS, Record, Row, write
from common.bench.settings import Settings


def run(settings: Settings, out: Path, *, command: str = "", tell: Callable[[str], object] = print) -> Record:
    """All rows, written to `out` after each group of them."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    started, date = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    clocks, rows, history = [machine.clocks(settings.device)], [], History()
    shapes = [
        settings.shape(length, head_dim, dtype)
        for dtype, head_dim, length in product(settings.dtypes, settings.head_dims, sorted(settings.lengths))
    ]
    with machine.memory_limit(settings.device):
        for n, shape in enumerate(shapes, 1):
            rows += (group := measure(settings, shape, history))
            clocks.append(machine.clocks(settings.device))
            for row in group:
                tell(line(row))
            record = Record(
                schema=SCHEMA,
                bench="attention",
                complete=n == len(shapes),
                date=date,
                seconds=time.perf_counter() - started,
                command=command,
                machine=machine.machine(settings.device),
                versions=machine.versions(),
                commit=machine.commit(),
                source=machine.source(),
                settings=asdict(settings),
                clocks=tuple(clocks),
                units=UNITS,
                rows=tuple(rows),
            )
            write(record, out)
    return record


def line(row: Row) -> str:
    """A row for people to read."""
    what = f"{row.dtype} d{row.head_dim} {row.length:>6} {row.mask:<18} {row.dropout:<4g} {row.backend:<15} {row.passes:<8}"
    if row.seconds is None:
        return f"{what} {row.status}: {row.reason}"
    memory = "" if row.peak_bytes is None else f" {row.peak_bytes / 2**20:8.1f} MiB"
    rate = row.tflops_kept if row.tflops_paper is None else row.tflops_paper
    return f"{what} {row.seconds * 1e3:10.3f} ms {rate:8.3f} TFLOP/s {row.share_of_product:6.1%} of a product{memory}"
