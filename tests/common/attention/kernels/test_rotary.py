"""The rotary kernel under Triton's interpreter, against a multiplication by e^(i angle) in complex fp64."""

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from common.attention import positions
from common.attention.kernels.rotary import rotary
from tests.common.attention.plain import relative_rms
from tests.common.attention.plain_additive import amid_nan, poisoned_memory


def turned(x: Tensor, place: Tensor, base: float = 10000.0) -> Tensor:
    """Su et al. 2021, equations 12 and 34: pair i, as a complex number, times e^(i place base^(-2 i / D))."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    rates = torch.tensor([base ** (-2 * i / x.shape[-1]) for i in range(x.shape[-1] // 2)], dtype=torch.float64)
    return torch.view_as_real(pairs * torch.exp(1j * place.double()[..., None] * rates)).flatten(-2)


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def test_by_hand() -> None:
    """Position 3 of head dimension 4: the first pair turns by 3, the second by 3 / 100."""
    x = torch.tensor([1.0, 0.0, 0.0, 2.0]).expand(1, 1, 1, 4)
    wanted = [math.cos(3), math.sin(3), -2 * math.sin(0.03), 2 * math.cos(0.03)]
    assert rotary(x, torch.tensor([3])).flatten().tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 17, 8), (1, 2, 33, 80), (2, 1, 33, 256)], ids=str)
def test_against_complex_numbers(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = amid_nan(draw(*shape, dtype=dtype)).requires_grad_()
    place, d_out = torch.arange(shape[2]) + 100_000, draw(*shape[::-1], dtype=dtype).permute(3, 2, 1, 0)
    with poisoned_memory():
        out = rotary(x, place)
        (gradient,) = torch.autograd.grad(out, x, d_out)
    rounding = {torch.float64: 1e-10, torch.float32: 2e-7}.get(dtype, torch.finfo(dtype).eps / 2)
    assert out.dtype == gradient.dtype == dtype
    assert relative_rms(out.detach(), turned(x.detach(), place)) < rounding
    assert relative_rms(gradient, turned(d_out, -place)) < rounding


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_as_the_specification(base: float) -> None:
    x, place = draw(2, 2, 5, 12), torch.arange(5)
    torch.testing.assert_close(rotary(x, place, base), positions.rotary(x, place, base), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (1, 1, 5), (3, 1, 5), (1, 2, 5), (3, 2, 5), (3, 1, 1)], ids=str)
def test_positions_of_each_sentence_and_head(shape: tuple[int, ...]) -> None:
    x, place = draw(3, 2, 5, 4), torch.arange(math.prod(shape)).view(shape) * 7
    torch.testing.assert_close(rotary(x, place).double(), turned(x, place.expand(3, 2, 5)), rtol=1e-5, atol=1e-5)


def test_scores_depend_on_distance_alone() -> None:
    q, k = draw(1, 1, 1, 16), draw(1, 1, 1, 16) + 1
    near, far = ((rotary(q, torch.tensor([m])) * rotary(k, torch.tensor([m - 4]))).sum().item() for m in (4, 90))
    other = (rotary(q, torch.tensor([4])) * rotary(k, torch.tensor([1]))).sum().item()
    assert near == pytest.approx(far, abs=1e-4) and abs(near - other) > 0.1


@pytest.mark.parametrize("how", ["transposed", "every second", "one for all"])
def test_any_strides_and_the_input_stays(how: str) -> None:
    dense, place = draw(2, 3, 5, 8), torch.arange(5)
    if how == "transposed":
        x = dense.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    elif how == "every second":
        x = torch.stack((dense, dense), -1).flatten(-2)[..., ::2]
    else:
        x = dense[:, :1].expand(2, 3, 5, 8)
        dense = x.contiguous()
    before = x.clone()
    assert torch.equal(rotary(x, place), rotary(dense, place)) and torch.equal(x, before)


def test_a_gradient_that_is_one_number_in_memory() -> None:
    x = draw(2, 3, 5, 8).requires_grad_()
    rotary(x, torch.arange(5)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), turned(torch.ones(2, 3, 5, 8), -torch.arange(5)), rtol=1e-5, atol=1e-5)


def test_gradcheck_twice() -> None:
    x = draw(1, 1, 2, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: rotary(t, torch.arange(2)), x)
    assert torch.autograd.gradgradcheck(lambda t: rotary(t, torch.arange(2)), x)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)], ids=str)
def test_nothing_in_gives_nothing_out(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape, requires_grad=True)
    out = rotary(x, torch.arange(shape[2]))
    assert out.shape == shape and torch.autograd.grad(out.sum(), x)[0].shape == shape


@pytest.mark.parametrize("axis", range(4))
def test_offsets_beyond_32_bits(axis: int) -> None:
    x, place = draw(3, 3, 3, 4, dtype=torch.float16), torch.arange(3)
    strides = [12, 4, 1]
    strides.insert(axis, 1 << 30)
    far = torch.empty_strided(x.shape, strides, dtype=torch.float16).copy_(x)
    assert torch.equal(rotary(far, place), rotary(x, place))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 4, 6), (1, 2, 3, 4, 6)], ids=str)
def test_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"rotary: got shape .*, expected \(batch, heads, time, head_dim\), head_dim even"
    ):
        rotary(torch.zeros(shape), torch.arange(4))
