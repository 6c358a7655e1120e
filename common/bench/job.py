"""One thing that is timed: a pass of a contestant over inputs that take turns."""

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from common.bench.contestants import Attend
from common.bench.flops import Pass
from common.bench.memory import peak_bytes
from common.bench.timing import seconds_of
from common.bench.workload import Inputs, refuse_constant

LEAST_SECONDS = 0.02  # of one sample: short calls are timed several at once
MOST_CALLS = 100
GRAPHS_BYTES = 1 << 31  # of the graphs that wait for their backward pass at one time


class Job:
    """`seconds()` of a call, the mean of `calls` calls in a row; each call takes the next of `sets`.

    peak_bytes: of one call; None for the backward alone, which has only what the forward left it, and where the meter
    can't see. cost: seconds of a call with all that belongs to it, such as the forward that a backward pass needs.
    """

    def __init__(self, attend: Attend, passes: Pass, sets: Sequence[Inputs], *, metered: bool = True) -> None:
        """Raises ValueError for constant inputs."""
        for one in sets:
            refuse_constant(one)
        self.attend, self.passes, self.metered = attend, passes, metered
        self.calls, self.cost = 1, 0.0
        self.peak_bytes: int | None = None
        self._sets = cycle([one.detached() for one in sets] if passes == "forward" else sets)

    def warm_up(self) -> None:
        """Compiles and fills caches with one call, then finds the peak, the cost and how many calls make a sample."""
        one = next(self._sets)
        self._call(one)
        if self.metered:
            self.peak_bytes = peak_bytes(lambda *_: self._call(one), one)
        started = time.perf_counter()
        once = self.seconds()
        self.cost = time.perf_counter() - started
        self.calls = calls_of(once)
        if self.passes == "backward":
            self.calls = max(1, min(self.calls, GRAPHS_BYTES // (self.peak_bytes or 1)))
            self.peak_bytes = None

    def seconds(self) -> float:
        sets = [next(self._sets) for _ in range(self.calls)]
        if self.passes == "backward":
            graphs = [(self.attend(q, k, v), (q, k, v), do) for q, k, v, do in sets]
            return seconds_of(lambda: each(_gradients, graphs)) / self.calls
        return seconds_of(lambda: each(self._call, [(one,) for one in sets])) / self.calls

    def _call(self, one: Inputs) -> None:
        out = self.attend(one.q, one.k, one.v)
        if self.passes != "forward":
            _gradients(out, one[:3], one.do)


def calls_of(seconds: float) -> int:
    """How many calls of so many seconds make one sample."""
    return max(1, min(MOST_CALLS, round(LEAST_SECONDS / max(seconds, 1e-9))))


def _gradients(out: Tensor, inputs: Sequence[Tensor], do: Tensor) -> None:
    torch.autograd.grad(out, inputs, do)


def each(function: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Call it with each; a result is gone before the next is made."""
    for some in arguments:
        function(*some)
