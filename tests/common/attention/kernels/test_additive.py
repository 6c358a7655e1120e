"""The additive kernels under Triton's interpreter, against fp64."""

# pyright: reportArgumentType=false
import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from common.attention.additive import additive_attention
from common.attention.kernels import additive as kernels
from tests.common.attention.kernels.largest import Largest
from tests.common.attention.plain import relative_rms
from tests.common.attention.plain_additive import (
    amid_nan,
    assert_as_exact_as_plain,
    d_out_of,
    inputs,
    passes,
    plain,
    poisoned_memory,
)

SHAPES = [(1, 1, 1, 1, 1), (2, 17, 33, 20, 24), (2, 33, 17, 33, 17), (3, 1, 33, 40, 70), (2, 17, 1, 17, 3)]
"""B, T, S, A, D. A single step has tiles of its own."""


def attend(*given: Tensor) -> Tensor:
    *tensors, mask = given
    return additive_attention(*tensors, mask=mask, backend="triton")  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_fp64_with_nan_all_around(shape: tuple, dtype: torch.dtype) -> None:
    *tensors, mask = inputs(shape, dtype)
    with poisoned_memory():
        assert_as_exact_as_plain(attend, (*(amid_nan(t) for t in tensors), mask))


@pytest.mark.parametrize("scale", [1e-4, 30.0])
def test_small_and_large_scores(scale: float) -> None:
    """Small: tanh x is nearly x, where 1 - 2 / (1 + exp 2x) cancels. Large: it is 1, and exp overflows."""
    given = inputs((2, 3, 20, 17, 16), scale=scale)
    got = passes(attend, given, d_out_of(given))
    exact = passes(plain, (*(t.double() for t in given[:4]), given[4]), d_out_of(given).double())
    for name in ("context", "keys", "values", "v"):  # in the queries' gradient all but tanh^2 cancels, in fp32 anywhere
        assert relative_rms(got[name], exact[name]) < 2e-6, name


@triton.jit
def tanh_kernel(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y + at, kernels._tanh(tl.load(x + at)))


def test_tanh_to_a_millionth_of_its_value() -> None:
    """In fp32, from 1e-6 to 10 and through the seam at 0.25, where the series hands over."""
    x = torch.cat((torch.logspace(-6, 1, 412), torch.linspace(0.2, 0.3, 100)))
    x = torch.cat((x, -x))
    y = torch.empty(1024)
    tanh_kernel[(1,)](x, y, SIZE=1024)
    exact = torch.tanh(x.double())
    assert ((y - exact) / exact).abs().max() < 1e-6


def test_infinite_states_saturate() -> None:
    query, keys, values, v, mask = inputs((1, 2, 3, 4, 5))
    query[0, 0, 0], query[0, 1, 1] = math.inf, -1e30
    torch.testing.assert_close(attend(query, keys, values, v, mask), plain(query, keys, values, v, mask))


@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(steps: int) -> None:
    *tensors, mask = inputs((2, steps, 5, 3, 2), torch.float64)
    mask[1] = torch.tensor([True, False, False, True, False])
    leaves = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(lambda *given: attend(*given, mask), leaves, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_a_masked_word_takes_no_part(steps: int, garbage: float) -> None:
    query, keys, values, v, mask = inputs((3, steps, 35, 6, 3))
    mask[1, :33], mask[2] = False, False  # blocks of padding alone, and a sentence without a word
    mask[1, 33:] = True
    clean = passes(attend, (query, keys, values, v, mask), d_out_of((query, keys, values)))
    dirty = (query.clone(), keys.clone(), values.clone(), v, mask)
    dirty[0][2], dirty[1][~mask], dirty[2][~mask] = garbage, garbage, garbage
    for name, tensor in passes(attend, dirty, d_out_of(dirty)).items():
        assert torch.equal(tensor, clean[name]), name
    assert (clean["context"][2] == 0).all() and (clean["query"][2] == 0).all()
    assert (clean["keys"][~mask] == 0).all() and (clean["values"][~mask] == 0).all()
    assert (clean["context"][1] != 0).all()


def test_a_query_that_is_nan_spoils_its_own_context_alone() -> None:
    query, keys, values, v, mask = inputs((2, 18, 17, 4, 3))
    mask[:] = True
    query[0, 3, 1] = math.nan
    broken = attend(query, keys, values, v, mask).isnan()
    assert broken[0, 3].all() and broken.sum() == 3


@pytest.mark.parametrize("how", ["transposed", "every second", "one for all"])
def test_any_strides(how: str) -> None:
    *tensors, mask = inputs((3, 5, 18, 6, 4))
    if how == "transposed":
        given = [t.transpose(0, -1).contiguous().transpose(0, -1) for t in (*tensors, mask)]
    elif how == "every second":
        given = [torch.stack((t, t), -1).flatten(-2)[..., ::2] for t in (*tensors, mask)]
    else:
        given = [t[:1].expand(t.shape) for t in (*tensors, mask)]
    dense = tuple(t.contiguous() for t in given)
    d_out = d_out_of(dense)
    wanted = passes(attend, dense, d_out)
    for name, tensor in passes(attend, tuple(given), d_out.mT.contiguous().mT).items():
        assert torch.equal(tensor, wanted[name]), name


def test_a_gradient_that_is_one_number_in_memory() -> None:
    given = inputs((2, 5, 18, 6, 4))
    wanted = passes(attend, given, torch.ones(2, 5, 4))
    leaves = [t.requires_grad_() for t in given[:4]]
    attend(*leaves, given[4]).sum().backward()
    for name, leaf in zip(("query", "keys", "values", "v"), leaves, strict=True):
        assert leaf.grad is not None and torch.equal(leaf.grad, wanted[name]), name


@pytest.mark.parametrize("empty", range(4))
def test_nothing_in_gives_nothing_out(empty: int) -> None:
    """No sentence, no query, no source word, no value: zeros (if any), and gradients of zero."""
    shape = [2, 3, 4, 5, 6]
    shape[(0, 1, 2, 4)[empty]] = 0
    given = inputs(tuple(shape))  # type: ignore[arg-type]
    with poisoned_memory():
        got = passes(attend, given, d_out_of(given))
    assert got["context"].shape == (shape[0], shape[1], shape[4])
    assert all((t == 0).all() for t in got.values())
    assert all(got[name].shape == t.shape for name, t in zip(("query", "keys", "values", "v"), given, strict=False))


def test_wide_values_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "WIDEST", 16)
    with poisoned_memory():
        assert_as_exact_as_plain(attend, inputs((2, 3, 20, 5, 70)))


@pytest.mark.parametrize("steps", [1, 20])
def test_results_repeat_bit_for_bit(steps: int) -> None:
    given = inputs((3, steps, 35, 17, 16), torch.float16)
    first, second = (passes(attend, given, d_out_of(given)) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gradients_are_computed_only_where_asked() -> None:
    given = inputs((2, 3, 5, 4, 6))
    whole = passes(attend, given, d_out_of(given))
    for asked, name in enumerate(("query", "keys", "values", "v")):
        leaves = [t.detach().requires_grad_(n == asked) for n, t in enumerate(given[:4])]
        (gradient,) = torch.autograd.grad(attend(*leaves, given[4]), leaves[asked], d_out_of(given))
        assert torch.equal(gradient, whole[name]), name


def test_no_second_derivative() -> None:
    *tensors, mask = inputs((1, 2, 3, 4, 5))
    leaves = [t.requires_grad_() for t in tensors]
    (gradient,) = torch.autograd.grad(attend(*leaves, mask).square().sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_without_the_interpreter_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attention.kernels.INTERPRETED", False)
    with pytest.raises(ValueError, match="backend 'triton' runs on a GPU, not on cpu .*; these can: reference"):
        attend(*inputs((1, 2, 3, 4, 5)))


def test_no_tensor_of_every_query_key_and_hidden_unit() -> None:
    batch, steps, source, size, _ = shape = (1, 40, 40, 5, 5)
    *tensors, mask = inputs(shape)
    leaves = [t.requires_grad_() for t in tensors]
    with Largest() as forward:
        out = attend(*leaves, mask)
    with Largest() as backward:
        out.sum().backward()
    pairs = batch * steps * source
    assert 0 < forward.size < pairs
    assert pairs <= backward.size <= 4 * pairs < pairs * size


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("which", ["query", "keys", "values"])
def test_offsets_beyond_32_bits(which: str, axis: int) -> None:
    """2^31 elements between the first and the last entry of one axis: 4 GiB of addresses, few of them touched."""
    given = dict(zip(("query", "keys", "values", "v", "mask"), inputs((3, 3, 3, 3, 3), torch.float16), strict=True))
    wanted = passes(attend, tuple(given.values()), torch.ones(3, 3, 3))
    strides = [3, 1]
    strides.insert(axis, 1 << 30)
    given[which] = torch.empty_strided((3, 3, 3), strides, dtype=torch.float16).copy_(given[which])
    for name, tensor in passes(attend, tuple(given.values()), torch.ones(3, 3, 3)).items():
        assert torch.equal(tensor, wanted[name]), name
