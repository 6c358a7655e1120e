"""Folded dilated windows against the dense mask, written out pair by pair: outputs and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention import BACKENDS
from common.attention.interleaved import dense_meaning, interleaved
from tests.common.attention.plain import plain
from tests.common.attention.properties import TOLERANCE, inputs


def pairs(time: int, left: int, right: int, dilation: int, first: int = 0, keep: Tensor | None = None) -> Tensor:
    """bool (B, 1, T, first + T), one pair at a time."""
    seen = torch.ones(1, first + time, dtype=torch.bool) if keep is None else keep
    allowed = torch.zeros(len(seen), 1, time, first + time, dtype=torch.bool)
    for b in range(len(seen)):
        for i in range(time):
            near = [i + n * dilation for n in range(-left, right + 1)]
            for j in range(first + time):
                allowed[b, 0, i, j] = bool(seen[b, j]) and (j < first or j - first in near)
    return allowed


def compare(backend: str, tensors: tuple[Tensor, Tensor, Tensor, Tensor], allowed: Tensor, **settings: Any) -> None:
    q, k, v, do = tensors
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    exact = plain(wide[0], wide[1], wide[2], allowed, scale=q.shape[3] ** -0.5)
    expected = (exact, *torch.autograd.grad(exact, wide, do.double()))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = interleaved(leaves[0], leaves[1], leaves[2], backend=backend, **settings)
    for got, right in zip((out, *torch.autograd.grad(out, leaves, do)), expected, strict=True):
        torch.testing.assert_close(got, right.to(got.dtype), atol=TOLERANCE[got.dtype], rtol=0)


SIDES = {"both": (2, 2), "uneven": (3, 1), "causal": (4, 0), "itself": (0, 0), "wide": (40, 40)}


@pytest.mark.parametrize("time", [1, 2, 3, 12, 31])
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("sides", SIDES)
def test_the_dense_meaning(sides: str, dilation: int, time: int):
    left, right = SIDES[sides]
    mask = dense_meaning(left, right, dilation)
    assert torch.equal(mask.dense(time, time), pairs(time, left, right, dilation)[0, 0])
    settings = {"left": left, "right": right, "dilation": dilation}
    for backend in ("reference", "chunked"):
        compare(backend, inputs(time, dtype=torch.float64, kv=2, dv=3), pairs(time, left, right, dilation), **settings)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
@pytest.mark.parametrize(("time", "dilation"), [(31, 3), (30, 3), (7, 9)])
@pytest.mark.parametrize("right", [0, 2])
@pytest.mark.parametrize("first", [0, 5])
def test_padding_of_each_sample_and_keys_in_front(first: int, right: int, time: int, dilation: int, backend: str):
    """The second sample has holes, of its first keys too; a query whose window is all padding gets zeros."""
    keep = torch.rand(2, first + time, generator=torch.Generator().manual_seed(3)) > torch.tensor([[-1.0], [0.6]])
    keep[0, -3:] = False
    settings = {"left": 2, "right": right, "dilation": dilation, "first": first, "keep": keep}
    allowed = pairs(time, 2, right, dilation, first, keep)
    assert torch.equal(dense_meaning(2, right, dilation, first, keep).dense(time, first + time), allowed)
    if not first:
        assert not allowed.any(-1).all(), "no query is without a key"
    compare(backend, inputs(time, first + time, dtype=torch.float64), allowed, **settings)
    compare(backend, inputs(time, first + time), allowed, **settings)


def test_a_seed_drops_the_same_for_every_backend_and_passes_on():
    q, k, v, _ = inputs(31, dtype=torch.float64)
    settings: dict[str, Any] = {"left": 3, "right": 3, "dilation": 2, "dropout_p": 0.5}
    one, other = (interleaved(q, k, v, backend=b, dropout_seed=7, **settings) for b in ("reference", "chunked"))
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one, interleaved(q, k, v, backend="reference", dropout_seed=8, **settings))


def test_what_does_not_fit_is_refused():
    q, k, v, _ = inputs(6)
    sides: dict[str, Any] = {"left": 1, "right": 1, "dilation": 2, "backend": BACKENDS[0]}
    with pytest.raises(ValueError, match=r"got 6 keys and keep of None, expected first \+ T = 8 keys"):
        interleaved(q, k, v, first=2, **sides)
    with pytest.raises(ValueError, match=r"keep of \(2, 5\), expected .* keep of \(2, 6\)"):
        interleaved(q, k, v, keep=torch.ones(2, 5, dtype=torch.bool), **sides)
