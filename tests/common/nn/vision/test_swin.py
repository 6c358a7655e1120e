"""Windows by hand and against the pixels that share one spelled out, biases, borders, costs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.bench import count_flops
from common.bench.flops import flops
from common.nn.vision import Full, Swin
from common.nn.vision.swin import WindowAttention, regions
from tests.common.nn.vision.spec import (
    Bias,
    Pixel,
    Sees,
    averaging,
    compare,
    made,
    picture,
    pixels,
    reaches,
    spelled_out,
)

SIZES = [(4, 4, 2), (6, 9, 3), (8, 4, 4), (3, 3, 3), (2, 6, 2)]
"""Height, width and window: even and odd ones, several windows, one, and one along a side."""


def share_a_window(height: int, width: int, window: int, layer: int) -> Sees:
    """Windows begin at multiples of the window, in every second layer half a window later, and what is left at the border is
    one for itself; a side of one window is left as it is."""
    shifts = [window // 2 if layer % 2 and side > window else 0 for side in (height, width)]
    return lambda query, key: all(
        (a - shift) // window == (b - shift) // window for a, b, shift in zip(query, key, shifts, strict=True)
    )


def table_of(layer: WindowAttention) -> Bias:
    middle = layer.window - 1
    return lambda h, query, key: layer.table[h, query[0] - key[0] + middle, query[1] - key[1] + middle]


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize(("height", "width", "window"), SIZES)
def test_those_that_share_a_window(height: int, width: int, window: int, number: int, backend: str) -> None:
    layer = made(Swin(backend=backend, window=window), number)
    x = picture(2, height, width, 6).requires_grad_()
    sees = share_a_window(height, width, window, number)
    compare(layer, x, spelled_out(layer, x, sees, table_of(layer)))


def test_means_by_hand() -> None:
    """0 to 15 in windows of 2 x 2: four means; shifted, 0, 3, 12 and 15 stand alone, the rest of the border in pairs."""
    x = torch.arange(16.0).view(1, 4, 4, 1)
    regular, shifted = (averaging(Swin(backend="reference", window=2)(1, 1, n)) for n in range(2))
    for layer in (regular, shifted):
        nn.init.zeros_(layer.table)
    assert regular(x)[0, ..., 0].tolist() == [[2.5, 2.5, 4.5, 4.5]] * 2 + [[10.5, 10.5, 12.5, 12.5]] * 2
    assert shifted(x)[0, ..., 0].tolist() == [
        [0, 1.5, 1.5, 3],
        [6, 7.5, 7.5, 9],
        [6, 7.5, 7.5, 9],
        [12, 13.5, 13.5, 15],
    ]


def test_bias_by_hand() -> None:
    """The key below the query counts five times: the bias of y_i - y_j = -1 and x_i - x_j = 0 is log 5."""
    x = torch.tensor([[1.0, 2.0], [4.0, 8.0]]).view(1, 2, 2, 1)
    layer = averaging(Swin(backend="reference", window=2)(1, 1, 0))
    nn.init.zeros_(layer.table)
    with torch.no_grad():
        layer.table[0, 0, 1] = torch.tensor(5.0).log()
    expected = [(1 + 2 + 5 * 4 + 8) / 8, (1 + 2 + 4 + 5 * 8) / 8, 15 / 4, 15 / 4]
    assert layer(x).flatten().tolist() == pytest.approx(expected)


def test_each_difference_of_places_has_its_number() -> None:
    """Equation 4: (2M - 1)^2 for each head, all of them used."""
    layer: Any = made(Swin(backend="reference", window=3))
    assert layer.table.shape == (2, 5, 5)
    assert [int((layer.bias() == value).sum()) for value in layer.table[1].flatten()] == [
        (3 - abs(y)) * (3 - abs(x)) for y in range(-2, 3) for x in range(-2, 3)
    ]
    fresh = Swin(backend="reference", window=7)(32, 4, 0).table
    assert 0.017 < fresh.std().item() < 0.023


def test_one_window_is_full_attention_with_a_bias() -> None:
    window, full = made(Swin(backend="reference", window=4), 1), made(Full(backend="reference"))
    nn.init.zeros_(window.table)
    full.multihead.load_state_dict(window.multihead.state_dict())
    x = picture(2, 4, 4, 6)
    torch.testing.assert_close(window(x), full(x))


def test_the_shift_wraps_nothing_around_the_border() -> None:
    x, layer = picture(1, 8, 8, 6), made(Swin(backend="reference", window=4), 1)
    assert reaches(layer, x, (0, 0)) == {(y, z) for y in (0, 1) for z in (0, 1)}
    assert reaches(layer, x, (0, 3)) == {(y, z) for y in (0, 1) for z in (2, 3, 4, 5)}
    assert reaches(layer, x, (7, 7)) == {(y, z) for y in (6, 7) for z in (6, 7)}
    assert reaches(layer, x, (2, 2)) == {(y, z) for y in (2, 3, 4, 5) for z in (2, 3, 4, 5)}


def test_a_pair_connects_windows() -> None:
    """What W-MSA and then SW-MSA reach from a pixel is what any of its shifted window's pixels reach."""
    x, layers = picture(1, 8, 8, 6), [made(Swin(backend="reference", window=4), n) for n in range(2)]
    shares = [share_a_window(8, 8, 4, n) for n in range(2)]

    def connected(query: Pixel) -> set[Pixel]:
        between = [p for p in pixels(8, 8) if shares[1](query, p)]
        return {key for key in pixels(8, 8) if any(shares[0](p, key) for p in between)}

    def pair(z: Tensor) -> Tensor:
        return layers[1](layers[0](z))

    for query in ((0, 0), (2, 2), (7, 3)):
        assert reaches(pair, x, query) == connected(query)
    assert connected((2, 2)) == set(pixels(8, 8)) and len(connected((7, 3))) == 32 and len(connected((0, 0))) == 16


@pytest.mark.parametrize("number", [0, 1])
def test_flops(number: int) -> None:
    """Equations 1 and 2, in multiply-adds: 4 h w C^2 + 2 (h w)^2 C, and 4 h w C^2 + 2 M^2 h w C, shifted too."""
    height, width, window, c = 8, 12, 4, 6
    x, n = picture(1, height, width, c).float(), 8 * 12
    layer, full = (
        made(Swin(backend="reference", window=window), number).float(),
        made(Full(backend="reference")).float(),
    )
    assert count_flops(lambda: full(x)) == 2 * (4 * n * c**2 + 2 * n**2 * c)
    assert count_flops(lambda: layer(x)) == 2 * (4 * n * c**2 + 2 * window**2 * n * c)
    assert flops(layer.pairs(height, width), 1, 2, 3, 3, "forward") == 2 * 2 * window**2 * n * c


def test_other_batches_and_sizes_in_turn() -> None:
    """Masks are kept: neither another batch nor another size may get a wrong one."""
    layer = made(Swin(backend="reference", window=2), 1)
    whole = picture(3, 4, 6, 6)
    together = layer(whole)
    for b in range(3):
        torch.testing.assert_close(layer(whole[b : b + 1])[0], together[b])
    turned, x = made(Swin(backend="reference", window=2), 1), whole.transpose(1, 2)
    turned.load_state_dict(layer.state_dict())
    turned.table.data = layer.table.data.transpose(1, 2)
    torch.testing.assert_close(turned(x).transpose(1, 2), together)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_masks_made_without_gradients_serve_training(backend: str) -> None:
    """As where a model is checked on a batch of the dev set first."""
    regions.cache_clear()
    layer, x = made(Swin(backend=backend, window=2), 1), picture(2, 4, 4, 6)
    with torch.inference_mode():
        before = layer(x)
    after = layer(x.requires_grad_())
    assert torch.equal(before, after) and bool(torch.autograd.grad(after.sum(), x)[0].any())


def test_what_does_not_fit_is_refused() -> None:
    layer = Swin(backend="reference", window=4)(6, 2, 1)
    for height, width in ((7, 8), (8, 6), (3, 3)):
        with pytest.raises(ValueError, match=f"x: got {height} x {width} pixels, expected multiples of the window 4"):
            layer(torch.zeros(1, height, width, 6))
    with pytest.raises(ValueError, match="window: got 1, expected 2 or more"):
        Swin(backend="reference", window=1)
    with pytest.raises(ValueError, match="shift: got 4, expected 0 to 3"):
        WindowAttention(6, 2, Swin(backend="reference", window=4), 4)
    with pytest.raises(ValueError, match="has no gradient for a bias"):
        Swin(backend="sdpa", window=4)(6, 2, 1)(torch.zeros(1, 8, 8, 6))
