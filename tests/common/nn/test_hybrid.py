"""Layers in turns: which they are, that their steps are the whole text, and a window that writes token by token."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from torch import nn

from common.attention.cache import Remembered
from common.nn.hybrid import Hybrid, Sliding, SlidingAttention
from common.nn.long import LanguageModel, MaskedModel
from common.nn.positioned import Disentangled, DisentangledAttention
from common.nn.selective import Selective, SelectiveLayer, State
from common.nn.sparse import BigBird, Factory, Full, Windowed
from common.nn.sparse.full import FullAttention
from common.nn.sparse.windowed import WindowedAttention
from tests.common.nn.sparse.spec import compare, made, reached, spelled_out, texts, window

WINDOW, STATE, ALL = (
    Sliding(backend="reference", window=3),
    Selective(state=3),
    Full(backend="reference", causal=True),
)
MIXED: dict[str, list[Factory]] = {
    "window, state": [WINDOW, STATE],
    "state, window": [STATE, WINDOW],
    "all three": [WINDOW, STATE, ALL],
    "two states a window": [STATE, STATE, Sliding(backend="reference", window=2, rotary=True, kv_heads=1)],
}


def language_model(attention: Factory, layers: int = 5) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(11, layers, 12, 3, 16, attention=attention)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def attentions(model: Any) -> list[Any]:
    return [block.attention for block in model.trunk.blocks]


def test_each_layer_is_of_its_kind() -> None:
    expected = {
        "window, state": [SlidingAttention, SelectiveLayer, SlidingAttention, SelectiveLayer, SlidingAttention],
        "state, window": [SelectiveLayer, SlidingAttention, SelectiveLayer, SlidingAttention, SelectiveLayer],
        "all three": [SlidingAttention, SelectiveLayer, FullAttention, SlidingAttention, SelectiveLayer],
        "two states a window": [SelectiveLayer, SelectiveLayer, SlidingAttention, SelectiveLayer, SelectiveLayer],
    }
    for name, kinds in MIXED.items():
        assert [type(layer) for layer in attentions(language_model(Hybrid(kinds=kinds)))] == expected[name]
    assert [type(layer) for layer in attentions(language_model(Hybrid(kinds=[ALL])))] == [FullAttention] * 5


@pytest.mark.parametrize("kinds", MIXED.values(), ids=MIXED.keys())
def test_steps_give_what_the_whole_text_gives(kinds: list[Factory]) -> None:
    model, found = language_model(Hybrid(kinds=kinds)), []
    memory: Any = None
    tokens = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1))
    for t in range(12):
        logits, memory = model.step(tokens[:, t], memory)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), model(tokens), atol=1e-10, rtol=1e-10)
    assert len(memory.layers) == 5
    for layer, of_layer in zip(attentions(model), memory.layers, strict=True):
        if isinstance(layer, SlidingAttention):
            assert of_layer.keys.shape[2] == layer.window + 1 and of_layer.seen == 12
        else:
            assert isinstance(of_layer, State if isinstance(layer, SelectiveLayer) else Remembered)


def test_schedules_go_over_the_layers_of_one_place() -> None:
    """Six layers, every second one a window, of 1, 3 and 5 keys, and none of layers that are in between."""
    growing = Windowed(backend="reference", causal=True, window=1, top_window=5)
    layers = attentions(language_model(Hybrid(kinds=[growing, STATE]), layers=6))
    assert [layer.window for layer in layers[::2] if isinstance(layer, WindowedAttention)] == [1, 3, 5]
    # seven: the first place has four of them, the second three
    twice = attentions(language_model(Hybrid(kinds=[growing, growing]), layers=7))
    assert [layer.window for layer in twice[::2]] == [1, 2, 4, 5] and [layer.window for layer in twice[1::2]] == [
        1,
        3,
        5,
    ]


def test_what_layers_share_they_share_in_any_place() -> None:
    """P of DeBERTa's layers, which asks for a layer 0."""
    shared = Disentangled(backend="reference", causal=True, clip=3)
    layers = attentions(language_model(Hybrid(kinds=[STATE, shared]), layers=4))
    assert isinstance(layers[1], DisentangledAttention) and isinstance(layers[3], DisentangledAttention)
    assert layers[1].p is layers[3].p


def test_both_ways_too() -> None:
    """An encoder of windows and full attention in turns."""
    kinds = [Windowed(backend="reference", window=2), Full(backend="reference")]
    model = MaskedModel(11, 3, 12, 3, 16, attention=Hybrid(kinds=kinds))
    assert [type(layer) for layer in attentions(model)] == [WindowedAttention, FullAttention, WindowedAttention]
    real = torch.arange(6)[None] < torch.tensor([6, 4])[:, None]
    assert model(torch.zeros(2, 6, dtype=torch.int64), real).shape == (2, 6, 11)


def test_a_list_in_a_configuration() -> None:
    of_window = {"_target_": "common.nn.hybrid.Sliding", "backend": "reference", "window": 3}
    of_state = {"_target_": "common.nn.selective.Selective", "state": 3}
    hybrid: dict[str, Any] = {"_target_": "common.nn.hybrid.Hybrid", "_convert_": "all", "kinds": [of_window, of_state]}
    sizes = {"vocabulary": 11, "layers": 3, "d_model": 12, "heads": 3, "d_ff": 16}
    model: Any = instantiate({"_target_": "common.nn.long.LanguageModel", "attention": hybrid, **sizes})
    assert [type(layer) for layer in attentions(model)] == [SlidingAttention, SelectiveLayer, SlidingAttention]
    del hybrid["_convert_"]  # and a list of what hydra wraps is not taken for one of factories
    with pytest.raises(InstantiationException, match="a configuration of them needs _convert_: all"):
        instantiate({"_target_": "common.nn.long.LanguageModel", "attention": hybrid, **sizes})


SLIDING: dict[str, dict[str, Any]] = {
    "plain": {},
    "one key head": {"kv_heads": 1},
    "rotary": {"rotary": True},
    "relative": {"relative": True},
    "chunked": {"backend": "chunked"},
}


@pytest.mark.parametrize("width", [0, 3, 30])
@pytest.mark.parametrize("kind", SLIDING)
def test_a_window_spelled_out(kind: str, width: int) -> None:
    layer = made(Sliding(**{"backend": "reference", "window": width, **SLIDING[kind]}))
    x, real = texts([11, 5, 1])
    compare(layer, spelled_out(layer, x.requires_grad_(), real, window(width, 0)), x, real)


@pytest.mark.parametrize("width", [0, 2, 30])
@pytest.mark.parametrize("kind", SLIDING)
def test_a_window_step_by_step(kind: str, width: int) -> None:
    """Further than twice the window, where what is kept is copied."""
    layer: Any = made(Sliding(**{"backend": "reference", "window": width, **SLIDING[kind]}))
    (x, _), memory, found = texts([9, 9]), None, []
    for part in x.split(1, 1):
        out, memory = layer.step(part, memory)
        found.append(out)
    torch.testing.assert_close(torch.cat(found, 1), layer(x), atol=1e-10, rtol=1e-10)
    assert memory is not None and memory.keys.shape[2] == min(9, width + 1)


def test_a_window_reaches_as_far_as_longformers() -> None:
    """The same weights, counted the same way."""
    sliding, windowed = (
        made(Sliding(backend="reference", window=2)),
        made(Windowed(backend="reference", window=2, causal=True)),
    )
    windowed.load_state_dict(sliding.state_dict())
    x, _ = texts([8])
    torch.testing.assert_close(sliding(x), windowed(x))
    assert reached(sliding, x, 3) == [3, 4, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hybrid(kinds=[]), "kinds: got none, expected one or more"),
        (
            lambda: Hybrid(kinds=[STATE, Full(backend="reference")]),
            r"kinds: got causal of \[True, False\], expected the same of all",
        ),
        (
            lambda: Hybrid(kinds=[BigBird(backend="reference", block=2, global_tokens=2), Full(backend="reference")]),
            r"kinds: got extra_tokens of \[2, 0\], expected the same",
        ),
        (
            lambda: Hybrid(
                kinds=[Windowed(backend="reference", window=2, global_attention="shared"), Full(backend="reference")]
            ),
            r"kinds: got uses_global of \[True, False\], expected the same",
        ),
        (lambda: Sliding(backend="reference", window=-1), "window: got -1, expected 0 or more keys"),
        (lambda: Sliding(backend="reference", window=1, causal=False), "causal: got False, expected True: a window to both"),
        (
            lambda: language_model(
                Hybrid(kinds=[STATE, Windowed(backend="reference", window=2, causal=True)])
            ).step(torch.tensor([1])),
            "WindowedAttention: got a single position, expected whole sequences",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
