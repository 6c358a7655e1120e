"""Time and memory of attentions against sequence length, all of a length in turns."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from common.bench.contestants import Attend
from common.bench.flops import Pass
from common.bench.group import UNMETERED, History, Problem, attempt
from common.bench.job import Job
from common.bench.machine import memory_limit
from common.bench.workload import Inputs, Shape, cache_bytes, random_inputs, sets_needed


@dataclass(frozen=True)
class Case:
    """One line of a table: the quantity that its milliseconds are stored under, what is run, and the seconds that it may
    take at a length. detail: whatever else tells it from the others of its row."""

    row: str
    quantity: str
    passes: Pass
    budget: float
    detail: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ByLength(ABC):
    """Milliseconds by length, medians to come of `repeats` interleaved repeats; `memory_mb`: the peak of one forward and
    backward pass.

    methods: row -> a contestant of `common.bench`, or another's name. lengths: tokens. What is expected to take more than its
    budget at a length is left out there, and so is whatever had no memory for a shorter one.
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
    threads: int
    history: History = field(default_factory=History, kw_only=True)

    @abstractmethod
    def cases(self) -> Iterable[Case]: ...

    @abstractmethod
    def attend(self, case: Case, shape: Shape, one: Inputs, seed: int) -> Attend | str:
        """What is timed, or why it can't be."""

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.methods}
        with memory_limit(self.device):
            for length in sorted(self.lengths):
                print(f"{length:,} tokens", flush=True)
                self.measure(length, seed, rows)
        return rows

    def measure(self, length: int, seed: int, rows: dict[str, dict[str, Any]]) -> None:
        shape = Shape(self.batch, self.heads, self.heads, length, self.head_dim, self.dtype, self.device)
        sets = random_inputs(shape, sets_needed(shape.set_bytes, cache_bytes(self.device)), seed)
        jobs = {case: self.start(case, shape, sets, seed) for case in self.cases()}
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

    def start(self, case: Case, shape: Shape, sets: Sequence[Inputs], seed: int) -> Job | Problem:
        """The warmed-up job, or why there is none."""
        key = (case.row, case.quantity)
        if self.history.full.get(key, shape.length + 1) < shape.length:
            return Problem("out of memory", f"as at {self.history.full[key]} tokens")
        forecast = self.history.forecast(key, shape.length)
        if forecast is not None and (expected := forecast * (self.repeats + 3)) > case.budget:
            return Problem("skipped", f"about {expected:.0f} s, over the budget of {case.budget:g} s")
        one = sets[0].detached() if case.passes == "forward" else sets[0]
        attend = self.attend(case, shape, one, seed)
        if isinstance(attend, str):
            return Problem("refused", attend)
        job = Job(attend, case.passes, sets, metered=(self.methods[case.row], self.device) not in UNMETERED)
        problem = attempt(job.warm_up)
        if isinstance(problem, Problem):
            self.history.full.setdefault(key, shape.length)
            return problem
        self.history.costs.setdefault(key, []).append((shape.length, job.cost))
        return job


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
