"""What a bench counts and how it times, without asserting a second."""

import torch

from common import bench


def test_flops_of_a_product_and_its_gradient() -> None:
    a, b = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    assert bench.count_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    assert bench.count_flops(lambda: (a @ b).sum().backward()) == 3 * 2 * 3 * 5 * 7


def test_the_peak_product_counts_its_own_flops() -> None:
    call, flops = bench.product(torch.float32, size=16)
    assert flops == 2 * 16**3 == bench.count_flops(call)


def test_functions_take_turns_and_the_warm_up_does_not_count() -> None:
    calls: list[str] = []
    seconds = bench.median_seconds(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3, warmup=2
    )
    assert calls == ["a", "b"] * 5 and set(seconds) == {"a", "b"} and min(seconds.values()) >= 0


def test_what_the_timers_say_after_the_warm_up() -> None:
    a, b = iter([9.0, 1.0, 2.0]), iter([8.0, 3.0, 4.0])
    got = bench.interleaved({"a": lambda: next(a), "b": lambda: next(b)}, repeats=2, warmup=1)
    assert got == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
