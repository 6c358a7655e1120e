"""Multi-head latent attention against the paper's equations written out, and its absorbed form against the plain one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from common.nn.latent import Latent, LatentAttention
from tests.common.nn.sparse.spec import compare, made, reached, texts, turned

KINDS: dict[str, dict[str, Any]] = {
    "queries of x": {},
    "latent queries": {"query_latent": 7},
    "heads apart from d_model": {"head_dim": 3, "query_latent": 5},
}


def factory(kind: str = "latent queries", **settings: Any) -> Latent:
    given = {"backend": "reference", "latent": 5, "rotary_dim": 4} | KINDS[kind] | settings
    return Latent(**given)


def layer_of(kind: str = "latent queries", **settings: Any) -> LatentAttention:
    layer = made(factory(kind, **settings))
    assert isinstance(layer, LatentAttention)
    return layer


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean() + 1e-6).sqrt() * weight


def written_out(layer: LatentAttention, x: Tensor, real: Tensor, causal: bool) -> Tensor:
    """Equations 9 to 19, token by token and head by head."""
    rows = [[torch.zeros(x.shape[2], dtype=x.dtype) for _ in range(x.shape[1])] for _ in range(len(x))]
    d_h, d_r = layer.head_dim, layer.rotary_dim
    for b in range(len(x)):
        alive = real[b].nonzero().flatten().tolist()
        c_kv = {t: normed(layer.w_dkv.weight @ x[b, t], layer.kv_norm.weight) for t in alive}
        for t in alive:
            c_q = x[b, t]
            if layer.w_dq is not None and layer.q_norm is not None:
                c_q = normed(layer.w_dq.weight @ c_q, layer.q_norm.weight)
            heads = []
            for i in range(layer.heads):
                of_head = slice(i * d_h, (i + 1) * d_h)
                q_r = turned(layer.w_qr.weight[i * d_r : (i + 1) * d_r] @ c_q, t)
                q = torch.cat((layer.w_uq.weight[of_head] @ c_q, q_r))
                scores, values = [], []
                for j in alive:
                    if causal and j > t:
                        continue
                    k_r = turned(layer.w_kr.weight @ x[b, j], j)
                    scores.append(q @ torch.cat((layer.w_uk.weight[of_head] @ c_kv[j], k_r)) / (d_h + d_r) ** 0.5)
                    values.append(layer.w_uv.weight[of_head] @ c_kv[j])
                heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            rows[b][t] = layer.w_o.weight @ torch.cat(heads)
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind: str, causal: bool, backend: str) -> None:
    layer = layer_of(kind, causal=causal, backend=backend)
    x, real = texts([8, 4, 1])
    compare(layer, written_out(layer, x.requires_grad_(), real, causal), x, real)


def absorbed(layer: LatentAttention, x: Tensor) -> Tensor:
    memory, found = None, []
    for t in range(x.shape[1]):
        out, memory = layer.step(x[:, t : t + 1], memory)
        found.append(out)
    return torch.cat(found, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_absorbed_form_is_the_plain_one(kind: str) -> None:
    """To rounding: in fp64 nothing is left of it, and in fp32 it is no further from fp64 than twice the plain form is."""
    layer, (x, _) = layer_of(kind, causal=True).eval(), texts([20, 20])
    with torch.no_grad():
        exact = layer(x)
        torch.testing.assert_close(absorbed(layer, x), exact, rtol=0, atol=1e-11)
        layer, x = layer.float(), x.float()
        errors = [(form.double() - exact).norm() for form in (absorbed(layer, x), layer(x))]
    assert errors[0] < 2 * errors[1] < 1e-3 * exact.norm()


def test_of_a_token_only_the_latent_and_the_rotary_key_are_kept() -> None:
    layer, (x, _) = layer_of(causal=True), texts([6, 6])
    memory = None
    for t in range(6):
        _, memory = layer.step(x[:, t : t + 1], memory)
    assert memory is not None and memory.seen == 6
    c, k_r = layer.compressed(x, torch.arange(6))
    torch.testing.assert_close(memory.values[:, 0], c.detach())
    torch.testing.assert_close(memory.keys[:, 0], k_r.detach())
    assert not memory.values.requires_grad


def test_one_text_goes_on_in_two_ways() -> None:
    layer, (x, _) = layer_of(causal=True), texts([5])
    _, memory = layer.step(x[:, :1], None)
    for second in (1, 2, 1):
        out, _ = layer.step(x[:, second : second + 1], memory)
        torch.testing.assert_close(out, layer(x[:, [0, second]])[:, 1:])


@pytest.mark.parametrize("kind", KINDS)
def test_causal_layers_see_nothing_that_follows(kind: str) -> None:
    layer, (x, _) = layer_of(kind, causal=True), texts([9])
    assert reached(layer, x, 4) == [4, 5, 6, 7, 8]
    assert reached(layer_of(kind), x, 4) == list(range(9))


@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_neighbours_matter(kind: str) -> None:
    layer = layer_of(kind)
    x, real = texts([11, 6, 1])
    together, junk = (layer(part, real=real) for part in (x, x.masked_fill(~real[..., None], torch.nan)))
    assert together.isfinite().all() and junk.isfinite().all()
    for b, length in enumerate([11, 6, 1]):
        alone = layer(x[b : b + 1, :length])[0]
        torch.testing.assert_close(together[b, :length], alone)
        torch.testing.assert_close(junk[b, :length], alone)


def test_where_positions_are_counted_from_makes_no_difference() -> None:
    layer, (x, _) = layer_of(), texts([6])
    moved, real = torch.cat((x[:, :3], x), 1), torch.arange(9)[None] >= 3
    torch.testing.assert_close(layer(moved, real=real)[:, 3:], layer(x))


def test_parameters_of_deepseek_v2() -> None:
    """Section 3.1.2: d 5120, 128 heads of 128, d_c 512, d_c' 1536, d_h^R 64."""
    with torch.device("meta"):
        layer = factory(latent=512, query_latent=1536, rotary_dim=64, head_dim=128)(5120, 128, 0, 60)
    keys = 5120 * 512 + 512 + 2 * 512 * 128 * 128 + 5120 * 64
    queries = 5120 * 1536 + 1536 + 1536 * 128 * (128 + 64)
    assert sum(p.numel() for p in layer.parameters()) == keys + queries + 128 * 128 * 5120


def test_weights_that_are_dropped_are_scaled_in_training_alone() -> None:
    layer, (x, _) = layer_of(dropout=0.5), texts([6])
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer_of()(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: factory(latent=0), "latent: got 0, expected 1 or more"),
        (lambda: factory(query_latent=0), "query_latent: got 0, expected 1 or more"),
        (lambda: factory(rotary_dim=3), "rotary_dim: got 3, expected an even number, 2 or more"),
        (lambda: factory(rotary_dim=0), "rotary_dim: got 0, expected an even number"),
        (lambda: factory(linear_bias=True), "linear_bias: got True, expected False"),
        (lambda: factory(cache="fp8"), "cache: got 'fp8', expected None"),
        (lambda: layer_of(backend="fast"), "backend: got 'fast', expected one of reference"),
        (lambda: factory()(13, 3, 0, 1), "heads: got 3, expected a divisor of d_model 13"),
        (lambda: layer_of().step(torch.zeros(1, 1, 12).double(), None), "got a single position, expected whole"),
        (lambda: layer_of(backend="sdpa")(torch.zeros(1, 2, 12).double()), "one head_dim for q, k and v, not 8 and 4"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
