"""All rows of one shape, measured in turns."""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product as every
from typing import Any, TypeVar

import torch

from common.attention import Mask
from common.bench.contestants import PEER, TORCH, prepare
from common.bench.flops import block_density, flops, kept_pairs, paper_pairs
from common.bench.job import Job, calls_of, each
from common.bench.ratios import ratio
from common.bench.record import Row, Status
from common.bench.settings import Settings
from common.bench.timing import product, seconds_of
from common.bench.workload import DTYPES, Inputs, Shape, cache_bytes, mask_of, random_inputs, sets_needed

BASELINES = ("plain", "reference", "sdpa", *TORCH, PEER)
"""What each row's ratios are against, where these were measured too."""
UNMETERED = {("flex", "cpu")}
"""Compiled code takes its memory where the meter of live storages does not see it."""

Key = tuple[Any, ...]
"""A row but for its length: backend, passes, mask, dropout, dtype, head_dim."""
T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    status: Status
    reason: str


@dataclass
class History:
    """What shorter lengths cost, in seconds a call and sequence, and the length at which memory ended."""

    costs: dict[Key, list[tuple[int, float]]] = field(default_factory=dict)
    full: dict[Key, int] = field(default_factory=dict)

    def forecast(self, key: Key, length: int) -> float | None:
        """Seconds a call and sequence: the growth between the last two lengths, held between linear and square, goes on;
        square growth after a single one. None after none."""
        known = self.costs.get(key, [])
        if not known:
            return None
        (last, cost), power = known[-1], 2.0
        if len(known) > 1:
            before, earlier = known[-2]
            power = min(2.0, max(1.0, math.log(cost / earlier) / math.log(last / before)))
        return cost * (length / last) ** power


@dataclass
class Entry:
    """A row in the making: what it is of, and the job or what stands in its way."""

    key: Key
    about: dict[str, Any]
    work: Job | Problem
    samples: list[float] = field(default_factory=list)


def measure(settings: Settings, shape: Shape, history: History) -> list[Row]:
    """The rows of one shape, in the order of the settings."""
    sets = random_inputs(shape, sets_needed(shape.set_bytes, cache_bytes(shape.device)), settings.seed)
    entries = list(_entries(settings, shape, sets, history))
    call, work = product(DTYPES[shape.dtype], settings.product, shape.device)
    call()
    calls, products = calls_of(seconds_of(call)), []
    for _ in range(settings.repeats):
        products.append(seconds_of(lambda: each(call, [()] * calls)) / calls)
        for entry in entries:
            if isinstance(entry.work, Job):
                taken = attempt(entry.work.seconds)
                if isinstance(taken, Problem):
                    entry.work = taken
                else:
                    entry.samples.append(taken)
    peak = work / statistics.median(products) / 1e12
    return _compared([_row(entry, len(sets), peak) for entry in entries])


def attempt(work: Callable[[], T]) -> T | Problem:
    """What a piece of work gives, or why it could not be done."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  whatever a kernel or its compiler raises: the row says it, the rest goes on
        text = " ".join(str(error).split())[:300]
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
            problem = Problem("out of memory", text or type(error).__name__)
        elif "No available kernel" in text or "No viable backend" in text:
            problem = Problem("refused", "has no kernel of torch's for this")
        else:
            problem = Problem("failed", f"{type(error).__name__}: {text}")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return problem


def _entries(settings: Settings, shape: Shape, sets: list[Inputs], history: History) -> Iterator[Entry]:
    for name in settings.masks:
        mask = mask_of(name, shape, block=settings.block, seed=settings.seed)
        amount = _amount(mask, shape)
        for p, backend, passes in every(settings.dropout, settings.backends, settings.passes):
            about = {"backend": backend, "passes": passes, "mask": name, "dropout": p, **vars(shape), **amount}
            for flop in ("flops_paper", "flops_kept"):
                if about[flop] is not None:
                    about[flop] = flops(about[flop], shape.batch, shape.heads, shape.head_dim, shape.head_dim, passes)
            del about["device"]
            key = (backend, passes, name, p, shape.dtype, shape.head_dim)
            work = _foreseen(settings, shape, key, history)
            if work is None:
                one = sets[0].detached() if passes == "forward" else sets[0]
                attend = prepare(backend, one, mask, p, settings.seed)
                if isinstance(attend, str):
                    work = Problem("refused", attend)
                else:
                    job = Job(attend, passes, sets, metered=(backend, shape.device) not in UNMETERED)
                    work = _started(settings, shape, key, job, history)
            yield Entry(key, about, work)


def _amount(mask: Mask, shape: Shape) -> dict[str, float | None]:
    """Shares of what is kept; pairs a head where the FLOPs will be."""
    kept = kept_pairs(mask, shape.length)
    return {
        "density": kept / shape.length**2,
        "block_density": block_density(mask, shape.length),
        "flops_paper": paper_pairs(mask, shape.length),
        "flops_kept": kept,
    }


def _foreseen(settings: Settings, shape: Shape, key: Key, history: History) -> Problem | None:
    if key in history.full and history.full[key] < shape.length:
        return Problem("out of memory", f"as at length {history.full[key]}")
    cost = history.forecast(key, shape.length)
    if cost is None:
        return None
    return _too_long(settings, cost * shape.batch, f"expected, from {history.costs[key][-1][0]} tokens")


def _too_long(settings: Settings, cost: float, how: str) -> Problem | None:
    total = cost * (settings.repeats + 3)
    if total <= settings.budget:
        return None
    return Problem("skipped", f"{total:.3g} s {how}, more than the budget of {settings.budget:g} s")


def _started(settings: Settings, shape: Shape, key: Key, job: Job, history: History) -> Job | Problem:
    """The job, warmed up, if it works and keeps to the budget."""
    problem = attempt(job.warm_up)
    if problem is None:
        history.costs.setdefault(key, []).append((shape.length, job.cost / shape.batch))
        problem = _too_long(settings, job.cost, "by its first call")
    elif problem.status == "out of memory":
        history.full.setdefault(key, shape.length)
    return problem or job


def _row(entry: Entry, input_sets: int, peak: float) -> Row:
    """peak: TFLOP/s of the matrix product."""
    job, about = entry.work, entry.about
    if isinstance(job, Problem):
        return Row(**about, status=job.status, reason=job.reason)
    seconds = statistics.median(entry.samples)
    by_paper, kept = ((f and f / seconds / 1e12) for f in (about["flops_paper"], about["flops_kept"]))
    return Row(
        **about,
        status="measured",
        input_sets=input_sets,
        calls=job.calls,
        samples=tuple(entry.samples),
        seconds=seconds,
        tflops_paper=by_paper,
        tflops_kept=kept,
        product_tflops=peak,
        share_of_product=(kept if by_paper is None else by_paper) / peak,
        peak_bytes=job.peak_bytes,
    )


def _compared(rows: list[Row]) -> list[Row]:
    """With each measured row set against the others of its kind."""
    measured = {(row.backend, row.passes, row.mask, row.dropout): row for row in rows if row.status == "measured"}

    def compare(row: Row) -> Row:
        if row.seconds is None:
            return row
        others = {name: measured.get((name, row.passes, row.mask, row.dropout)) for name in BASELINES}
        full = measured.get((row.backend, row.passes, "full", row.dropout))
        return replace(
            row,
            ratios={name: ratio(o.samples, row.samples) for name, o in others.items() if o and name != row.backend},
            over_block_density=row.seconds / (row.block_density * full.seconds) if full and full.seconds else None,
        )

    return [compare(row) for row in rows]
