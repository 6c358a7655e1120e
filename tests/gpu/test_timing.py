"""Times on a GPU are those of its work, not of the launches."""

import statistics

import torch

from common.bench.timing import interleaved, product, seconds_of

MOST = 4e14
"""FLOP/s in fp32 that no GPU has; as often as a launch takes some 10 us, it would seem to have more."""


def test_a_product_of_twice_the_size_takes_about_eight_times_as_long() -> None:
    """fp32 without tensor cores, so that both sizes keep the GPU busy."""
    works = {size: product(torch.float32, size, "cuda") for size in (2048, 4096)}
    timers = {str(size): lambda call=call: seconds_of(call) for size, (call, _) in works.items()}
    seconds = {int(name): statistics.median(each) for name, each in interleaved(timers, repeats=9, warmup=3).items()}
    assert 5 < seconds[4096] / seconds[2048] < 12
    assert all(flops / seconds[size] < MOST for size, (_, flops) in works.items())
