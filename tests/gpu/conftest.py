"""Tests that compile kernels for the GPU of this machine; they need torch, triton and pytest alone.

    python -m pytest tests/gpu

In a process of their own: what tests/common/attention/kernels has interpreted can't be compiled in the same one.
"""

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Skips without a GPU; with one, kernels that would be interpreted are an error and no reason to skip."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU: torch.cuda.is_available() is False")
    triton = pytest.importorskip("triton", reason="needs triton")
    assert not triton.knobs.runtime.interpret, f"TRITON_INTERPRET={os.environ.get('TRITON_INTERPRET')}: unset it"
    from common.attention import kernels

    assert not kernels.INTERPRETED, "kernels were imported to be interpreted: run tests/gpu in a process of its own"
    yield
    torch.cuda.synchronize()  # so that an error inside a kernel is this test's
