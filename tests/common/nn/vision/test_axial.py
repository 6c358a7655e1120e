"""Full and axial attention by hand and against every pair of pixels spelled out; what they reach and what they cost."""

from itertools import product
from typing import Any

import pytest
import torch

from common.bench import count_flops
from common.bench.flops import flops
from common.nn.vision import Axial, Full
from common.nn.vision.axial import AxialAttention
from tests.common.nn.vision.spec import (
    averaging,
    compare,
    everything,
    made,
    picture,
    pixels,
    reaches,
    same_column,
    same_row,
    spelled_out,
)

KINDS: dict[str, Any] = {
    "full": (Full, 0, everything),
    "rows": (Axial, 0, same_row),
    "columns": (Axial, 1, same_column),
    "rows again": (Axial, 2, same_row),
}


def test_means_by_hand() -> None:
    """Scores of 0: means of rows, of columns, of all."""
    x = torch.tensor([[1.0, 3.0], [5.0, 9.0]]).view(1, 2, 2, 1)
    rows, columns, full = (
        averaging(factory(backend="reference")(1, 1, layer))
        for factory, layer, _ in list(KINDS.values())[1:3] + [KINDS["full"]]
    )
    assert rows(x).flatten().tolist() == [2, 2, 7, 7]
    assert columns(x).flatten().tolist() == [3, 6, 3, 6]
    assert columns(rows(x)).flatten().tolist() == [4.5] * 4 == full(x).flatten().tolist()


@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_spelled_out(kind: str, backend: str) -> None:
    factory, number, sees = KINDS[kind]
    layer, x = made(factory(backend=backend), number), picture(2, 3, 5, 6).requires_grad_()
    compare(layer, x, spelled_out(layer, x, sees))


def test_heads_of_their_own_size() -> None:
    layer, x = made(Axial(backend="reference", head_dim=5)), picture(1, 2, 3, 6).requires_grad_()
    assert layer.multihead.w_q.weight.shape == (10, 6)
    compare(layer, x, spelled_out(layer, x, same_row))


def test_two_layers_reach_all_and_one_does_not() -> None:
    x = picture(1, 4, 5, 6)
    rows, columns = (made(Axial(backend="reference"), n) for n in range(2))
    for y, column in ((0, 0), (3, 4), (2, 1)):
        assert reaches(rows, x, (y, column)) == {(y, other) for other in range(5)}
        assert reaches(columns, x, (y, column)) == {(other, column) for other in range(4)}
        assert reaches(lambda z: columns(rows(z)), x, (y, column)) == set(pixels(4, 5))
        assert reaches(lambda z: rows(rows(z)), x, (y, column)) == {(y, other) for other in range(5)}


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 8), (3, 6)])
def test_flops(height: int, width: int) -> None:
    """Of n pixels two axial layers compute 2 n (H + W) d multiply-adds, 4 n sqrt(n) d of a square, where two full ones have
    4 n^2 d; all have 8 n d^2 in their projections."""
    n, d, images = height * width, 6, 2
    x = picture(images, height, width, d).float()
    full, *axial = (made(f(backend="reference"), layer).float() for f, layer, _ in list(KINDS.values())[:3])
    projections = 4 * n * d**2
    counted = [count_flops(lambda layer=layer: layer(x)) for layer in (full, *axial)]
    assert 2 * counted[0] == images * 2 * (2 * projections + 4 * n**2 * d)
    assert sum(counted[1:]) == images * 2 * (2 * projections + 2 * n * (height + width) * d)
    if height == width:
        assert sum(counted[1:]) == images * 2 * (2 * projections + 4 * n * height * d)
    for layer, whole in zip((full, *axial), counted, strict=True):
        of_scores = flops(layer.pairs(height, width), images, 2, 3, 3, "forward")
        assert whole == of_scores + images * 2 * projections


def test_dropout_of_the_weights_only_in_training() -> None:
    layer, x = made(Axial(backend="reference", dropout=0.5)), picture(1, 3, 4, 6)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), made(Axial(backend="reference"))(x))


def test_lines_of_one_pixel_and_what_is_refused() -> None:
    for (_, (factory, number, _)), shape in product(KINDS.items(), ((1, 1, 1), (2, 1, 4), (2, 4, 1))):
        x = picture(*shape, 6)
        assert made(factory(backend="reference"), number)(x).shape == x.shape
    with pytest.raises(ValueError, match="axis: got 'depth', expected one of rows, columns"):
        AxialAttention(6, 2, Axial(backend="reference"), "depth")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="heads: got 4, expected a divisor of d_model 6"):
        Axial(backend="reference")(6, 4, 0)
    with pytest.raises(ValueError, match="backend: got 'none'"):
        Axial(backend="none")(6, 2, 0)
