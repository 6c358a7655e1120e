"""Longformer's layer against its meaning spelled out: each implementation, outputs and all gradients."""

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention import Causal, Dilated, Window
from common.nn.sparse import Windowed
from common.nn.sparse.windowed import WindowedAttention
from tests.common.nn.sparse.spec import compare, made, reached, spelled_out, texts, window

WAYS: dict[str, dict[str, Any]] = {
    "reference": {"backend": "reference"},
    "sdpa": {"backend": "sdpa"},
    "chunked": {"backend": "chunked"},
    "loop": {"backend": "reference", "implementation": "loop"},
}

LENGTHS = {
    "alone": [19],
    "mixed": [19, 7, 1, 12],
    "one token": [1],
    "shorter than the window": [3, 2],
    "a multiple": [16, 8],
}


def globals_of(lengths: list[int]) -> Tensor:
    """Others in each sample: the first and the last; none; the first; .. . And padding, which can't be global."""
    chosen = torch.zeros(len(lengths), max(lengths), dtype=torch.bool)
    for b, length in enumerate(lengths):
        chosen[b, [[0, length - 1], [], [0], [length // 2]][b % 4]] = True
        chosen[b, length:] = b == 1
    return chosen


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 3])
def test_windows(dilation: int, causal: bool, lengths: list[int], way: str) -> None:
    layer = made(Windowed(window=4, causal=causal, dilation=dilation, dilated_heads=2, **WAYS[way]))
    x, real = texts(lengths)
    expected = spelled_out(layer, x.requires_grad_(), real, window(4, 0 if causal else 4, (1, dilation, dilation)))
    compare(layer, expected, x, real)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("kind", ["shared", "separate"])
def test_global_tokens_of_each_sample(kind: Any, lengths: list[int], way: str) -> None:
    layer = made(Windowed(window=2, dilation=2, dilated_heads=1, global_attention=kind, **WAYS[way]))
    x, real = texts(lengths)
    chosen = globals_of(lengths)
    expected = spelled_out(layer, x.requires_grad_(), real, window(2, 2, (1, 1, 2)), chosen)
    compare(layer, expected, x, real, is_global=chosen)
    if len(lengths) == 1:
        compare(layer, expected, x, None, is_global=chosen)


@pytest.mark.parametrize("way", ["reference", "chunked", "loop"])
@pytest.mark.parametrize("kind", ["off", "separate"])
def test_relative_positions(kind: Any, way: str) -> None:
    """Of global tokens too, wherever they stand. `sdpa` takes one head_dim for q, k and v."""
    layer = made(Windowed(window=3, dilation=2, dilated_heads=1, relative=True, global_attention=kind, **WAYS[way]))
    x, real = texts([11, 6])
    chosen = globals_of([11, 6]) if kind != "off" else None
    expected = spelled_out(layer, x.requires_grad_(), real, window(3, 3, (1, 1, 2)), chosen)
    compare(layer, expected, x, real, is_global=chosen)


@pytest.mark.parametrize("way", WAYS)
def test_no_global_token_at_all(way: str) -> None:
    layer = made(Windowed(window=2, global_attention="separate", **WAYS[way]))
    x, real = texts([9, 5])
    expected = spelled_out(layer, x.requires_grad_(), real, window(2, 2))
    compare(layer, expected, x, real, is_global=torch.zeros(2, 9, dtype=torch.bool))
    compare(layer, spelled_out(layer, x, real, window(2, 2)), x, real)


@pytest.mark.parametrize("way", ["chunked", "loop"])
def test_many_global_tokens(way: str) -> None:
    """More than there is room for in one step of slots; all of a sample; some that lie in each other's windows."""
    layer = made(Windowed(window=1, global_attention="separate", **WAYS[way]))
    x, real = texts([150, 20])
    chosen = torch.arange(150) < torch.tensor([140, 20])[:, None]
    got = layer(x, real=real, is_global=chosen)
    only = torch.ones(1, 20, dtype=torch.bool)
    torch.testing.assert_close(got[1, :20], spelled_out(layer, x[1:, :20], only, window(1, 1), only)[0])
    last = slice(149, 150)
    whole = spelled_out_last(layer, x[:1])
    torch.testing.assert_close(got[0, last], whole)


def spelled_out_last(layer: Any, x: Tensor) -> Tensor:
    """Token 149 of 150 sees the first 140, its neighbour and itself."""
    seen = [*range(140), 148, 149]
    q, k, v = (w(x[0]).view(-1, 3, 4) for w in (layer.w_q, layer.w_k, layer.w_v))
    weights = torch.einsum("hd,jhd->hj", q[149], k[seen]).div(2).softmax(-1)
    return layer.w_o(torch.einsum("hj,jhd->hd", weights, v[seen]).flatten())[None]


@pytest.mark.skipif(shutil.which("g++") is None, reason="flex compiles for a CPU with g++")
@torch.no_grad()
def test_flex_forward() -> None:
    """In fp32; it has no backward on a CPU. Dilated windows and global rows: two compilations."""
    settings: dict[str, Any] = {"window": 2, "dilation": 2, "dilated_heads": 3, "global_attention": "separate"}
    layer, exact = (made(Windowed(backend=b, **settings)) for b in ("flex", "reference"))
    (x, real), chosen = texts([19, 7, 1, 12]), globals_of([19, 7, 1, 12])
    got = layer.float()(x.float(), real=real, is_global=chosen)
    assert got.isfinite().all()
    torch.testing.assert_close(got[real], exact(x, real=real, is_global=chosen)[real].float(), atol=1e-4, rtol=1e-4)


def test_the_mask_says_what_each_head_sees() -> None:
    factory = Windowed(backend="reference", window=2, dilation=3, dilated_heads=1)
    layer = factory(12, 3, 0, 1)
    assert layer.mask().at(0, 1) == Window(2, 2) and layer.mask().at(0, 2) == Dilated(2, 2, 3)
    first = Windowed(backend="reference", window=2, dilation=3, dilated_heads=1, dilated="first", causal=True)
    assert [first(12, 3, 0, 1).mask(1).at(0, h) for h in (0, 1)] == [Dilated(4, 0, 3), Window(4, 0)]
    assert layer.mask().groups == (1, 3)


def test_dilation_of_the_first_heads() -> None:
    layer = made(Windowed(backend="chunked", window=2, dilation=3, dilated_heads=2, dilated="first"))
    x, real = texts([13])
    compare(layer, spelled_out(layer, x.requires_grad_(), real, window(2, 2, (3, 3, 1))), x, real)


def test_a_stage_doubles_the_window() -> None:
    """Not the dilation (section 4.1: each phase doubles the window size)."""
    layer = made(Windowed(backend="chunked", window=1, dilation=2, dilated_heads=1, causal=True))
    x, real = texts([21])
    for stage, width in ((0, 1), (1, 2), (2, 4), (3, 8)):
        expected = spelled_out(layer, x.requires_grad_(), real, window(width, 0, (1, 1, 2)))
        compare(layer, expected, x, real, stage=stage)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_the_future_is_out_of_reach(dilation: int, way: str) -> None:
    layer = made(Windowed(window=3, causal=True, dilation=dilation, dilated_heads=3, **WAYS[way]))
    x, _ = texts([14])
    far = [5 + n * dilation for n in range(4)]
    assert reached(layer, x, 5) == [t for t in far if t < 14]
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[0, 8].square().sum(), x)
    assert gradient[0].abs().sum(1).nonzero().flatten().tolist() == [
        8 - n * dilation for n in (3, 2, 1, 0) if 8 >= n * dilation
    ]


@pytest.mark.parametrize(("causal", "dilation"), [(False, 1), (True, 1), (False, 2), (True, 2)])
def test_layers_times_window_is_what_is_seen(causal: bool, dilation: int) -> None:
    """Section 3.1: a window w of l layers reaches l x w, dilated by d l x d x w. Exactly so far, and no further."""
    factory = Windowed(backend="chunked", window=2, causal=causal, dilation=dilation, dilated_heads=3)
    layers = [made(factory, n, 3, seed=n) for n in range(3)]

    def stack(x: Tensor) -> Tensor:
        for layer in layers:
            x = x + layer(torch.nn.functional.layer_norm(x, (12,)) / 4)
        return x

    x, _ = texts([41])
    reach = 3 * 2 * dilation
    found = reached(stack, x, 20)
    assert found == list(range(20 if causal else 20 - reach, 20 + reach + 1, dilation))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["off", "separate"])
def test_neither_padding_nor_neighbours_matter(kind: Any, way: str) -> None:
    layer = made(Windowed(window=3, dilation=2, dilated_heads=1, global_attention=kind, **WAYS[way]))
    x, real = texts([13, 6, 1])
    chosen = globals_of([13, 6, 1]) & real if kind != "off" else None
    together = layer(x, real=real, is_global=chosen)
    junk = layer(x.masked_fill(~real[..., None], torch.nan), real=real, is_global=chosen)
    for b, length in enumerate([13, 6, 1]):
        alone = layer(x[b : b + 1, :length], is_global=None if chosen is None else chosen[b : b + 1, :length])
        torch.testing.assert_close(together[b, :length], alone[0])
        torch.testing.assert_close(junk[b, :length], alone[0])


@pytest.mark.parametrize("way", WAYS)
def test_nan_in_padding_reaches_no_gradient(way: str) -> None:
    layer = made(Windowed(window=3, global_attention="shared", **WAYS[way]))
    x, real = texts([13, 6])
    x = x.masked_fill(~real[..., None], torch.nan).requires_grad_()
    out = layer(x, real=real, is_global=globals_of([13, 6]))
    gradients = torch.autograd.grad(out[real].sum(), [x, *layer.parameters()], allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients) and not gradients[0][~real].any()


def test_global_projections_start_as_copies() -> None:
    """Section 3.1: "we initialize with values that match". So at first separate and shared are one."""
    torch.manual_seed(0)
    separate = Windowed(backend="reference", window=2, global_attention="separate")(12, 3, 0, 1).double()
    shared = Windowed(backend="reference", window=2, global_attention="shared")(12, 3, 0, 1).double()
    shared.load_state_dict({name: t for name, t in separate.state_dict().items() if "_global" not in name})
    (x, real), chosen = texts([9, 5]), globals_of([9, 5])
    assert torch.equal(separate(x, real=real, is_global=chosen), shared(x, real=real, is_global=chosen))
    assert separate.w_q_global.weight is not separate.w_q.weight
    with torch.no_grad():
        separate.w_k_global.weight.add_(1.0)
    assert not torch.allclose(
        separate(x, real=real, is_global=chosen)[0, 0], shared(x, real=real, is_global=chosen)[0, 0]
    )
    separate.copy_to_global()
    assert torch.equal(separate.w_k_global.weight, separate.w_k.weight)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "sdpa"])  # which has no dropout
def test_dropout_is_of_the_weights_in_training_alone(way: str) -> None:
    layer = made(Windowed(window=3, dropout=0.5, global_attention="shared", **WAYS[way]))
    (x, real), chosen = texts([13, 6]), globals_of([13, 6])
    once = layer.eval()(x, real=real, is_global=chosen)
    assert torch.equal(once, layer(x, real=real, is_global=chosen))
    layer.train()
    drawn = torch.stack([layer(x, real=real, is_global=chosen) for _ in range(100)])
    assert not torch.equal(drawn[0], drawn[1])
    spread = drawn.std(0)[real] / 10
    assert ((drawn.mean(0) - once)[real].abs() < 5 * spread + 1e-9).all(), "on average what it is without"


@pytest.mark.parametrize("relative", [True, False])
def test_parameters(relative: bool) -> None:
    """q, k, v and o of 512 x 512 + 512; as many of q, k, v again for the global ones; W_r, u and v."""
    layer = Windowed(backend="chunked", window=32, global_attention="separate", relative=relative)(512, 8, 0, 12)
    assert sum(p.numel() for p in layer.parameters()) == 7 * (512**2 + 512) + relative * (512**2 + 2 * 512)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "backend": ({"backend": "cuda"}, "backend: got 'cuda', expected one of"),
    "heads": ({"head_dim": None}, "heads: got 3, expected a divisor of d_model 8, or head_dim given"),
    "implementation": ({"implementation": "chunk"}, "implementation: got 'chunk', expected one of backend, loop"),
    "global": ({"global_attention": "on"}, "global_attention: got 'on', expected one of off, shared, separate"),
    "causal": ({"causal": True, "global_attention": "shared"}, "global_attention: got 'shared', expected 'off' of a"),
    "no heads": ({"dilation": 2}, "dilated_heads: got 0 with a dilation of 2, expected at most 3, and some"),
    "many heads": ({"dilated_heads": 4}, "dilated_heads: got 4 with a dilation of 1, expected at most 3"),
    "window": ({"window": -1}, "windows: got -1 to None over 2 layers"),
    "layers": ({"dilation": [1], "dilated_heads": 1}, r"dilation: got \[1\], expected one .* each of 2 layers"),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Windowed(**{"backend": "reference", "window": 2, "head_dim": 4} | settings)(8, 3, 0, 2)


def test_calls_that_do_not_fit_are_refused() -> None:
    x, real = texts([5])
    off, shared = (made(Windowed(backend="reference", window=1, global_attention=g)) for g in ("off", "shared"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is_global: got global tokens, expected None, as global_attention is 'off'"):
        off(x, is_global=real)
    with pytest.raises(ValueError, match=r"real: got torch.bool \(1, 4\), expected bool \(1, 5\)"):
        off(x, real=real[:, :4])
    with pytest.raises(ValueError, match=r"is_global: got torch.int64 \(1, 5\), expected bool \(1, 5\)"):
        shared(x, is_global=real.long())
    assert isinstance(off, WindowedAttention) and off.mask().at(0, 0) != Causal()
