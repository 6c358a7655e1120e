"""Layers of linear attention against their scores written out, and what is drawn for them."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention.linear import linear_attention
from common.nn.linear import Elu, Favor, FavorAttention
from common.nn.sparse import Full
from common.nn.sparse.layer import Layer
from tests.common.nn.sparse.spec import compare, made, reached, texts

Similarity = Callable[[Layer, Tensor, Tensor], Tensor]
"""layer, q (B, H, T, d), k -> scores (B, H, T, T), not negative but of trigonometric features."""


def of_positive(layer: Any, q: Tensor, k: Tensor) -> Tensor:
    q, k = (x / layer.head_dim**0.25 for x in (q, k))
    phi = [(x @ layer.draw.mT - x.square().sum(-1, keepdim=True) / 2).exp() for x in (q, k)]
    return phi[0] @ phi[1].mT


def of_trigonometric(layer: Any, q: Tensor, k: Tensor) -> Tensor:
    """cos(w . (q - k)), summed, times exp((|q|^2 + |k|^2) / 2)."""
    q, k = (x / layer.head_dim**0.25 for x in (q, k))
    angle = (q @ layer.draw.mT)[..., :, None, :] - (k @ layer.draw.mT)[..., None, :, :]
    return angle.cos().sum(-1) * ((q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]) / 2).exp()


def of_relu(layer: Any, q: Tensor, k: Tensor) -> Tensor:
    phi = [(x / layer.head_dim**0.25 @ layer.draw.mT).clamp(min=0) + 1e-3 for x in (q, k)]
    return phi[0] @ phi[1].mT


def of_elu(layer: Any, q: Tensor, k: Tensor) -> Tensor:
    phi = [torch.where(x > 0, x + 1, x.exp()) for x in (q, k)]
    return phi[0] @ phi[1].mT


KINDS: dict[str, tuple[Any, Similarity]] = {
    "positive": (Favor(features=7), of_positive),
    "positive, causal": (Favor(features=7, causal=True), of_positive),
    "trigonometric": (Favor(features=50, kind="trigonometric"), of_trigonometric),
    "trigonometric, causal": (Favor(features=50, kind="trigonometric", causal=True), of_trigonometric),
    "relu": (Favor(features=7, kind="relu"), of_relu),
    "elu": (Elu(), of_elu),
    "elu, causal": (Elu(causal=True), of_elu),
}


def written_out(layer: Any, x: Tensor, real: Tensor, similarity: Similarity) -> Tensor:
    x = torch.where(real[..., None], x, 0.0)
    q, k, v = (
        w(x).unflatten(-1, (layer.heads, layer.head_dim)).transpose(1, 2) for w in (layer.w_q, layer.w_k, layer.w_v)
    )
    scores = similarity(layer, q, k) * real[:, None, None, :]
    if layer.causal:
        scores = scores.tril()
    mixed = scores @ v / scores.sum(-1, keepdim=True)
    return layer.w_o(mixed.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind: str) -> None:
    factory, similarity = KINDS[kind]
    layer = made(factory)
    for parameter in layer.parameters():
        parameter.data.mul_(0.4)  # trigonometric scores stay away from 0
    x, real = texts([9, 4, 1])
    x.requires_grad_()
    compare(layer, written_out(layer, x, real, similarity), x, real)


@pytest.mark.parametrize("kind", ["positive, causal", "trigonometric, causal", "elu, causal"])
def test_causal_layers_see_nothing_that_follows(kind: str) -> None:
    layer = made(KINDS[kind][0]).eval()
    x, _ = texts([8])
    assert set(reached(lambda y: layer(y).round(decimals=9), x, 5)) <= {5, 6, 7}
    assert reached(lambda y: layer(y).round(decimals=9), x, 2)


def test_a_trained_softmax_layer_becomes_an_approximate_one() -> None:
    """Choromanski et al. 2020, section 4.3: the same weights; more features come closer."""
    exact, (x, _) = made(Full(backend="reference")), texts([12])
    for parameter in exact.parameters():
        parameter.data.mul_(0.3)
    errors, wanted = [], exact(x).detach()
    for features in (8, 4096):
        approximate = made(Favor(features=features))
        missing = approximate.load_state_dict(exact.state_dict(), strict=False)
        assert set(missing.missing_keys) == {"draw", "calls"} and not missing.unexpected_keys
        errors.append(float((approximate(x).detach() - wanted).norm() / wanted.norm()))
    assert errors[1] < 0.05 < errors[0]


def favor(layer: int = 0, made_with: int = 0, **settings: Any) -> FavorAttention:
    found = made(Favor(features=6, **settings), layer=layer, seed=made_with)
    assert isinstance(found, FavorAttention)
    return found


def test_draws_are_kept_and_never_made_out_of_training() -> None:
    layer, (x, _), before = favor(redraw=1).eval(), texts([5]), torch.get_rng_state()
    once = layer(x)
    assert torch.equal(layer(x), once) and torch.equal(torch.get_rng_state(), before)
    other = favor(layer=1, made_with=9, redraw=1).eval()
    assert not torch.equal(other.draw, layer.draw)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), once)


def test_layers_and_seeds_draw_otherwise_and_repeatably() -> None:
    draws = [favor(layer, seed=seed).draw for seed in (0, 1) for layer in (0, 1)]
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == 4
    assert torch.equal(favor(1, seed=1).draw, draws[3])


def test_a_draw_serves_as_many_training_calls_as_are_asked_for() -> None:
    """And a run that goes on from a checkpoint draws what it would have drawn."""
    layer, (x, _) = favor(redraw=3), texts([5])
    seen: list[Tensor] = []
    for call in range(8):
        if call == 4:
            kept = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
            layer = favor(made_with=5, redraw=3)
            layer.load_state_dict(kept)
        layer.eval()(x)
        layer.train()(x)
        seen.append(layer.draw.clone())
    same = [torch.equal(a, b) for a, b in pairwise(seen)]
    assert same == [True, True, False, True, True, False, True]
    torch.testing.assert_close(seen[3], layer.drawn(1).double())
    torch.testing.assert_close(seen[6], layer.drawn(2).double())


def test_scores_of_any_size_stay_finite() -> None:
    """Scores of thousands: positive features follow the largest one, as a softmax does."""
    layer, (x, real) = made(Favor(features=64)), texts([6, 3])
    layer.w_q.weight.data.mul_(100)
    layer.w_k.weight.data.mul_(100)
    out = layer(x.requires_grad_(), real=real)
    assert out.isfinite().all()
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Favor(kind="cosine"), "kind: got 'cosine', expected one of positive, trigonometric, relu"),  # type: ignore[arg-type]
        (lambda: Favor(features=0), "expected 1 feature or more"),
        (lambda: Favor(redraw=-1), "redraw 0 or more"),
        (lambda: Favor(dropout=0.1), "no weights to drop"),
        (lambda: Elu(backend="sdpa"), "backend: got 'sdpa', expected one of reference, triton"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", [Elu, Favor])
def test_the_backend_is_that_of_the_factory(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def recorded(*given: Any, backend: str, **more: Any) -> Any:
        asked.append(backend)
        return linear_attention(*given, **more)

    monkeypatch.setattr("common.nn.linear.linear_attention", recorded)
    layer = kind(backend="triton", causal=True)(8, 2, 0, 1)
    layer(torch.zeros(1, 3, 8))
    layer.step(torch.zeros(1, 1, 8), None)
    assert asked == ["triton", "triton"]


def test_no_token_can_be_global() -> None:
    x, real = texts([4])
    with pytest.raises(ValueError, match="is_global: got global tokens, expected None"):
        made(Elu())(x, real=real, is_global=real)


def test_memory_of_a_call_grows_with_the_length() -> None:
    from common.bench import peak_bytes

    layer = made(Favor(features=8, causal=True)).float()
    peaks = [peak_bytes(layer, [torch.randn(1, length, 12)]) for length in (1024, 2048)]
    assert math.isclose(peaks[1] / peaks[0], 2, rel_tol=0.1)
