"""What is measured of fewer heads, on cases whose answer is known."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from common.nn.encoder_decoder import Transformer
from common.nn.long import LanguageModel
from common.nn.sparse import Full
from common.nn.sparse.full import FullAttention
from reproductions.mqa_gqa.decoding import Decoding, Watched, searched
from reproductions.mqa_gqa.drift import Drift
from reproductions.mqa_gqa.groups import Groups
from reproductions.mqa_gqa.planned import Planned
from reproductions.stored import Reader

SIZES: dict[str, Any] = {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 4, "backend": "reference"}


def test_sizes_that_the_papers_print() -> None:
    """GQA, section 2.2: 8,192 and 2,048 numbers a token of 4,096 dimensions, three quarters less; DeepSeek-V2: 34,560 of 60
    layers, (2 * 128 * 128) * 60 of multi-head attention."""
    layer = {"layers": 1, "key_dim": 128, "value_dim": 128}
    found = Planned(
        rows={
            "multi_head": {**layer, "kv_heads": 32},
            "grouped": {**layer, "kv_heads": 8},
            "latent": {"layers": 60, "kv_heads": 1, "key_dim": 64, "value_dim": 512},
            "deep": {"layers": 60, "kv_heads": 128, "key_dim": 128, "value_dim": 128},
        },
        tokens=3,
    )(1)
    elements = {row: quantities["elements"]["at"]["default"] for row, quantities in found.items()}
    assert elements == {"multi_head": [8192], "grouped": [2048], "latent": [34560], "deep": [1966080]}
    assert found["grouped"]["saved"]["at"]["default"] == [75.0]
    assert all(quantities["off_plan"]["at"]["default"] == [0.0] for quantities in found.values())


def test_bytes_of_a_cache_are_counted() -> None:
    """Keys and values: 2 * batch 3 * kv_heads * 16 / 4 dimensions * 4 bytes a position."""
    groups = Groups(
        rows={"one": 1, "four": 4}, cached=[10, 20], batch=3, d_model=16, heads=4, device="cpu", repeats=2, threads=1
    )
    found = groups(1)
    for row, kv_heads in (("one", 1), ("four", 4)):
        for length in (10, 20):
            assert found[row]["cache_mb"]["at"][str(length)] == [2 * 3 * kv_heads * 4 * 4 * length / 1e6]
        assert {len(found[row][q]["at"]["20"]) for q in ("attend_ms", "of_copy")} == {2}


def test_a_search_is_as_long_as_asked_for() -> None:
    """Each of three sentences is decoded for seven words, whatever the model would rather say."""
    model, steps = Transformer(9, 9, **SIZES).eval(), list[Tensor]()
    watched = Watched(model)
    step = model.step
    model.step = lambda memory, state, tokens: (steps.append(tokens), step(memory, state, tokens))[1]  # type: ignore[method-assign]
    searched(watched, torch.full((3, 4), 5), torch.ones(3, 4, dtype=torch.bool), 7, 2)
    assert [tuple(tokens.shape) for tokens in steps] == [(3, 1)] + [(3, 2)] * 6
    assert watched.encoding > 0


def test_decoding_is_measured_row_by_row() -> None:
    def make(kv_heads: int) -> Any:
        return lambda **words: Transformer(**words, **SIZES, kv_heads=kv_heads)

    found = Decoding(
        models={"a": make(4), "b": make(1)}, lengths=[4, 6], batch=2, beam=2, vocabulary=16, precision="fp32",
        device="cpu", repeats=3, threads=1,
    )(1)  # fmt: skip
    for row in ("a", "b"):
        points = {name: {point: len(v) for point, v in q["at"].items()} for name, q in found[row].items()}
        assert points == {
            "training_us": {"4": 3},
            **{name: {"4": 3, "6": 3} for name in ("greedy_encoder_us", "greedy_decoder_us", "sample_ms")},
            **{name: {"4": 3} for name in ("beam_encoder_us", "beam_decoder_us")},
        }
        for point in ("4", "6"):  # a sentence is its words, in the encoder and in the decoder
            whole, encoder, decoder = (
                found[row][name]["at"][point] for name in ("sample_ms", "greedy_encoder_us", "greedy_decoder_us")
            )
            for w, e, d in zip(whole, encoder, decoder, strict=True):
                assert 1e3 * w == pytest.approx(int(point) * (e + d))


def language_model() -> LanguageModel:
    torch.manual_seed(0)
    attention = Full(backend="reference", causal=True, kv_heads=2)
    return LanguageModel(11, 1, 16, 4, 16, attention=attention, std=0.6).eval()


def rounded(x: Tensor) -> Tensor:
    """To 255 levels of the largest of each head and position."""
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x / step).round() * step


@torch.no_grad()
def test_drift_against_rounding_by_hand() -> None:
    """One layer, whose keys and values are rounded by hand in a whole forward pass."""
    model, tokens = language_model(), torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(2))
    found = Drift(of=Reader(model, model, tokens), rows={"row": "int8"}, positions=[1, 8], threads=1)(1)["row"]
    exact = model(tokens).double().log_softmax(-1)
    layer = next(m for m in model.modules() if isinstance(m, FullAttention))
    project = layer.project

    def roundly(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = project(x)
        return q, rounded(k), rounded(v)

    layer.project = roundly  # type: ignore[method-assign]
    other = model(tokens).double().log_softmax(-1)
    divergence = (exact.exp() * (exact - other)).sum(-1) / math.log(2) * 1e3
    lost = (exact - other)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0] / math.log(2) * 1e3
    for position in (1, 8):
        at = {name: quantity["at"][str(position)] for name, quantity in found.items()}
        assert at["divergence"] == pytest.approx(divergence[:, position - 1].tolist(), rel=2e-2, abs=1e-4)
        assert at["lost_bits"] == pytest.approx(lost[:, :position].mean(1).tolist(), rel=2e-2, abs=1e-2)
        same = (exact.argmax(-1) == other.argmax(-1))[:, :position].double().mean(1)
        assert at["agreement"] == (100 * same).tolist()
    assert min(found["divergence"]["at"]["8"]) > 0


@torch.no_grad()
def test_an_exact_cache_does_not_drift() -> None:
    """Keys and values that bf16 holds: weights of the layer are zero but for biases that are whole numbers."""
    model = language_model()
    layer = next(m for m in model.modules() if isinstance(m, FullAttention))
    for linear in (layer.w_k, layer.w_v):
        linear.weight.zero_()
        linear.bias.copy_(torch.arange(len(linear.bias)).float())
    tokens = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(2))
    found = Drift(of=Reader(model, model, tokens), rows={"row": "bf16"}, positions=[5], threads=1)(1)["row"]
    assert found["divergence"]["at"]["5"] == pytest.approx([0, 0], abs=1e-9)
    assert found["agreement"]["at"]["5"] == [100, 100]
