"""What holds for every backend, for the flash kernels compiled; odd head dimensions, and the same bits each time."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from common.attention import Causal, Full, Mask
from tests.common.attention import properties
from tests.common.attention.properties import assert_within_gate, inputs, with_gradients


@pytest.mark.parametrize("check", properties.ALL, ids=properties.named)
def test_holds(check: Callable[..., None]) -> None:
    check("triton", "cuda")


@pytest.mark.parametrize("size", [40, 63, 72, 96])
def test_head_dims_that_are_no_power_of_two(size: int) -> None:
    """Beside fp64, and four calls alike: what is read beyond a row differs from call to call."""
    tensors = inputs(512, d=size, dv=size, dtype=torch.float16, device="cuda")
    assert_within_gate("triton", tensors, Causal())
    first, *others = (with_gradients("triton", *tensors, Causal()) for _ in range(4))
    for other in others:
        assert all(torch.equal(other[name], first[name]) for name in first)


@pytest.mark.parametrize("mask", [Full(), Causal()], ids=str)
@pytest.mark.parametrize("demanded", [True, False])
def test_thirty_times_the_same_gradients(mask: Mask, demanded: bool) -> None:
    """Whether or not torch is told to be deterministic. As many programs as make the order of their ends uncertain."""
    tensors = inputs(1000, batch=4, heads=16, kv=4, d=64, dv=64, dtype=torch.bfloat16, device="cuda")
    torch.use_deterministic_algorithms(demanded)
    try:
        first, *others = (with_gradients("triton", *tensors, mask) for _ in range(30))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in others:
        assert all(torch.equal(other[name], first[name]) for name in first)


def test_the_first_call_of_a_process_is_like_the_second() -> None:
    """A kernel tried out in its first call would have written its outputs several times."""
    code = """
import torch
from common.attention import Causal
from tests.common.attention.properties import assert_within_gate, inputs, with_gradients
tensors = inputs(300, kv=2, d=64, dv=64, dtype=torch.float16, device="cuda")
first, second = (with_gradients("triton", *tensors, Causal()) for _ in range(2))
assert all(torch.equal(first[name], second[name]) for name in first)
assert_within_gate("triton", tensors, Causal())
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=300)
