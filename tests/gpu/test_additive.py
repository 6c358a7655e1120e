"""The additive and the rotary kernel compiled, at the sizes they are for."""

import math

import pytest
import torch
from torch import Tensor

from common.attention import positions
from common.attention.additive import additive_attention
from tests.common.attention.plain import relative_rms
from tests.common.attention.plain_additive import (
    amid_nan,
    assert_as_exact_as_plain,
    d_out_of,
    inputs,
    passes,
    poisoned_memory,
)

SHAPES = [
    (1, 1, 1, 1, 1), (2, 17, 33, 20, 24), (4, 33, 17, 33, 300), (8, 50, 61, 250, 512), (4, 30, 50, 1000, 2000),
    (80, 1, 50, 1000, 2000), (3, 1, 17, 70, 40), (5, 20, 1, 64, 64), (2, 127, 1000, 40, 64),
]  # fmt: skip
"""B, T, S, A, D."""


def attend(*given: Tensor) -> Tensor:
    *tensors, mask = given
    return additive_attention(*tensors, mask=mask, backend="triton")  # type: ignore[call-arg]


def on_gpu(shape: tuple, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(t.cuda() for t in inputs(shape, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_fp64_with_nan_all_around(shape: tuple, dtype: torch.dtype) -> None:
    *tensors, mask = on_gpu(shape, dtype)
    with poisoned_memory():
        assert_as_exact_as_plain(attend, (*(amid_nan(t) for t in tensors), mask))


@pytest.mark.parametrize("steps", [1, 50])
def test_a_masked_word_takes_no_part(steps: int) -> None:
    query, keys, values, v, mask = on_gpu((3, steps, 70, 60, 30))
    mask[1, :65], mask[1, 65:], mask[2] = False, True, False
    clean = passes(attend, (query, keys, values, v, mask), d_out_of((query, keys, values)))
    dirty = (query.clone(), keys.clone(), values.clone(), v, mask)
    dirty[0][2], dirty[1][~mask], dirty[2][~mask] = math.nan, math.nan, math.nan
    for name, tensor in passes(attend, dirty, d_out_of(dirty)).items():
        assert torch.equal(tensor, clean[name]), name
    assert (clean["context"][2] == 0).all() and (clean["query"][2] == 0).all()


def test_any_strides() -> None:
    given = tuple(t.transpose(0, -1).contiguous().transpose(0, -1) for t in on_gpu((3, 50, 70, 60, 40)))
    wanted = passes(attend, tuple(t.contiguous() for t in given), d_out_of(given))
    for name, tensor in passes(attend, given, d_out_of(given).mT.contiguous().mT).items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("steps", [1, 50])
def test_results_repeat_bit_for_bit(steps: int) -> None:
    given = on_gpu((30, steps, 70, 250, 512), torch.bfloat16)
    first = passes(attend, given, d_out_of(given))
    for _ in range(5):
        again = passes(attend, given, d_out_of(given))
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_memory_without_the_tanh_of_every_pair() -> None:
    batch, steps, source, size, _ = shape = (4, 200, 300, 512, 64)
    *leaves, mask = (t.detach() for t in on_gpu(shape))
    leaves = [t.requires_grad_() for t in leaves]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(*leaves, mask).sum().backward()
    used = torch.cuda.max_memory_allocated() - before
    assert used < batch * steps * source * size * 4 / 20


def test_offsets_beyond_32_bits() -> None:
    query, keys, values, v, mask = on_gpu((3, 5, 7, 6, 4), torch.float16)
    wanted = passes(attend, (query, keys, values, v, mask), d_out_of((query, keys, values)))
    storage = torch.zeros((1 << 31) + 64, dtype=torch.float16, device="cuda")
    far = storage.as_strided(keys.shape, (1 << 30, 6, 1)).copy_(keys)
    for name, tensor in passes(attend, (query, far, values, v, mask), d_out_of((query, keys, values))).items():
        assert torch.equal(tensor, wanted[name]), name


def test_fp64_is_refused() -> None:
    with pytest.raises(ValueError, match="backend 'triton' computes fp64 on a CPU alone"):
        attend(*on_gpu((1, 2, 3, 4, 5), torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 80, 128, 256])
def test_rotary(size: int, dtype: torch.dtype) -> None:
    from common.attention.kernels.rotary import rotary

    x, place = torch.randn(2, 4, 1000, size, device="cuda", dtype=dtype), torch.arange(1000, device="cuda") + 7
    exact = positions.rotary(x.double(), place)
    leaf = amid_nan(x).requires_grad_()
    with poisoned_memory():
        out = rotary(leaf, place)
        (gradient,) = torch.autograd.grad(out, leaf, out)
    rounding = 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
    assert relative_rms(out.detach(), exact) < rounding
    assert relative_rms(gradient, x.double()) < rounding
