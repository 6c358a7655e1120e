"""The kernels of linear attention compiled, with the tiles of the table: what tests/common/attention/kernels asks for, on a GPU."""

import pytest
import torch

pytest.importorskip("triton")

from common.attention.linear import linear_attention
from tests.common.attention import plain_linear
from tests.common.attention.kernels.cases import poisoned_memory
from tests.common.attention.plain_linear import Case, inputs

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
SIZES = [(1, 1, 1, 1), (130, 130, 64, 64), (1000, 1000, 256, 64), (333, 333, 266, 128), (257, 257, 20, 40)]
"""Lq, Lk, M, Dv."""


def on_gpu(case: Case) -> dict[str, torch.Tensor]:
    return {name: x.cuda() for name, x in inputs(case, 2, 3).items()}


@pytest.mark.parametrize("values", [SINGLE, HALF, BRAIN], ids=str)
@pytest.mark.parametrize("log", [False, True], ids=["features", "logarithms"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_outputs_and_gradients(size: tuple[int, ...], causal: bool, log: bool, values: torch.dtype) -> None:
    lq, lk, m, dv = size
    case = Case(causal, log, SINGLE if log else values, values, lq, lk if causal else lk + 70, m, dv, padded=lk > 1)
    with poisoned_memory("cuda"):
        plain_linear.assert_within_gate(case, on_gpu(case))


@pytest.mark.parametrize("layout", ["time before heads", "features first"])
def test_any_strides(layout: str) -> None:
    case = Case(True, False, BRAIN, lq=200, lk=200, m=64, dv=64, layout=layout)
    plain_linear.assert_within_gate(case, on_gpu(case))


@pytest.mark.parametrize("log", [False, True], ids=["features", "logarithms"])
def test_a_state_goes_on_where_it_was(log: bool) -> None:
    """As the reference has it: 150 tokens at once, then one by one."""
    case = Case(True, log, SINGLE, lq=154, lk=154, m=96, dv=64)
    given = on_gpu(case)
    expected, found, state = linear_attention(given["q"], given["k"], given["v"], causal=True, log=log), [], None
    for q, k, v in zip(*(given[name].split([150, 1, 1, 1, 1], 2) for name in "qkv"), strict=True):
        output, state = linear_attention(q, k, v, causal=True, log=log, state=state, backend="triton")
        found.append(output)
    torch.testing.assert_close(torch.cat(found, 2), expected.output, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(state, expected.state, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_the_same_bits_each_time(causal: bool) -> None:
    case = Case(causal, True, SINGLE, BRAIN, lq=500, lk=500, m=256, dv=64)
    given = on_gpu(case)
    first = plain_linear.kernels(case, given)
    for _ in range(5):
        again = plain_linear.kernels(case, given)
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_memory_is_linear_in_the_length() -> None:
    """Bytes of the forward and backward pass beyond those of the inputs: nothing of all pairs, no sums of every token."""
    length, size = 16384, 64
    q, k, v = (torch.rand(1, 4, length, size, device="cuda", dtype=BRAIN, requires_grad=True) for _ in range(3))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_attention(q, k, v, causal=True, backend="triton").output.sum().backward()
    used = torch.cuda.max_memory_allocated() - before
    one = q.numel() * q.element_size()
    assert used < 16 * one  # 4 of the output and of gradients, one that is spread out, twice the sums of each 64 tokens


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int) -> None:
    """Strides of 2^30 elements, 4 GiB a tensor."""
    given = inputs(Case(True, False, HALF, lq=3, lk=3, m=16, dv=16), 3, 3)
    strides = [144, 48, 16, 1]
    strides[axis] = 1 << 30
    q, k, v = (given[name].cuda() for name in "qkv")
    far = [torch.empty_strided(x.shape, strides, dtype=HALF, device="cuda").copy_(x) for x in (q, k, v)]
    near = linear_attention(q, k, v, causal=True, backend="triton").output
    assert torch.equal(linear_attention(far[0], far[1], far[2], causal=True, backend="triton").output, near)


def test_fp64_is_refused() -> None:
    ones = torch.ones(1, 1, 4, 3, device="cuda", dtype=torch.float64)
    with pytest.raises(ValueError, match="backend 'triton' computes fp64 in Triton's interpreter alone"):
        linear_attention(ones, ones, ones, backend="triton")
