"""Layers of attention in turns, forward and backward with their projections, against the first of them."""

import statistics
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from common import bench
from common.bench.memory import peak_bytes
from common.bench.ratios import ratio

LENGTH, HEADS, HEAD_DIM, THREADS = 8192, 8, 64, 2
SIZE = HEADS * HEAD_DIM
Attend = Callable[[Tensor], Tensor]


def compare(layers: Mapping[str, tuple[Attend, bool]], about: str, repeats: int) -> None:
    """Prints milliseconds, peak memory and how many times the first one's speed each has. layers: name -> what attends, and
    whether its matrix products are in bfloat16; the first is theirs."""
    x, grad = torch.randn(1, LENGTH, SIZE, requires_grad=True), torch.randn(1, LENGTH, SIZE)

    def step(attend: Attend, bf16: bool) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = attend(x)
        out.backward(grad.to(out.dtype))

    timers = {name: lambda given=given: bench.seconds_of(lambda: step(*given)) for name, given in layers.items()}
    times = bench.interleaved(timers, repeats=repeats)
    print(
        f"a layer, {LENGTH} tokens, {HEADS} heads of {HEAD_DIM}, {about}, forward and backward with projections, "
        f"{THREADS} threads, medians of {repeats} turns"
    )
    print(f"{'':28}{'ms':>10}{'MB':>10}{'x theirs':>11}{'from':>8}{'to':>8}")
    first = times[next(iter(layers))]
    for name, given in layers.items():
        faster = ratio(first, times[name])
        peak = peak_bytes(lambda *_, given=given: step(*given), (x,))
        print(
            f"{name:28}{1e3 * statistics.median(times[name]):10.0f}{peak / 1e6:10.0f}"
            f"{faster.median:11.2f}{faster.low:8.2f}{faster.high:8.2f}"
        )
