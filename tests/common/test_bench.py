"""What a bench counts and how it times, without asserting a second."""

import time

import pytest
import torch

from common import bench
from common.bench.timing import seconds_of


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


class Queue:
    """A device that works off what it was given when somebody waits for it; `now` is its clock and everybody's."""

    def __init__(self) -> None:
        self.now, self.waiting = 0.0, 5.0  # what somebody before left to do

    def product(self, size: int) -> None:
        self.now += 0.001  # of the launch
        self.waiting += 2.0 * size**3

    def wait(self) -> None:
        self.now, self.waiting = self.now + self.waiting, 0.0


def test_a_call_takes_as_long_as_its_work_and_not_as_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the size, eight times the time; and what was queued before counts nothing."""
    queue = Queue()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", queue.wait)
    monkeypatch.setattr(time, "perf_counter", lambda: queue.now)
    assert seconds_of(lambda: queue.product(1)) == pytest.approx(2.001)
    queue.waiting = 7.0
    assert seconds_of(lambda: queue.product(2)) == pytest.approx(16.001)
