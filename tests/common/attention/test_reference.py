"""The specification against numbers worked by hand, against loops over single numbers, and against its own promises."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from common.attention import Attended, Causal, Full, Mask, Padding, Window, attention
from tests.common.attention import properties
from tests.common.attention.properties import inputs
from tests.common.attention.test_masks import written


@pytest.mark.parametrize("check", properties.ALL, ids=properties.named)
def test_holds(check: Callable[[str], None]):
    check("reference")


def asked(*args: Tensor, **kwargs: object) -> Attended:
    answer = attention(*args, backend="reference", return_lse=True, return_weights=True, **kwargs)  # type: ignore[misc]
    assert isinstance(answer, Attended)
    return answer


def test_by_hand():
    """Scores 0 and ln 3 before the softmax, so weights 1/4 and 3/4; the third key is masked."""
    q = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    k = torch.tensor([[[[0.0, 1.0, 0.0, 0.0], [math.log(3.0), 0.0, 5.0, 0.0], [9.0, 9.0, 9.0, 9.0]]]])
    v = torch.tensor([[[[4.0, 8.0], [0.0, 4.0], [1.0, 1.0]]]])
    got = asked(q, k, v, mask=Padding(torch.tensor([[True, True, False]])))
    assert got.output.flatten().tolist() == pytest.approx([1.0, 5.0])
    assert got.weights is not None and got.weights.flatten().tolist() == pytest.approx([0.25, 0.75, 0.0])
    assert got.lse is not None and got.lse.item() == pytest.approx(math.log(4.0))


def test_a_bias_by_hand():
    """Equal scores; a bias of ln 3 for the second key makes its weight 3/4."""
    q, k = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 2, 2)
    v = torch.tensor([[[[4.0], [8.0]]]])
    bias = torch.tensor([0.0, math.log(3.0)]).view(1, 1, 1, 2)
    assert asked(q, k, v, mask=Full(), bias=bias).output.item() == pytest.approx(7.0)


def test_against_loops_over_single_numbers():
    """Grouped heads, dv other than d, a bias, a window, fewer queries than keys, a scale."""
    q, k, v, _ = inputs(4, 6, batch=2, heads=4, kv=2, d=3, dv=2, dtype=torch.float64)
    bias = torch.randn(1, 4, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    got = asked(q, k, v, mask=Window(2, 1), bias=bias, scale=0.7)
    assert got.lse is not None and got.weights is not None
    for b in range(2):
        for h in range(4):
            for i in range(4):
                seen = [j for j in range(6) if -2 <= j - (i + 2) <= 1]
                scores = [
                    0.7 * sum(float(q[b, h, i, c] * k[b, h // 2, j, c]) for c in range(3)) + float(bias[0, h, i, j])
                    for j in seen
                ]
                total = sum(math.exp(s) for s in scores)
                for c in range(2):
                    value = sum(math.exp(s) * float(v[b, h // 2, j, c]) for s, j in zip(scores, seen, strict=True))
                    assert float(got.output[b, h, i, c]) == pytest.approx(value / total, rel=1e-12)
                assert float(got.lse[b, h, i]) == pytest.approx(math.log(total), rel=1e-12)
                expected = [math.exp(scores[seen.index(j)]) / total if j in seen else 0.0 for j in range(6)]
                assert got.weights[b, h, i].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "mask", [Full(), Causal() & Window(2, 0), Padding(written("11101"))], ids=lambda mask: type(mask).__name__
)
def test_gradients_in_fp64(mask: Mask):
    q, k, v, _ = inputs(4, 5, batch=1, heads=2, kv=1, d=3, dv=2, dtype=torch.float64)
    bias = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (q, k, v, bias)]
    torch.autograd.gradcheck(
        lambda q, k, v, bias: attention(q, k, v, mask=mask, backend="reference", bias=bias), leaves
    )


def test_lse_of_a_query_that_sees_nothing_is_minus_infinity():
    got = asked(*inputs(3, 1)[:3], mask=Causal())
    assert got.lse is not None and bool((got.lse[:, :, :2] == -torch.inf).all())
    assert bool(torch.isfinite(got.lse[:, :, 2]).all()) and not got.lse.requires_grad


@pytest.mark.parametrize(
    ("dtype", "relative", "absolute"),
    [(torch.float16, 2**-11, 1e-6), (torch.bfloat16, 2**-8, 1e-6), (torch.float32, 0, 1e-6), (torch.float64, 0, 1e-14)],
)
def test_low_precision_is_rounded_once(dtype: torch.dtype, relative: float, absolute: float):
    """All is computed in fp32, so the output is the exact one rounded to the dtype's bits."""
    q, k, v, _ = inputs(50, dtype=dtype)
    got = asked(q, k, v, mask=Causal())
    exact = asked(*(t.double() for t in (q, k, v)), mask=Causal()).output
    assert got.output.dtype == dtype and got.lse is not None
    assert got.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert bool(((got.output.double() - exact).abs() <= relative * exact.abs() + absolute).all())


def test_scores_that_overflow_fp16_do_not_overflow():
    """8 products of 200 * 200: 320000 is beyond fp16, and the scaled scores are right all the same."""
    q = torch.full((1, 1, 1, 8), 200.0, dtype=torch.float16)
    k = torch.stack((q[0, 0, 0], q[0, 0, 0] / 2))[None, None]
    v = torch.tensor([[[[1.0], [5.0]]]], dtype=torch.float16)
    assert asked(q, k, v, mask=Full()).output.item() == 1.0


def test_dropout_scales_what_it_keeps():
    """Kept weights are divided by 1 - p, dropped ones are 0; about p of them; none where nothing is seen."""
    q, k, v, _ = inputs(60, batch=2)
    plain = asked(q, k, v, mask=Causal()).weights
    got = asked(q, k, v, mask=Causal(), dropout_p=0.25, dropout_seed=7)
    assert plain is not None and got.weights is not None
    kept = got.weights > 0
    torch.testing.assert_close(got.weights[kept], plain[kept] / 0.75)
    assert float(kept.sum() / (plain > 0).sum()) == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(got.output, got.weights @ v)


def test_dropout_repeats_with_its_seed_alone():
    q, k, v, _ = inputs(12)

    def run(**kwargs: object) -> Tensor:
        return asked(q, k, v, mask=Full(), **kwargs).output

    assert torch.equal(run(dropout_p=0.5, dropout_seed=3), run(dropout_p=0.5, dropout_seed=3))
    assert not torch.equal(run(dropout_p=0.5, dropout_seed=3), run(dropout_p=0.5, dropout_seed=4))
    assert not torch.equal(run(dropout_p=0.5), run(dropout_p=0.5)), "no seed: a new one from torch's generator"
    torch.manual_seed(1)
    first = run(dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(run(dropout_p=0.5), first)
    state = torch.get_rng_state()
    assert torch.equal(run(dropout_p=0.0), run()) and torch.equal(torch.get_rng_state(), state)
