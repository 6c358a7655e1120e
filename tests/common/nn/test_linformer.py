"""Linformer's layer against its equation, and what must not leak into it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.nn.linformer import Linformer, LinformerAttention
from common.nn.long import MaskedModel
from tests.common.nn.sparse.spec import compare, made, texts

LONGEST = 12


def layer_of(**settings: Any) -> Any:
    return made(Linformer(**{"backend": "reference", "rank": 4, "max_length": LONGEST} | settings))


def rows(layer: Any, which: int, x: Tensor, real: Tensor, h: int, b: int) -> Tensor:
    """What keys (0) or values (1) of a head become, of the real tokens of one sample alone."""
    part, projection = slice(h * layer.head_dim, (h + 1) * layer.head_dim), layer.of_keys_and_values[which]
    own = (layer.w_k, layer.w_v)[which](x[b, real[b]])[:, part]
    weight = projection.weight
    if hasattr(projection, "size"):
        size, found = projection.size, []
        for start in range(0, len(own), size):
            some = own[start : start + size]
            scale = torch.ones(size, dtype=x.dtype) if weight is None else weight[min(h, len(weight) - 1)]
            found.append((some * scale[: len(some), None]).sum(0) / len(some))
        return torch.stack(found)
    return weight[min(h, len(weight) - 1)][:, : len(own)] @ own


def equation_7(layer: Any, x: Tensor, real: Tensor) -> Tensor:
    """softmax(Q (E K)^T / sqrt(d)) F V."""
    out = []
    for b in range(len(x)):
        heads = []
        for h in range(layer.heads):
            q = layer.w_q(torch.where(real[b, :, None], x[b], 0.0))[:, h * layer.head_dim : (h + 1) * layer.head_dim]
            k, v = (rows(layer, which, x, real, h, b) for which in (0, 1))
            heads.append((q @ k.mT / layer.head_dim**0.5).softmax(-1) @ v)
        out.append(layer.w_o(torch.cat(heads, -1)))
    return torch.stack(out)


@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value", "layerwise"])
@pytest.mark.parametrize("projection", ["linear", "convolution", "pooling"])
@pytest.mark.parametrize("lengths", [[12, 7, 1], [9, 4, 8]])
def test_outputs_and_gradients(sharing: Any, projection: Any, lengths: list[int]) -> None:
    layer, (x, real) = layer_of(sharing=sharing, projection=projection), texts(lengths)
    x.requires_grad_()
    compare(layer, equation_7(layer, x, real), x, real)


@pytest.mark.parametrize(("sharing", "matrices"), [("none", 6), ("headwise", 2), ("key_value", 1), ("layerwise", 1)])
def test_matrices_of_a_layer_by_what_is_shared(sharing: Any, matrices: int) -> None:
    """Section 4: of 3 heads, E_i and F_i each; E and F; E; E."""
    layer = layer_of(sharing=sharing)
    assert isinstance(layer, LinformerAttention)
    assert sum(p.numel() for p in layer.of_keys_and_values.parameters()) == matrices * 4 * LONGEST


@pytest.mark.parametrize(("sharing", "matrices"), [("none", 24), ("headwise", 8), ("key_value", 4), ("layerwise", 1)])
def test_matrices_of_a_model_by_what_is_shared(sharing: Any, matrices: int) -> None:
    """Section 4: 12 layers of 12 heads have 288, 24, 12 and 1; these 4 layers of 3 heads 24, 8, 4 and 1. A second model of
    the same factory has its own."""
    factory = Linformer(backend="reference", rank=4, max_length=LONGEST, sharing=sharing)
    models = [
        MaskedModel(11, 4, 12, 3, 16, attention=factory, positions="learned", max_length=LONGEST) for _ in range(2)
    ]
    sizes = {id(p): p.numel() for name, p in models[0].named_parameters() if "of_keys_and_values" in name}
    assert sum(sizes.values()) == matrices * 4 * LONGEST
    assert not {id(p) for p in models[0].parameters()} & {id(p) for p in models[1].parameters()}
    models[0](torch.ones(1, 5, dtype=torch.int64)).sum().backward()
    assert all(p.grad is not None for name, p in models[0].named_parameters() if "of_keys" in name)


def test_a_model_with_one_matrix_is_saved_and_loaded() -> None:
    factory = Linformer(backend="reference", rank=4, max_length=LONGEST, sharing="layerwise")
    first, second = (
        MaskedModel(11, 2, 12, 3, 16, attention=factory, positions="learned", max_length=LONGEST) for _ in "ab"
    )
    second.load_state_dict(first.state_dict())
    tokens = torch.arange(5)[None]
    assert torch.equal(first(tokens), second(tokens))


@pytest.mark.parametrize("projection", ["linear", "convolution", "pooling"])
@pytest.mark.parametrize("worst", [torch.nan, torch.inf, 1e6])
def test_padding_does_not_leak_whatever_it_holds(projection: Any, worst: float) -> None:
    layer, (x, real) = layer_of(projection=projection), texts([7])
    alone = layer(x)
    for more in (1, 2, 5):
        padded = nn.functional.pad(x, (0, 0, 0, more), value=worst)
        out = layer(padded, real=nn.functional.pad(real, (0, more)))
        torch.testing.assert_close(out[:, :7], alone, atol=1e-12, rtol=1e-10)


def test_the_last_token_is_seen_by_the_first() -> None:
    """Why a causal form is refused."""
    layer, (x, _) = layer_of(), texts([LONGEST])
    other = x.clone()
    other[0, -1] += 1
    assert not torch.allclose(layer(other)[0, 0], layer(x)[0, 0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"causal": True}, "causal: got True, expected False: each row of E mixes keys of the whole sequence"),
        ({"sharing": "some"}, "sharing: got 'some', expected one of none, headwise"),
        ({"projection": "sum"}, "projection: got 'sum'"),
        ({"rank": 0}, "rank: got 0, expected 1 to 12"),
        ({"rank": 13}, "rank: got 13"),
        ({"rank": 5, "projection": "pooling"}, "rank: got 5, expected a divisor of 12"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer_of(**settings)


def test_longer_texts_and_layers_out_of_order_are_refused() -> None:
    x, _ = texts([LONGEST + 1])
    with pytest.raises(
        ValueError, match="got 13 tokens, expected at most max_length 12: there is no column of E for more"
    ):
        layer_of()(x)
    with pytest.raises(ValueError, match="layer: got 1 first, expected 0"):
        Linformer(backend="reference", rank=4, max_length=LONGEST, sharing="layerwise")(12, 3, 1, 2)
