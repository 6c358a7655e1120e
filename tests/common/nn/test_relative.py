"""Relative positions against Dai et al. 2019, section 3.3, written out with R_{i-j} itself, in fp64."""

import pytest
import torch
from torch import Tensor

from common.attention import Causal, Full, attention
from common.nn.relative import RelativePositions


def positions(d_model: int = 6, heads: int = 2, head_dim: int = 4, size: int | None = None) -> RelativePositions:
    torch.manual_seed(0)
    made = RelativePositions(d_model, heads, head_dim, size=size).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def by_the_equation(at: RelativePositions, q: Tensor, k: Tensor) -> Tensor:
    """(q + u)^T k + (q + v)^T W_r R_{i-j}, one pair at a time: R_d = [sin w_0 d, sin w_1 d, .., cos w_0 d, ..]."""
    rate = torch.tensor([10000 ** (-2 * m / at.size) for m in range(at.size // 2)], dtype=torch.float64)
    scores = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    w_r = at.w_r.weight.view(at.heads, at.head_dim, at.size)
    for h in range(at.heads):
        for i in range(q.shape[2]):
            for j in range(k.shape[2]):
                angle = rate * (i - j)
                r = torch.cat((angle.sin(), angle.cos()))
                content = ((q[:, h, i] + at.u[h]) * k[:, h, j]).sum(-1)
                scores[:, h, i, j] = content + (q[:, h, i] + at.v[h]) @ (w_r[h] @ r)
    return scores


def qkv(time: int = 7, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 2, time, 4, dtype=dtype)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("size", [None, 2, 10])
def test_scores_are_those_of_the_equation(size: int | None) -> None:
    at, (q, k, _) = positions(size=size), qkv()
    places = torch.arange(7)
    got = at.queries(q, places) @ at.keys(k, places).mT
    torch.testing.assert_close(got, by_the_equation(at, q, k), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_and_its_gradients(causal: bool, backend: str) -> None:
    """q and k have head_dim + d_model dimensions, v has head_dim; the scale is that of head_dim."""
    at, (q, k, v) = positions(), qkv()
    places = torch.arange(7)
    wide_q, wide_k = at.queries(q, places), at.keys(k, places)
    assert wide_q.shape == wide_k.shape == (2, 2, 7, 4 + 6)
    out = attention(wide_q, wide_k, v, mask=Causal() if causal else Full(), backend=backend, scale=4**-0.5)
    hidden = torch.ones(7, 7).triu(1).bool() & causal
    expected = (by_the_equation(at, q, k) / 2).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)
    leaves = [q, k, v, *at.parameters()]
    weight = torch.randn(out.shape, dtype=torch.float64)
    for got, right in zip(
        torch.autograd.grad((out * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, right, atol=1e-11, rtol=1e-11)


def test_only_the_distance_counts() -> None:
    """Positions counted from anywhere, in one order for all or for each sample: the same scores. In fp32 too, far out."""
    at, (q, k, _) = positions(d_model=32), qkv()
    near = torch.arange(7)
    expected = at.queries(q, near) @ at.keys(k, near).mT
    for far in (near + 31_000, torch.stack((near + 5, near + 900))):
        torch.testing.assert_close(at.queries(q, far) @ at.keys(k, far).mT, expected, atol=1e-9, rtol=1e-9)
    single = [t.detach().float() for t in (q, k)]
    at.float()
    got = at.queries(single[0], near + 31_000) @ at.keys(single[1], near + 31_000).mT
    torch.testing.assert_close(got, expected.float(), atol=1e-4, rtol=0)


def relative_error(got: Tensor, exact: Tensor) -> float:
    return float(((got.double() - exact).norm() / exact.norm()).detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("first", [0, 32_000])
def test_16_bits_cost_no_more_than_in_the_equation_itself(first: int, dtype: torch.dtype) -> None:
    """Scores of d_model 512 from q, k and turns in 16 bits, summed in fp32, against those of q, k and W_r R in 16 bits: at
    most twice the error. No origin is better than another."""
    torch.manual_seed(0)
    at = RelativePositions(512, 1, 64).double()
    q, k = torch.randn(2, 1, 1, 256, 64, dtype=torch.float64)
    places = first + torch.arange(256)
    exact = at.queries(q, places) @ at.keys(k, places).mT
    distance = (places[:, None] - places).flatten()
    sin, cos = (t.view(256, 256, -1) for t in at._turns(distance, torch.float64))
    keys = torch.cat((sin, cos), -1) @ at.w_r.weight.T  # W_r R_{i-j}, (i, j, head_dim)
    rounded = [t.to(dtype).double() for t in (q + at.u[:, None], k, q + at.v[:, None], keys)]
    usual = rounded[0] @ rounded[1].mT + torch.einsum("bhid,ijd->bhij", rounded[2], rounded[3])
    low = at.to(dtype)
    got = low.queries(q.to(dtype), places).double() @ low.keys(k.to(dtype), places).double().mT
    assert relative_error(got, exact) <= 2 * relative_error(usual, exact)


def test_parameters() -> None:
    """W_r of d_model x heads * head_dim without bias; u and v of head_dim a head."""
    at = RelativePositions(512, 8, 64)
    assert {name: tuple(p.shape) for name, p in at.named_parameters()} == {
        "u": (8, 64), "v": (8, 64), "w_r.weight": (512, 512),
    }  # fmt: skip


def test_an_odd_size_is_refused() -> None:
    with pytest.raises(ValueError, match="relative positions: got 5 dimensions, expected an even number"):
        RelativePositions(5, 1, 4)
