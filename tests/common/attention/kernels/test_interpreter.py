"""Triton's interpreter as repaired: bf16 as torch has it, and the same random numbers as the reference backend."""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from common.attention import dropout
from common.attention.kernels import interpreter


def _bf16(values: torch.Tensor) -> Any:
    return torch.from_numpy(interpreter.widened(interpreter.rounded(values.numpy())))


def test_rounding_is_torchs() -> None:
    """Halves to even, overflow to infinity, denormals, and 4096 numbers of all sizes."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randn(4096, generator=draw) * 2.0 ** torch.randint(-140, 127, (4096,), generator=draw)
    special = [0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, -3.4e38, 1e-40, torch.inf, -torch.inf]
    values = torch.cat((sizes, torch.tensor(special)))
    assert torch.equal(_bf16(values).view(torch.int32), values.bfloat16().float().view(torch.int32))
    assert _bf16(torch.tensor([torch.nan, -torch.nan])).isnan().all()


@triton.jit
def _arithmetic(x, y, out, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    a, b = tl.load(x + place), tl.load(y + place)
    tl.store(out + place, a + b)
    tl.store(out + SIZE * SIZE + place, a * b)
    tl.store(out + 2 * SIZE * SIZE + place, tl.maximum(a, b))
    tl.store(out + 3 * SIZE * SIZE + place, tl.where(a > b, a, b))
    tl.store(out + 4 * SIZE * SIZE + place, -a)
    tl.store(out + 5 * SIZE * SIZE + place, tl.dot(a, b).to(tl.bfloat16))
    tl.store(out + 6 * SIZE * SIZE + place, a.to(tl.float16).to(tl.bfloat16))


def test_bf16_arithmetic_is_torchs() -> None:
    x, y = (torch.randn(16, 16, generator=torch.Generator().manual_seed(n)).bfloat16() for n in range(2))
    out = torch.zeros(7, 16, 16, dtype=torch.bfloat16)
    _arithmetic[(1,)](x, y, out, 16)
    products = (x.float() @ y.float()).bfloat16()
    expected = (x + y, x * y, torch.maximum(x, y), torch.maximum(x, y), -x, products, x.half().bfloat16())
    for n, right in enumerate(expected):
        assert torch.equal(out[n], right), n


@triton.jit
def _sum(x, out, SIZE: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, SIZE)), 0))


def test_a_reduction_of_bf16_is_refused() -> None:
    with pytest.raises(Exception, match="convert to fp32 first"):
        _sum[(1,)](torch.ones(16, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.bfloat16), 16)
    out = torch.zeros(1)
    _sum[(1,)](torch.ones(16), out, 16)
    assert out == 16


@triton.jit
def _up_to(bounds, out):
    for n in range(tl.load(bounds), tl.load(bounds + 1)):
        tl.store(out + n, n)


def test_a_loop_with_bounds_that_were_loaded() -> None:
    out = torch.zeros(6, dtype=torch.int32)
    _up_to[(1,)](torch.tensor([2, 5], dtype=torch.int32), out)
    assert out.tolist() == [0, 0, 2, 3, 4, 0]


@triton.jit
def _uniform(out, seed, place, SIZE: tl.constexpr):
    i, j = tl.broadcast(tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :])
    word, _, _, _ = tl.philox(seed, j, i, place, 0)
    tl.store(out + i * SIZE + j, tl.uint_to_uniform_float(word))


@pytest.mark.parametrize("seed", [0, 1, 2**31 + 5, 2**62 + 2**33 + 7])
def test_random_numbers_are_the_references(seed: int) -> None:
    out = torch.zeros(16, 16)
    _uniform[(1,)](out, seed, 77, 16)
    i, j = torch.arange(16)[:, None].expand(16, 16), torch.arange(16).expand(16, 16)
    expected = dropout.uniform(dropout.philox(seed, j, i, torch.full_like(i, 77)))
    assert torch.equal(out, expected) and out.std() > 0.2


def test_triton_may_have_been_imported_before() -> None:
    """By pytorch_lightning, say: its own functions were then decorated to be compiled."""
    program = (
        "import os, triton, torch; os.environ['TRITON_INTERPRET'] = '1'\n"
        "from common.attention import Full, attention\n"
        "x = torch.eye(16)[None, None]\n"
        "out = attention(x, x, x, mask=Full(), backend='triton', scale=1e9, dropout_p=1e-9, dropout_seed=0)\n"
        "assert torch.equal(out, x), out"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
