"""Measuring: interleaved medians, the machine's own matrix-product peak, FLOP counts. Needs torch alone."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.utils.flop_counter import FlopCounterMode


def median_seconds(functions: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 1) -> dict[str, float]:
    """Median seconds of each function, in turns A B C A B C .., so that a drift of the machine meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(warmup + repeats):
        for name, function in functions.items():
            synchronise()
            started = time.perf_counter()
            function()
            synchronise()
            if turn >= warmup:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


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
