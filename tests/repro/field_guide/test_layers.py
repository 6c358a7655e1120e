"""Attention with a part changed: each is what it says, written out by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor

from common.nn.long import MaskedModel
from common.nn.sparse import Full
from reproductions.field_guide.layers import OneSided, Recurrent, Scaled, Tied, Weighted

D, H, T = 8, 2, 5
SIZE = D // H
PLAIN: dict[str, Any] = {"backend": "reference", "causal": True}
SEEN = torch.ones(T, T, dtype=torch.bool).tril()


def built(factory: Any) -> Any:
    torch.manual_seed(0)
    return factory(D, H, 0, 1).double()


def x_of(seed: int = 1) -> Tensor:
    return torch.randn(2, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def heads(x: Tensor, w: Any) -> Tensor:
    return (x @ w.weight.mT + w.bias).unflatten(-1, (H, SIZE)).transpose(1, 2)


def mixed(made: Any, weights: Tensor, v: Tensor) -> Tensor:
    return (weights @ v).transpose(1, 2).flatten(-2) @ made.w_o.weight.mT + made.w_o.bias


def soft(scores: Tensor) -> Tensor:
    return scores.masked_fill(~SEEN, -torch.inf).softmax(-1)


def test_values_that_are_the_keys() -> None:
    made, x = built(Tied(**PLAIN, tie="key_value")), x_of()
    q, k = heads(x, made.w_q), heads(x, made.w_k)
    torch.testing.assert_close(made(x), mixed(made, soft(q @ k.mT / SIZE**0.5), k))
    assert sum(p.numel() for p in made.parameters()) == 3 * (D * D + D)


def test_queries_that_are_the_keys() -> None:
    made, x = built(Tied(**PLAIN, tie="query_key")), x_of()
    k, v = heads(x, made.w_k), heads(x, made.w_v)
    torch.testing.assert_close(made(x), mixed(made, soft(k @ k.mT / SIZE**0.5), v))
    with pytest.raises(ValueError, match="kv_heads: got 1, expected 2"):
        built(Tied(**PLAIN, tie="query_key", kv_heads=1))


@pytest.mark.parametrize(("by", "factor"), [("none", 1.0), ("width", 1 / SIZE), ("learned", SIZE**-0.5)])
def test_scales(by: Any, factor: float) -> None:
    made, x = built(Scaled(**PLAIN, by=by)), x_of()
    q, k, v = (heads(x, w) for w in (made.w_q, made.w_k, made.w_v))
    torch.testing.assert_close(made(x), mixed(made, soft(q @ k.mT * factor), v))


def test_a_learned_scale_is_of_each_head() -> None:
    made, x = built(Scaled(**PLAIN, by="learned")), x_of()
    with torch.no_grad():
        made.factor[1] = 3.0
    q, k, v = (heads(x, w) for w in (made.w_q, made.w_k, made.w_v))
    scores = q @ k.mT / SIZE**0.5 * torch.tensor([1.0, 3.0]).double()[:, None, None]
    torch.testing.assert_close(made(x), mixed(made, soft(scores), v))


def test_a_hard_choice_hands_on_the_value_of_the_largest_score() -> None:
    made, x = built(Weighted(**PLAIN, weights="hard")), x_of()
    q, k, v = (heads(x, w) for w in (made.w_q, made.w_k, made.w_v))
    scores = q @ k.mT
    expected = torch.zeros(2, H, T, SIZE, dtype=torch.float64)
    for b in range(2):
        for h in range(H):
            for i in range(T):
                best = max(range(i + 1), key=lambda j: scores[b, h, i, j].item())
                expected[b, h, i] = v[b, h, best]
    one = torch.eye(T, dtype=torch.float64).expand(2, H, T, T)
    torch.testing.assert_close(made(x), mixed(made, one, expected))


def test_uniform_weights_are_a_running_mean() -> None:
    made, x = built(Weighted(**PLAIN, weights="uniform")), x_of()
    v = heads(x, made.w_v)
    mean = v.cumsum(2) / torch.arange(1, T + 1)[:, None]
    torch.testing.assert_close(made(x), mixed(made, torch.eye(T, dtype=torch.float64).expand(2, H, T, T), mean))


def test_nothing_is_read() -> None:
    made = built(Weighted(**PLAIN, weights="none"))
    torch.testing.assert_close(made(x_of(1)), made(x_of(2)))
    torch.testing.assert_close(made(x_of())[0, 0], made.w_o.bias)


def test_controls_have_the_same_size() -> None:
    sizes = {
        sum(p.numel() for p in built(factory).parameters())
        for factory in (Full(**PLAIN), *(Weighted(**PLAIN, weights=w) for w in ("hard", "uniform", "none")))
    }
    assert sizes == {4 * (D * D + D)}


def test_an_encoder_that_sees_one_side() -> None:
    """It may be one, and no output depends on later inputs."""
    torch.manual_seed(0)
    MaskedModel(9, 1, D, H, D, attention=OneSided(backend="reference"), positions="none")
    made, x = built(OneSided(backend="reference")), x_of().requires_grad_()
    (found,) = torch.autograd.grad(made(x)[:, 2].sum(), x)
    assert found[:, 3:].abs().max() == 0 and found[:, :3].abs().min() > 0
    torch.testing.assert_close(made(x), built(Full(**PLAIN))(x))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_recurrent_layer_is_read_step_by_step(cell: Any) -> None:
    made, x = built(Recurrent(cell=cell)), x_of()
    state, steps = None, []
    for t in range(T):
        out, state = made.cell(x[:, t : t + 1], state)
        steps.append(made.w_o(out))
    torch.testing.assert_close(made(x), torch.cat(steps, 1))
    with pytest.raises(ValueError, match="padding"):
        made(x, real=torch.tensor([[True] * T, [True] * 4 + [False]]))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Tied(**PLAIN, tie="all"), "tie: got 'all', expected one of key_value, query_key"),  # type: ignore[arg-type]
        (lambda: Scaled(**PLAIN, by="root"), "by: got 'root'"),  # type: ignore[arg-type]
        (lambda: Weighted(**PLAIN, weights="soft"), "weights: got 'soft'"),  # type: ignore[arg-type]
        (lambda: Recurrent(cell="ssm"), "cell: got 'ssm'"),  # type: ignore[arg-type]
        (lambda: Recurrent(cell="rnn", causal=False), "causal, dropout"),
    ],
)
def test_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()
