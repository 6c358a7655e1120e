"""Times: interleaved, so that a drift of the machine meets all alike; the machine's matrix-product peak; FLOP counts."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.utils.flop_counter import FlopCounterMode


def median_seconds(functions: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 1) -> dict[str, float]:
    """Median seconds of each function, in turns A B C A B C .."""
    timers = {name: lambda function=function: seconds_of(function) for name, function in functions.items()}
    times = interleaved(timers, repeats=repeats, warmup=warmup)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def interleaved(timers: Mapping[str, Callable[[], float]], *, repeats: int, warmup: int = 1) -> dict[str, list[float]]:
    """What each timer says, `repeats` times, in turns A B C A B C .., after `warmup` turns that don't count."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(warmup + repeats):
        for name, timer in timers.items():
            seconds = timer()
            if turn >= warmup:
                times[name].append(seconds)
    return times


def seconds_of(function: Callable[[], object]) -> float:
    """Seconds of one call, until its results are there."""
    synchronise()
    started = time.perf_counter()
    function()
    synchronise()
    return time.perf_counter() - started


def synchronise() -> None:
    """Wait for an accelerator: its kernels are only queued when a call returns."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def product(dtype: torch.dtype, size: int = 2048, device: str = "cpu") -> tuple[Callable[[], object], int]:
    """A square matrix product and its FLOPs (2 n^3): what the machine can do at best in this dtype."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return lambda: a @ b, 2 * size**3


def count_flops(function: Callable[[], object]) -> int:
    """FLOPs of the matrix products that a call runs, forward and backward; a multiply-add counts two."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()
