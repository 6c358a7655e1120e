"""Tables 9 to 21: time of each pass and memory against sequence length, all methods of a length in turns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from tqdm import tqdm

from common.attention import Full, Mask, Padding, Random, Window
from common.bench.contestants import prepare
from common.bench.flops import PASSES
from common.bench.group import History, Problem, attempt
from common.bench.job import Job
from common.bench.machine import memory_limit
from common.bench.workload import Shape, cache_bytes, random_inputs, sets_needed

DROPOUT = 0.1
PADDED = 20  # tokens at most, appendix E.6 of the paper
COMPRESSION, MOST = 8, 256  # of the approximate methods there: an eighth of the length, or 256 keys
BLOCK, RANDOM_BLOCKS = 64, 2


@dataclass(frozen=True)
class Case:
    """One line of one table: the quantity it is stored under, and what is run."""

    row: str
    quantity: str
    passes: Any
    dropout: float
    padded: bool


@dataclass(frozen=True)
class Runtime:
    """Milliseconds by length, medians to come of `repeats` interleaved repeats; bytes of one forward and backward pass.

    methods: row -> backend. lengths: tokens; `budget`: seconds, a method expected to take more at a length is left out
    there; `dropout_budget`: the same with dropout, which no claim on time reads. Deviations from the paper: batch and dtype as given, block-sparse is window + random blocks, not a butterfly.
    """

    methods: Mapping[str, str]
    lengths: Sequence[int]
    batch: int
    heads: int
    head_dim: int
    dtype: str
    device: str
    repeats: int
    budget: float
    dropout_budget: float
    threads: int
    history: History = field(default_factory=History)

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.methods}
        with memory_limit(self.device):
            for length in tqdm(sorted(self.lengths), desc="lengths", disable=None):
                self.measure(length, seed, rows)
        return rows

    def measure(self, length: int, seed: int, rows: dict[str, dict[str, Any]]) -> None:
        shape = Shape(self.batch, self.heads, self.heads, length, self.head_dim, self.dtype, self.device)
        sets = random_inputs(shape, sets_needed(shape.set_bytes, cache_bytes(self.device)), seed)
        jobs = {case: self.start(case, shape, sets, seed) for case in cases(self.methods)}
        for _ in range(self.repeats):
            for case, job in jobs.items():
                if isinstance(job, Job):
                    taken = attempt(job.seconds)
                    if isinstance(taken, Problem):
                        jobs[case] = taken
                    else:
                        store(rows, case.row, case.quantity, length).append(taken * 1e3)
        for case, job in jobs.items():
            if isinstance(job, Problem):
                refuse(rows, case.row, case.quantity, length, f"{job.status}: {job.reason}")
            if case.quantity == "both_ms":
                if isinstance(job, Job) and job.peak_bytes is not None:
                    store(rows, case.row, "memory_mb", length, "MB").append(job.peak_bytes / 1e6)
                else:
                    refuse(rows, case.row, "memory_mb", length, getattr(job, "reason", "not seen by the meter"), "MB")

    def start(self, case: Case, shape: Shape, sets: Sequence[Any], seed: int) -> Job | Problem:
        """The warmed-up job, or why there is none."""
        key = (case.row, case.quantity)
        if self.history.full.get(key, shape.length + 1) < shape.length:
            return Problem("out of memory", f"as at {self.history.full[key]} tokens")
        forecast, budget = (
            self.history.forecast(key, shape.length),
            self.dropout_budget if case.dropout else self.budget,
        )
        if forecast is not None and (expected := forecast * (self.repeats + 3)) > budget:
            return Problem("skipped", f"about {expected:.0f} s, over the budget of {budget:g} s")
        mask = mask_of(case.row, shape, case.padded, seed)
        one = sets[0].detached() if case.passes == "forward" else sets[0]
        attend = prepare(self.methods[case.row], one, mask, case.dropout, seed)
        if isinstance(attend, str):
            return Problem("refused", f"{self.methods[case.row]} {attend}")
        job = Job(attend, case.passes, sets)
        problem = attempt(job.warm_up)
        if isinstance(problem, Problem):
            self.history.full.setdefault(key, shape.length)
            return problem
        self.history.costs.setdefault(key, []).append((shape.length, job.cost))
        return job


def cases(methods: Mapping[str, str]) -> Iterator[Case]:
    for dropout, padded, passes, row in product((0.0, DROPOUT), (False, True), PASSES, methods):
        words = [passes, *["dropout"] * bool(dropout), *["mask"] * padded, "ms"]
        yield Case(row, "_".join(words), passes, dropout, padded)


def mask_of(row: str, shape: Shape, padded: bool, seed: int) -> Mask:
    """Who sees whom: all, a window of keys on both sides, or that and some random blocks; padding on top."""
    kept = min(max(shape.length // COMPRESSION, 2), MOST)
    window = Window(kept // 2, kept // 2)
    random = Random(RANDOM_BLOCKS, BLOCK, seed)
    mask: Mask = {"local_attention": window, "block_sparse_flash": window | random}.get(row, Full())
    if not padded:
        return mask
    draw = torch.Generator().manual_seed(seed)
    lengths = shape.length - torch.randint(0, min(PADDED, shape.length - 1) + 1, (shape.batch,), generator=draw)
    return mask & Padding.lengths(lengths.to(shape.device), shape.length)


def store(rows: dict[str, dict[str, Any]], row: str, quantity: str, point: Any, unit: str = "ms") -> list[float]:
    """The repeats of a point, to be added to."""
    return _of(rows, row, quantity, unit)["at"].setdefault(str(point), [])


def refuse(rows: dict[str, dict[str, Any]], row: str, quantity: str, point: Any, reason: str, unit: str = "ms") -> None:
    """Why there is no value; what was measured before is no sample of a finished one."""
    samples = _of(rows, row, quantity, unit)
    samples["at"].pop(str(point), None)
    samples["refused"][str(point)] = reason


def _of(rows: dict[str, dict[str, Any]], row: str, quantity: str, unit: str) -> dict[str, Any]:
    return rows[row].setdefault(quantity, {"unit": unit, "at": {}, "refused": {}})
