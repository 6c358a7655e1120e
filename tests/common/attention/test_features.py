"""Features: expectations and variances in closed form (Choromanski et al. 2020, lemmas 1 and 2), and by hand."""

import math

import pytest
import torch
from torch import Tensor

from common.attention.features import elu, gaussian, positive, relu, trigonometric
from common.attention.linear import linear_attention

D = 4


def draws(count: int, features: int, orthogonal: bool, size: int = D) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [gaussian(features, size, generator, orthogonal=orthogonal) for _ in range(count)]


def product(kind: str, x: Tensor, y: Tensor, draw: Tensor) -> float:
    if kind == "positive":
        return float((positive(x, draw) + positive(y, draw)).exp().sum())
    (a, log_a), (b, log_b) = trigonometric(x, draw), trigonometric(y, draw)
    return float(a @ b * (log_a + log_b).exp())


def pair(angle: float, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """Vectors of that length after the division by D^(1/4), at an angle."""
    x, y = torch.zeros(2, D, dtype=torch.float64)
    x[0], y[0], y[1] = 1.0, math.cos(angle), math.sin(angle)
    return x * length * D**0.25, y * length * D**0.25


@pytest.mark.parametrize("orthogonal", [False, True], ids=["independent", "orthogonal"])
@pytest.mark.parametrize("kind", ["positive", "trigonometric"])
@pytest.mark.parametrize("angle", [0.0, 1.0, math.pi])
def test_products_have_the_expectation_of_the_softmax(kind: str, orthogonal: bool, angle: float) -> None:
    """Lemma 1, within three standard errors: exp(cos of the angle) for these lengths."""
    x, y = pair(angle)
    found = torch.tensor([product(kind, x, y, draw) for draw in draws(3000, 6, orthogonal)], dtype=torch.float64)
    assert (
        abs(found.mean() - math.exp(math.cos(angle))) < 3 * found.std() / len(found) ** 0.5 + 1e-9
    )  # at an angle of 0, trigonometric ones are exact


@pytest.mark.parametrize("angle", [0.5, 2.0])
def test_variances_of_independent_features(angle: float) -> None:
    """Lemma 2: of M features, exp(|x+y|^2) SM^2 (1 - exp(-|x+y|^2)) / M of positive ones, exp(|x+y|^2) SM^-2
    (1 - exp(-|x-y|^2))^2 / 2 M of trigonometric ones."""
    length = 0.5  # of longer ones the variance of a variance is beyond counting
    features, x, y = 8, *pair(angle, length)
    plus, minus = (2 * length**2 * (1 + sign * math.cos(angle)) for sign in (1, -1))
    softmax = math.exp(length**2 * math.cos(angle))
    closed = {
        "positive": math.exp(plus) * softmax**2 * (1 - math.exp(-plus)) / features,
        "trigonometric": math.exp(plus) * softmax**-2 * (1 - math.exp(-minus)) ** 2 / (2 * features),
    }
    for kind, expected in closed.items():
        found = torch.tensor([product(kind, x, y, draw) for draw in draws(6000, features, orthogonal=False)])
        assert float(found.var()) == pytest.approx(expected, rel=0.1)


def test_orthogonal_features_vary_less() -> None:
    """Theorem 2, at the size of one block."""
    x, y = pair(1.0)
    spread = {
        orthogonal: torch.tensor([product("positive", x, y, draw) for draw in draws(3000, D, orthogonal)]).var()
        for orthogonal in (False, True)
    }
    assert spread[True] < 0.9 * spread[False]


def test_orthogonal_rows_are_at_right_angles_block_by_block_and_as_long_as_others() -> None:
    rows = gaussian(10, D, torch.Generator().manual_seed(3)).double()
    for start in (0, 4, 8):
        block = torch.nn.functional.normalize(rows[start : start + D], dim=1)
        torch.testing.assert_close(block @ block.mT, torch.eye(len(block), dtype=torch.float64), atol=1e-6, rtol=0)
    many = torch.cat(draws(2000, D, orthogonal=True)).double()
    torch.testing.assert_close(many.mT @ many / len(many), torch.eye(D, dtype=torch.float64), atol=0.06, rtol=0)
    squares = many.square().sum(1)  # chi squared of D degrees: mean D, variance 2 D
    assert float(squares.mean()) == pytest.approx(D, rel=0.03) and float(squares.var()) == pytest.approx(2 * D, rel=0.1)
    assert torch.equal(gaussian(10, D, torch.Generator().manual_seed(3)).double(), rows)


def test_attention_of_many_features_is_that_of_the_softmax() -> None:
    """The median over draws of the relative error falls as one over the root of the features."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, 1, 1, 32, 16, generator=generator) * 0.5
    exact, errors = torch.nn.functional.scaled_dot_product_attention(q, k, v), {}
    for features in (16, 256, 4096):
        found = [
            linear_attention(positive(q, draw), positive(k, draw), v, log=True).output
            for draw in (gaussian(features, 16, generator) for _ in range(20))
        ]
        errors[features] = float(torch.stack([(f - exact).norm() / exact.norm() for f in found]).median())
    assert errors[4096] < 0.1 and errors[16] / errors[256] > 2 and errors[256] / errors[4096] > 2.5


def test_fixed_features_by_hand() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0])
    torch.testing.assert_close(elu(x), torch.tensor([math.exp(-1), 1.0, 3.0]))
    draw = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    x = torch.tensor([2.0, -2.0, 5.0, 5.0])  # over 4^(1/4), the root of 2
    torch.testing.assert_close(relu(x, draw), torch.tensor([2**0.5 + 1e-3, 1e-3]))


def test_features_are_wide_under_autocast() -> None:
    x, draw = torch.full((1, D), 1.7), gaussian(6, D, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        under = [positive(x, draw), trigonometric(x, draw)[0], relu(x, draw), elu(x.bfloat16())]
    for found, expected in zip(under, (positive(x, draw), trigonometric(x, draw)[0], relu(x, draw)), strict=False):
        assert torch.equal(found, expected)
    assert under[-1].dtype == torch.float32


@pytest.mark.parametrize("draw", [torch.zeros(3, D + 1), torch.zeros(D)])
def test_a_draw_of_another_size_is_refused(draw: Tensor) -> None:
    for features in (positive, trigonometric, relu):
        with pytest.raises(ValueError, match=r"expected \(features, 4\), the size of queries and keys"):
            features(torch.zeros(2, D), draw)
    with pytest.raises(ValueError, match="got 0 and 4, expected 1 or more"):
        gaussian(0, D, torch.Generator())
