"""Attention that knows distances, a pair of tokens at a time from the papers' equations; and what all of it has in common."""

from collections.abc import Callable
from math import cos, log, sin, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention import RotaryScaling
from common.nn.positioned import Biased, Disentangled, DisentangledAttention, Shaw, ShawAttention
from common.nn.sparse import Full
from tests.common.attention.test_positions import bucket_by_integers
from tests.common.nn.sparse.spec import compare, made, reached, texts

KINDS: dict[str, Callable[..., Full]] = {
    "shaw": lambda **settings: Shaw(clip=3, **settings),
    "shaw, multi-query": lambda **settings: Shaw(clip=3, kv_heads=1, **settings),
    "shaw, keys alone": lambda **settings: Shaw(clip=2, values=False, **settings),
    "disentangled": lambda **settings: Disentangled(clip=3, **settings),
    "disentangled, multi-query": lambda **settings: Disentangled(clip=2, kv_heads=1, **settings),
    "t5": lambda **settings: Biased(kind="t5", buckets=8, **settings),
    "alibi, multi-query": lambda **settings: Biased(kind="alibi", kv_heads=1, **settings),
    "interpolation": lambda **settings: Full(rotary=True, rotary_scaling=RotaryScaling("interpolation", 4), **settings),
    "ntk": lambda **settings: Full(rotary=True, rotary_scaling=RotaryScaling("ntk", 4), **settings),
}
WITHOUT_WEIGHTS = [kind for kind in KINDS if kind not in ("shaw", "shaw, multi-query")]
RATES = {"interpolation": (1 / 4, 0.01 / 4), "ntk": (1, 0.01 / 4)}
"""Of a head_dim of 4, whose rates are 1 and 1 / 100: all of them over the factor, or the lowest alone."""


def layer_of(kind: str, backend: str = "reference", **settings: Any) -> Any:
    return made(KINDS[kind](backend=backend, **settings))


def delta(i: int, j: int, k: int) -> int:
    """He et al. 2021, equation 3."""
    if i - j <= -k:
        return 0
    return 2 * k - 1 if i - j >= k else i - j + k


def score(layer: Any, kind: str, causal: bool, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
    """Of query head h: Shaw et al. 2018, equation 4; He et al. 2021, equation 4; Raffel et al. 2020, section 2.1; Press et
    al. 2022, section 3, whose slopes for three heads are those of two and the first of four; Su et al. 2021, equation 15."""
    if kind.startswith("shaw"):
        return q @ (k + layer.a_k[max(-layer.clip, min(layer.clip, j - i)) + layer.clip]) / sqrt(4)
    if kind.startswith("disentangled"):
        shared = h // (3 // layer.kv_heads)
        k_r = (layer.w_kr.weight @ layer.p[delta(i, j, layer.clip)])[4 * shared : 4 * shared + 4]
        q_r = (layer.w_qr.weight @ layer.p[delta(j, i, layer.clip)])[4 * h : 4 * h + 4]
        return (q @ k + q @ k_r + k @ q_r) / sqrt(3 * 4)
    if kind == "t5":
        return q @ k / sqrt(4) + layer.by_distance.table[bucket_by_integers(j - i, 8, not causal, 128), h]
    if kind.startswith("alibi"):
        return q @ k / sqrt(4) - (1 / 16, 1 / 256, 1 / 4)[h] * abs(i - j)
    c, s = ([f((j - i) * rate) for rate in RATES[kind]] for f in (cos, sin))
    turned = [t for m in (0, 1) for t in (c[m] * k[2 * m] - s[m] * k[2 * m + 1], s[m] * k[2 * m] + c[m] * k[2 * m + 1])]
    return q @ torch.stack(turned) / sqrt(4)


def value(layer: Any, i: int, j: int, v: Tensor) -> Tensor:
    """Shaw et al. 2018, equation 3."""
    if not isinstance(layer, ShawAttention) or layer.a_v is None:
        return v
    return v + layer.a_v[max(-layer.clip, min(layer.clip, j - i)) + layer.clip]


def written_out(layer: Any, kind: str, x: Tensor, real: Tensor, causal: bool) -> Tensor:
    """Three heads of four. Rows of zeros at padding."""
    rows = [[torch.zeros(12, dtype=x.dtype) for _ in range(x.shape[1])] for _ in range(len(x))]
    for b in range(len(x)):
        alive = real[b].nonzero().flatten().tolist()
        for i in alive:
            heads, keys = [], [j for j in alive if not causal or j <= i]
            for h in range(3):
                shared = slice(0, 4) if layer.kv_heads == 1 else slice(4 * h, 4 * h + 4)
                q = layer.w_q(x[b, i])[4 * h : 4 * h + 4]
                scores = [score(layer, kind, causal, h, i, j, q, layer.w_k(x[b, j])[shared]) for j in keys]
                values = [value(layer, i, j, layer.w_v(x[b, j])[shared]) for j in keys]
                heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            rows[b][i] = layer.w_o(torch.cat(heads))
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize(
    ("kind", "backend"), [(kind, "reference") for kind in KINDS] + [(kind, "chunked") for kind in WITHOUT_WEIGHTS]
)
@pytest.mark.parametrize("causal", [False, True])
def test_outputs_and_gradients(kind: str, causal: bool, backend: str) -> None:
    layer = layer_of(kind, backend, causal=causal)
    x, real = texts([8, 4, 1])
    compare(layer, written_out(layer, kind, x.requires_grad_(), real, causal), x, real)


def plain(factory: Any, **values: Any) -> Any:
    """A layer of d_model 1 whose value j is x_j, and whose queries, keys and positions are 0 but for `values`."""
    layer = factory(1, 1, 0, 1).double()
    for parameter in layer.parameters():
        parameter.data.zero_()
    for name, given in ({"w_v.weight": 1.0, "w_o.weight": 1.0} | values).items():
        parameter = layer.get_parameter(name)
        parameter.data.copy_(torch.tensor(given, dtype=torch.float64).reshape(parameter.shape))
    return layer


def outputs(layer: Any) -> list[float]:
    return layer(torch.tensor([[[0.0], [1.0], [2.0]]], dtype=torch.float64)).flatten().tolist()


def test_shaw_by_hand() -> None:
    """k = 1. Keys: queries of 1 and w^K of ln 1, ln 2, ln 4 for keys before, at and behind the query weigh (2, 4, 4) / 10,
    (1, 2, 4) / 7 and (1, 1, 2) / 4. Values: equal weights, so w^V of -3, 30, 300 adds 630, 327 and 24, over 3."""
    of_keys = {"w_q.bias": 1.0, "a_k": [log(1), log(2), log(4)]}
    assert outputs(plain(Shaw(backend="reference", clip=1), **of_keys)) == pytest.approx([12 / 10, 10 / 7, 5 / 4])
    of_values = {"a_v": [-3.0, 30.0, 300.0]}
    assert outputs(plain(Shaw(backend="reference", clip=1), **of_values)) == pytest.approx([211.0, 110.0, 9.0])


def test_disentangled_by_hand() -> None:
    """k = 1: delta(i, j) is 0 for keys behind the query, else 1. Of P = (sqrt(3) ln 3, 0) queries of 1 get scores of ln 3
    behind them: weights (1, 3, 3) / 7, (1, 1, 3) / 5, (1, 1, 1) / 3. Keys of 1 ask from the other side, delta(j, i) is 0
    before the query: (1, 1, 1) / 3, (3, 1, 1) / 5, (3, 3, 1) / 7. Scores of contents are over sqrt(3) too."""
    p = [sqrt(3) * log(3), 0.0]
    asked = plain(Disentangled(backend="reference", clip=1), **{"w_q.bias": 1.0, "w_kr.weight": 1.0, "p": p})
    assert outputs(asked) == pytest.approx([9 / 7, 7 / 5, 1.0])
    asking = plain(Disentangled(backend="reference", clip=1), **{"w_k.bias": 1.0, "w_qr.weight": 1.0, "p": p})
    assert outputs(asking) == pytest.approx([1.0, 3 / 5, 5 / 7])
    contents = plain(Disentangled(backend="reference", clip=1), **{"w_q.bias": sqrt(3), "w_k.weight": log(2)})
    assert outputs(contents) == pytest.approx([10 / 7] * 3), "weights (1, 2, 4) / 7"


@pytest.mark.parametrize("kind", KINDS)
def test_distances_alone_are_known(kind: str) -> None:
    """Padding in front moves a text on, and changes nothing that it sees; other distances do."""
    layer, (x, _) = layer_of(kind), texts([6])
    moved, real = torch.cat((x[:, :3], x), 1), torch.arange(9)[None] >= 3
    torch.testing.assert_close(layer(moved, real=real)[:, 3:], layer(x))
    assert not torch.allclose(layer(x[:, [0, 1, 2, 4, 3, 5]])[:, 5], layer(x)[:, 5])


@pytest.mark.parametrize("factory", [Shaw(backend="reference", clip=2), Disentangled(backend="reference", clip=2)])
def test_from_the_clip_on_all_distances_are_one(factory: Any) -> None:
    """Before the last token, and behind the first: distances of 8 and 2 are exchanged, then 2 and 1."""
    layer, (x, _) = made(factory), texts([9])
    for query, far, edge, near in ((8, 0, 6, 7), (0, 8, 2, 1)):
        for a, b, same in ((far, edge, True), (edge, near, False)):
            other = x.clone()
            other[:, [a, b]] = x[:, [b, a]]
            assert torch.allclose(layer(other)[0, query], layer(x)[0, query]) == same


@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_neighbours_matter(kind: str) -> None:
    layer = layer_of(kind)
    x, real = texts([9, 5, 1])
    together, junk = (layer(part, real=real) for part in (x, x.masked_fill(~real[..., None], torch.nan)))
    assert together.isfinite().all() and junk.isfinite().all()
    for b, length in enumerate([9, 5, 1]):
        alone = layer(x[b : b + 1, :length])[0]
        torch.testing.assert_close(together[b, :length], alone)
        torch.testing.assert_close(junk[b, :length], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_causal_layers_see_nothing_that_follows(kind: str) -> None:
    assert reached(layer_of(kind, causal=True), texts([7])[0], 3) == [3, 4, 5, 6]


@pytest.mark.parametrize("kind", ["shaw", "disentangled", "t5"])
def test_a_text_without_real_tokens_sees_nothing(kind: str) -> None:
    """Zeros, which W_o makes its bias, and no gradient but of that."""
    layer, (x, _) = layer_of(kind), texts([3])
    out = layer(x, real=torch.zeros(1, 3, dtype=torch.bool))
    torch.testing.assert_close(out, layer.w_o.bias.expand_as(out))
    out.sum().backward()
    assert all(
        p.grad is None or not p.grad.any() for name, p in layer.named_parameters() if not name.startswith("w_o.bias")
    )


def test_values_and_their_positions_are_dropped_together() -> None:
    """Values of 1 and positions of -1 make 0, whatever is dropped; with either alone something is."""
    layer, (x, _) = layer_of("shaw", dropout=0.5), texts([6])
    layer.w_v.weight.data.zero_()
    layer.w_v.bias.data.fill_(1.0)
    layer.a_v.data.fill_(-1.0)
    torch.testing.assert_close(layer.train()(x), layer.w_o.bias.expand(1, 6, 12))
    layer.a_v.data.zero_()
    assert not torch.allclose(layer(x), layer.eval()(x))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_16_bits(kind: str) -> None:
    layer, (x, real) = layer_of(kind), texts([20, 7])
    for parameter in layer.parameters():
        parameter.data.mul_(0.3)
    x = x.masked_fill(~real[..., None], 0.0).bfloat16()
    exact, got = layer(x.double(), real=real)[real], layer.bfloat16()(x, real=real)[real]
    assert got.dtype == torch.bfloat16 and (got.double() - exact).norm() <= 0.03 * exact.norm()


@pytest.mark.parametrize("kind", ["shaw, keys alone", "disentangled"])
def test_scores_of_positions_in_16_bits_are_fp32(kind: str) -> None:
    """So that a gradient is summed in fp32 over all pairs of one distance; where a query sees 998 keys at the clip, each with
    a gradient of 1 / 2, bf16 would stop at 128 on a machine that adds them one by one."""
    layer = layer_of(kind).bfloat16()
    q, k = torch.ones(1, 3, 1, 4).bfloat16(), torch.ones(1, 3, 1000, 4).bfloat16()
    found = layer.score_bias(q, k)
    assert found.dtype == torch.float32
    if kind == "shaw, keys alone":
        found.sum().backward()
        torch.testing.assert_close(layer.a_k.grad[0].float(), torch.full((4,), 3 * 998 / 2), rtol=0.01, atol=0)


def test_what_layers_share() -> None:
    """P and T5's table are one of all layers that a factory makes from layer 0 on; Shaw's vectors are each layer's own."""
    of_p, of_table = Disentangled(backend="reference", clip=5), Biased(backend="reference", kind="t5")
    first, second = (of_p(12, 3, n, 2) for n in (0, 1))
    again = of_p(12, 3, 0, 2)
    assert isinstance(first, DisentangledAttention) and first.p is second.p and first.p is not again.p
    assert first.p.shape == (10, 12) and first.w_kr is not second.w_kr
    assert of_table(12, 3, 0, 2).by_distance is of_table(12, 3, 1, 2).by_distance
    of_shaw = Shaw(backend="reference")
    one, two = (of_shaw(12, 3, n, 2) for n in (0, 1))
    assert one.a_k is not two.a_k and one.a_k.shape == (33, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shaw(backend="reference", clip=-1), "clip: got -1, expected 0 or more"),
        (lambda: Disentangled(backend="reference", clip=0), "clip: got 0, expected 1 or more"),
        (lambda: Biased(backend="reference", kind="rotary"), "kind: got 'rotary', expected alibi or t5"),  # type: ignore[arg-type]
        (
            lambda: Shaw(backend="reference", rotary=True),
            "got True, False, expected False for Shaw, which has positions",
        ),
        (lambda: Biased(backend="reference", kind="t5", relative=True), "got False, True, expected False for Biased"),
        (lambda: Disentangled(backend="reference")(12, 3, 1, 2), "layer: got 1 first, expected 0"),
        (
            lambda: Biased(backend="reference", kind="t5", buckets=3)(12, 3, 0, 1)(texts([2])[0].float()),
            "T5Bias: got a t",
        ),
        (lambda: layer_of("shaw", "sdpa")(texts([2])[0]), "backend 'sdpa' gives no weights and no lse; these can: ref"),
        (lambda: layer_of("disentangled").step(texts([1])[0], None), "got a single position, expected whole sequences"),
        (
            lambda: Full(backend="reference", rotary_scaling=RotaryScaling("ntk", 2)),
            "rotary_scaling: got RotaryScaling.kind='ntk', factor=2., expected None without rotary=True",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
