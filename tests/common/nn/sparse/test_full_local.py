"""Full and local attention, spelled out."""

from typing import Any

import pytest
import torch

from common.nn.sparse import Full, Local, Windowed
from tests.common.nn.sparse.spec import compare, made, reached, spelled_out, texts

BACKENDS = ["reference", "sdpa", "chunked"]
LENGTHS = {"alone": [19], "mixed": [19, 8, 1, 12], "one token": [1]}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("causal", [False, True])
def test_full(causal: bool, lengths: list[int], backend: str) -> None:
    layer = made(Full(backend=backend, causal=causal))
    x, real = texts(lengths)
    compare(layer, spelled_out(layer, x.requires_grad_(), real, lambda h, i, j: not causal or j <= i), x, real)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("causal", [False, True])
def test_local(causal: bool, lengths: list[int], backend: str) -> None:
    layer = made(Local(backend=backend, block=5, causal=causal))
    x, real = texts(lengths)

    def sees(h: int, i: int, j: int) -> bool:
        return i // 5 == j // 5 and (not causal or j <= i)

    compare(layer, spelled_out(layer, x.requires_grad_(), real, sees), x, real)


def test_full_is_a_window_that_reaches_everywhere_also_with_relative_positions() -> None:
    full = made(Full(backend="chunked", causal=True, relative=True, relative_size=6))
    windowed = made(Windowed(backend="chunked", window=30, causal=True, relative=True, relative_size=6))
    windowed.load_state_dict(full.state_dict())
    x, real = texts([30, 11])
    torch.testing.assert_close(full(x, real=real)[real], windowed(x, real=real)[real])
    assert full.relative is not None and full.relative.size == 6


@pytest.mark.parametrize("factory", [Full(backend="chunked"), Local(backend="chunked", block=6)], ids=["full", "local"])
def test_neither_padding_nor_neighbours_matter(factory: Any) -> None:
    layer = made(factory)
    x, real = texts([23, 9, 1])
    together, junk = (layer(part, real=real) for part in (x, x.masked_fill(~real[..., None], torch.nan)))
    for b, length in enumerate([23, 9, 1]):
        alone = layer(x[b : b + 1, :length])[0]
        torch.testing.assert_close(together[b, :length], alone)
        torch.testing.assert_close(junk[b, :length], alone)


def test_a_block_is_all_that_a_token_reaches() -> None:
    layer = made(Local(backend="chunked", block=6))
    x, _ = texts([21])
    assert reached(layer, x, 7) == list(range(6, 12)) and reached(layer, x, 20) == [18, 19, 20]
    causal = made(Local(backend="chunked", block=6, causal=True))
    assert reached(causal, x, 8) == [8, 9, 10, 11]


def test_head_size_apart_from_d_model() -> None:
    """LRA's qkv 64 of an embedding of 128 (appendix A.1)."""
    layer = Full(backend="chunked", head_dim=16, linear_bias=False)(128, 4, 0, 1)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 128 * 64


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="block: got 0, expected 1 or more"):
        Local(backend="chunked", block=0)
    x, real = texts([5])
    with pytest.raises(ValueError, match="is_global: got global tokens, expected None, as local attention has none"):
        made(Local(backend="chunked", block=2))(x, is_global=real)
    assert torch.equal(*(made(Full(backend="chunked"))(x, is_global=g) for g in (None, real))), "all see all already"
