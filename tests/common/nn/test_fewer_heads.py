"""Fewer heads of keys and values from more (Ainslie et al. 2023, section 2.1): by hand, and where nothing may change."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from common.nn.fewer_heads import How, converted, keys_and_values, start_from_more_heads
from common.nn.long import LanguageModel
from common.nn.multihead import MultiHead
from common.nn.sparse import Full, Windowed
from common.nn.transformer import DecoderOnly
from tests.common.nn.tiny import PAD, prefixes, sentences, transformer


def language(kv_heads: int | None, seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    attention = Full(backend="reference", causal=True, kv_heads=kv_heads, **options)
    return LanguageModel(17, 2, 8, 4, 12, attention=attention, std=0.5).double().eval()


def decoder_only(kv_heads: int | None, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    many = 4 if kv_heads is None else kv_heads
    made = DecoderOnly(17, 2, 8, 4, many, 12, backend="reference", positions="rotary", std=0.5)
    return made.double().eval()


def translator(kv_heads: int | None, seed: int = 0) -> nn.Module:
    return transformer(seed, kv_heads=kv_heads, linear_bias=True)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "translation": translator,
    "decoder-only": decoder_only,
    "language": language,
    "language, relative": lambda kv_heads, seed=0: language(kv_heads, seed, relative=True),
}


def outputs(model: nn.Module) -> Tensor:
    source, target = sentences([5, 3]), prefixes([4, 6])
    if hasattr(model, "encoder"):
        return model(source, source != PAD, target, target != PAD)
    return model(source)


def module(kv_heads: int, **settings: Any) -> MultiHead:
    return MultiHead(1, 4, kv_heads=kv_heads, head_dim_k=2, head_dim_v=1, backend="reference", **settings)


@pytest.mark.parametrize(
    ("kv_heads", "how", "keys", "values"),
    [
        (2, "mean", [1, 2, 5, 6], [5, 9]),
        (2, "first", [0, 1, 4, 5], [4, 8]),
        (1, "mean", [3, 4], [7]),
        (1, "first", [0, 1], [4]),
    ],
)
def test_four_heads_by_hand(kv_heads: int, how: How, keys: list[int], values: list[int]) -> None:
    """Keys of two numbers: heads (0, 1), (2, 3), (4, 5) and (6, 7); values of one: 4, 6, 8 and 10. Biases are a hundred
    times that."""
    given, wanted = module(4), module(kv_heads)
    for linear, rows in ((given.w_k, torch.arange(8.0)), (given.w_v, torch.tensor([4.0, 6, 8, 10]))):
        linear.weight.data.copy_(rows[:, None])
        linear.bias.data.copy_(100 * rows)
    found = converted(given.state_dict(), wanted, how)
    for name, rows in (("w_k", keys), ("w_v", values)):
        assert found[f"{name}.weight"].flatten().tolist() == rows
        assert found[f"{name}.bias"].tolist() == [100 * row for row in rows]
    assert all(torch.equal(found[name], given.state_dict()[name]) for name in found if name.startswith(("w_q", "w_o")))


@pytest.mark.parametrize("how", get_args(How))
@pytest.mark.parametrize("kind", MODELS)
def test_with_as_many_heads_nothing_changes(kind: str, how: How) -> None:
    given, other = MODELS[kind](None), MODELS[kind](4, seed=1)
    assert not torch.equal(outputs(given), outputs(other))
    start_from_more_heads(other, given.state_dict(), how=how)
    assert torch.equal(outputs(given), outputs(other))


def with_equal_heads(model: nn.Module, group: int) -> nn.Module:
    """Every `group` heads of keys and values, side by side, are the first of them."""
    for name in keys_and_values(model):
        parameter = model.get_parameter(name)
        heads = parameter.data.unflatten(0, (4 // group, group, -1))
        heads.copy_(heads[:, :1].clone().expand_as(heads))
    return model


@pytest.mark.parametrize("how", ["mean", "first"])
@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("kind", MODELS)
def test_heads_that_are_equal_become_one_and_the_model_stays(kind: str, kv_heads: int, how: How) -> None:
    given, fewer = with_equal_heads(MODELS[kind](None), 4 // kv_heads), MODELS[kind](kv_heads, seed=1)
    start_from_more_heads(fewer, given.state_dict(), how=how)
    torch.testing.assert_close(outputs(fewer), outputs(given))
    apart = MODELS[kind](None)
    start_from_more_heads(fewer, apart.state_dict(), how=how)
    assert not torch.allclose(outputs(fewer), outputs(apart)), "other heads are not what their mean is"


@pytest.mark.parametrize("kind", MODELS)
def test_random_heads_are_those_that_the_model_drew(kind: str) -> None:
    given, fewer = MODELS[kind](None), MODELS[kind](2, seed=1)
    drawn, names = {name: t.clone() for name, t in fewer.state_dict().items()}, keys_and_values(fewer)
    start_from_more_heads(fewer, given.state_dict(), how="random")
    loaded = fewer.state_dict()
    assert names and all(torch.equal(loaded[name], drawn[name]) for name in names)
    assert all(torch.equal(loaded[name], t) for name, t in given.state_dict().items() if name not in names)


def test_attention_that_keeps_its_heads_is_copied() -> None:
    """The paper converts no self-attention of encoders (section 3.1)."""
    given = translator(None)
    fewer = transformer(1, kv_heads=1, grouped=["decoder", "cross"], linear_bias=True)
    for how in get_args(How):
        start_from_more_heads(fewer, given.state_dict(), how=how)
        encoders = [name for name in given.state_dict() if name.startswith("encoder.")]
        assert encoders and all(torch.equal(fewer.state_dict()[name], given.state_dict()[name]) for name in encoders)


def test_two_steps_are_one() -> None:
    given, two, one, at_once = (language(kv_heads, seed) for seed, kv_heads in enumerate((None, 2, 1, 1)))
    start_from_more_heads(two, given.state_dict(), how="mean")
    start_from_more_heads(one, two.state_dict(), how="mean")
    start_from_more_heads(at_once, given.state_dict(), how="mean")
    torch.testing.assert_close(outputs(one), outputs(at_once))


def test_what_does_not_fit_is_refused_and_nothing_is_loaded() -> None:
    given, fewer = language(None).state_dict(), language(2, seed=1)
    before = {name: t.clone() for name, t in fewer.state_dict().items()}
    key = "trunk.blocks.1.attention.w_k.weight"
    for state, message in (
        ({name: t for name, t in given.items() if name != key}, rf"missing \['{key}'\], too many \[\]"),
        (given | {"more": torch.zeros(1)}, r"too many \['more'\], of another shape \[\]"),
        (given | {key: torch.zeros(8, 9)}, rf"of another shape \['{key}'\]"),
        (given | {key: torch.zeros(6, 8)}, rf"of another shape \['{key}'\]"),
        (language(1).state_dict(), rf"of another shape \[.*'{key}'"),
    ):
        with pytest.raises(ValueError, match=f"weights of a model with more heads: .*{message}"):
            start_from_more_heads(fewer, state, how="mean")
    with pytest.raises(ValueError, match="how: got 'last', expected one of mean, first, random"):
        start_from_more_heads(fewer, given, how="last")  # type: ignore[arg-type]
    assert all(torch.equal(fewer.state_dict()[name], t) for name, t in before.items())


def test_other_attention_has_no_heads_to_group() -> None:
    attention = Windowed(backend="chunked", window=2, causal=True)
    assert keys_and_values(LanguageModel(17, 1, 8, 4, 12, attention=attention)) == {}
