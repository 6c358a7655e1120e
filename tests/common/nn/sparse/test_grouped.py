"""Full attention with fewer heads of keys and values, and with rotary positions, spelled out."""

from typing import Any

import pytest
import torch

from common.attention import Causal
from common.nn.multihead import MultiHead
from common.nn.sparse import Full
from tests.common.nn.sparse.spec import compare, made, reached, spelled_out, texts

KINDS: dict[str, dict[str, Any]] = {
    "multi-query": {"kv_heads": 1},
    "grouped": {"kv_heads": 2},
    "multi-query, relative": {"kv_heads": 1, "relative": True, "relative_size": 6},
    "grouped, relative": {"kv_heads": 2, "relative": True, "relative_size": 6},
    "rotary": {"rotary": True},
    "grouped, rotary": {"kv_heads": 2, "rotary": True},
}


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind: str, causal: bool, backend: str) -> None:
    """Six heads of two: query heads 0 to 2 read the first of two key heads, 3 to 5 the second."""
    if backend == "sdpa" and "relative" in KINDS[kind]:
        backend = "chunked"  # sdpa takes no keys longer than values
    layer = made(Full(backend=backend, causal=causal, **KINDS[kind]), heads=6)
    x, real = texts([9, 5, 1])
    compare(layer, spelled_out(layer, x.requires_grad_(), real, lambda h, i, j: not causal or j <= i), x, real)


def test_as_many_heads_as_queries_have_is_what_is_made_without_saying_so() -> None:
    plain, (x, real) = made(Full(backend="chunked")), texts([7, 3])
    for kv_heads in (3, None):
        layer = made(Full(backend="chunked", kv_heads=kv_heads))
        assert layer.state_dict().keys() == plain.state_dict().keys()
        assert torch.equal(layer(x, real=real), plain(x, real=real))


def test_it_is_multi_head_attention_of_the_translation_models() -> None:
    layer, (x, _) = made(Full(backend="reference", causal=True, kv_heads=2, rotary=True), heads=6), texts([8])
    other = MultiHead(12, 6, kv_heads=2, backend="reference", rotary=True).double()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), other(x, mask=Causal()))


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_parameter_count(kv_heads: int) -> None:
    """W_k and W_v are d_model x kv_heads * head_dim; heads of five apart from d_model / heads."""
    layer = Full(backend="chunked", kv_heads=kv_heads, head_dim=5)(12, 6, 0, 1)
    inner, of_keys = 6 * 5, kv_heads * 5
    assert sum(p.numel() for p in layer.parameters()) == 12 * (2 * inner + 2 * of_keys) + inner + 2 * of_keys + 12


@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_neighbours_matter(kind: str) -> None:
    layer = made(Full(backend="chunked", **KINDS[kind]), heads=6)
    x, real = texts([11, 6, 1])
    together, junk = (layer(part, real=real) for part in (x, x.masked_fill(~real[..., None], torch.nan)))
    assert together.isfinite().all() and junk.isfinite().all()
    for b, length in enumerate([11, 6, 1]):
        alone = layer(x[b : b + 1, :length])[0]
        torch.testing.assert_close(together[b, :length], alone)
        torch.testing.assert_close(junk[b, :length], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_causal_layers_see_nothing_that_follows(kind: str) -> None:
    layer, (x, _) = made(Full(backend="reference", causal=True, **KINDS[kind]), heads=6), texts([9])
    assert reached(layer, x, 4) == [4, 5, 6, 7, 8]


def test_rotary_positions_know_distances_alone() -> None:
    """Padding in front moves a text on, and changes nothing that it sees; other distances do."""
    layer, (x, _) = made(Full(backend="reference", rotary=True)), texts([6])
    moved, real = torch.cat((x[:, :3], x), 1), torch.arange(9)[None] >= 3
    torch.testing.assert_close(layer(moved, real=real)[:, 3:], layer(x))
    assert not torch.allclose(layer(x[:, [1, 0, 2, 3, 4, 5]])[:, 5], layer(x)[:, 5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_heads": 4}, "kv_heads: got 4, expected a divisor of heads 6"),
        ({"kv_heads": 0}, "kv_heads: got 0, expected a divisor of heads 6"),
        ({"kv_heads": 12}, "kv_heads: got 12, expected a divisor of heads 6"),
        ({"head_dim": 3, "rotary": True}, "head_dim: got 3, expected an even one for rotary positions"),
        ({"relative": True, "rotary": True}, "rotary: got True, expected False with relative=True"),
        ({"cache": "int4"}, "cache: got 'int4', expected None .as computed., bf16 or int8"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Full(backend="chunked", **settings)(12, 6, 0, 1)
