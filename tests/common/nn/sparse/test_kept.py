"""What a token costs while a text is written: formulas, bytes, and numbers of fewer bits."""

from typing import Any

import pytest
import torch

from common.attention.cache import Plan, Remembered
from common.nn.latent import Latent
from common.nn.long import LanguageModel
from common.nn.sparse import Full
from common.nn.sparse.kept import DTYPES, Stored

KINDS: dict[str, Any] = {
    "multi-head": lambda **more: Full(backend="reference", causal=True, **more),
    "grouped": lambda **more: Full(backend="reference", causal=True, kv_heads=2, rotary=True, **more),
    "multi-query": lambda **more: Full(backend="reference", causal=True, kv_heads=1, **more),
    "relative": lambda **more: Full(
        backend="reference", causal=True, kv_heads=2, relative=True, relative_size=6, **more
    ),
    "latent": lambda **more: Latent(backend="reference", causal=True, latent=10, rotary_dim=4, **more),
}
HALF = torch.bfloat16.itemsize


def elements(factory: Any, d_model: int, heads: int, layers: int) -> float:
    """Numbers a token of a model of so many layers."""
    with torch.device("meta"):
        layer = factory(d_model, heads, 0, layers)
    return Plan(layers, layer.cache_shape(torch.bfloat16)).bytes_per_token / HALF


def test_elements_of_a_token_by_deepseeks_formulas() -> None:
    """DeepSeek-V2, Table 1, with the sizes of its model: n_h 128, d_h 128, l 60, d_c 512, d_h^R 64; n_g 8."""
    d, n_h, d_h, n_g, layers = 5120, 128, 128, 8, 60
    full = {"backend": "sdpa", "head_dim": d_h}
    assert elements(Full(**full), d, n_h, layers) == 2 * n_h * d_h * layers
    assert elements(Full(**full, kv_heads=n_g), d, n_h, layers) == 2 * n_g * d_h * layers
    assert elements(Full(**full, kv_heads=1), d, n_h, layers) == 2 * d_h * layers
    latent = elements(Latent(**full, latent=512, rotary_dim=64), d, n_h, layers)
    assert latent == (512 + 64) * layers == 4.5 * d_h * layers == 34_560


def test_relative_positions_make_keys_longer() -> None:
    assert elements(KINDS["relative"](), 16, 4, 1) == 2 * (4 + 6 + 4)


def model(factory: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(11, 3, 16, 4, 16, attention=factory, std=0.3).eval()


def written(made: LanguageModel, tokens: torch.Tensor) -> tuple[torch.Tensor, tuple[Remembered, ...]]:
    """Logits (B, T, V) symbol by symbol, and what each layer remembers of it."""
    memory, found = None, []
    for t in range(tokens.shape[1]):
        logits, memory = made.step(tokens[:, t], memory)
        found.append(logits)
    assert memory is not None
    return torch.stack(found, 1), memory.layers


@pytest.mark.parametrize("cache", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planned_is_what_decoding_allocates(kind: str, cache: Stored | None) -> None:
    """17 symbols of two texts: 32 slots each, as the cache grows by powers of two."""
    made = model(KINDS[kind](cache=cache))
    attention: Any = made.trunk.blocks[0].get_submodule("attention")
    plan = Plan(len(made.trunk.blocks), attention.cache_shape(torch.float32))
    with torch.no_grad():
        _, layers = written(made, torch.randint(11, (2, 17)))
    allocated = sum(plane.untyped_storage().nbytes() for layer in layers for plane in layer.cache.planes)
    assert allocated == plan.bytes(positions=32, sequences=2)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_bits_are_near_and_change_decoding_alone(kind: str) -> None:
    exact, tokens = model(KINDS[kind]()), torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, _ = written(exact, tokens)
        torch.testing.assert_close(wanted, exact(tokens), rtol=1e-4, atol=1e-4)
        for cache, dtype in (("bf16", torch.bfloat16), ("int8", torch.int8)):
            made = model(KINDS[kind](cache=cache))
            assert torch.equal(made.train()(tokens), exact.train()(tokens)), "training keeps nothing"
            found, layers = written(made.eval(), tokens)
            assert {layer.cache.planes[0].dtype for layer in layers} == {dtype}
            assert 0 < (found - wanted).norm() / wanted.norm() < 0.03
