"""Published shapes: parameter counts as published, caches by hand, and against the configs that transformers holds."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from common.adapters.presets import PRESETS

STORED = {
    "bert-base": 109_482_240,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "falcon-7b": 7_217_189_760,
    "falcon-40b": 41_835_970_560,
    "mistral-7b": 7_241_732_096,
}
"""Numbers in the published weights."""

PUBLISHED = {
    "bert-base": 110e6,
    "llama-2-7b": 6.74e9,
    "llama-2-13b": 13.0e9,
    "llama-2-70b": 69.0e9,
    "llama-3-8b": 8.03e9,
    "falcon-7b": 7.2e9,
    "falcon-40b": 41.8e9,
    "mistral-7b": 7.24e9,
}


def test_all_are_checked() -> None:
    assert PRESETS.keys() == STORED.keys() == PUBLISHED.keys()
    assert all("arXiv" in preset.source and "/" in preset.source for preset in PRESETS.values())


@pytest.mark.parametrize("name", PRESETS)
def test_parameters(name: str) -> None:
    assert PRESETS[name].parameters == STORED[name]
    assert PRESETS[name].parameters == pytest.approx(PUBLISHED[name], rel=0.01)


@pytest.mark.parametrize("name", PRESETS)
def test_heads_make_up_the_hidden_size(name: str) -> None:
    preset = PRESETS[name]
    assert preset.heads * preset.head_dim == preset.hidden and preset.heads % preset.kv_heads == 0


def test_kinds() -> None:
    kinds = {name: preset.kind for name, preset in PRESETS.items()}
    multi_head = dict.fromkeys(("bert-base", "llama-2-7b", "llama-2-13b"), "multi-head")
    grouped = dict.fromkeys(("llama-2-70b", "llama-3-8b", "falcon-40b", "mistral-7b"), "grouped-query")
    assert kinds == multi_head | grouped | {"falcon-7b": "multi-query"}


@pytest.mark.parametrize(
    ("name", "elements", "a_token"),
    [
        ("llama-2-7b", 8192, 524_288),  # 32 layers, 2 bytes: half a MiB
        ("llama-2-13b", 10_240, 819_200),
        ("llama-2-70b", 2048, 327_680),  # less than 7B, with ten times the weights
        ("llama-3-8b", 2048, 131_072),
        ("falcon-7b", 128, 8192),
        ("falcon-40b", 1024, 122_880),
        ("mistral-7b", 2048, 131_072),
    ],
)
def test_caches_by_hand(name: str, elements: int, a_token: int) -> None:
    preset = PRESETS[name]
    assert preset.cache_elements == elements
    assert preset.plan().bytes_per_token == preset.cache_bytes(1) == a_token
    assert preset.cache_bytes(2048, sequences=3) == 3 * 2048 * a_token
    assert preset.cache_bytes(2048, dtype=torch.float32) == 2 * 2048 * a_token


def test_a_window_is_all_that_is_kept() -> None:
    mistral, llama = PRESETS["mistral-7b"], PRESETS["llama-3-8b"]
    assert mistral.cache_bytes(4095) == llama.cache_bytes(4095) == 4095 * 131_072
    assert mistral.cache_bytes(32_768) == 4096 * 131_072
    assert llama.cache_bytes(32_768) == 32_768 * 131_072


def test_bert_keeps_nothing() -> None:
    assert PRESETS["bert-base"].cache_elements == 2 * 768
    with pytest.raises(ValueError, match="cache: got a BERT"):
        PRESETS["bert-base"].cache_bytes(512)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head_dim": 65}, r"heads \* head_dim: got 12 \* 65, expected 768"),
        ({"kv_heads": 5}, "kv_heads: got 5, expected a divisor of heads 12"),
        ({"kv_heads": 0}, "kv_heads: got 0"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PRESETS["bert-base"], **changed)


DEFAULTS = {
    "bert-base": "BertConfig",
    "llama-2-7b": "LlamaConfig",
    "falcon-7b": "FalconConfig",
    "mistral-7b": "MistralConfig",
}
"""Whose default is that very model. LlamaConfig's is the first Llama 7B, of the same shape."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_of_transformers(name: str) -> None:
    theirs = pytest.importorskip("transformers")
    config, preset = getattr(theirs, DEFAULTS[name])(), PRESETS[name]
    got = preset.hidden, preset.layers, preset.heads, preset.vocabulary, preset.window
    want = config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.vocab_size
    assert got == (*want, getattr(config, "sliding_window", None))
    assert preset.d_ff == getattr(config, "intermediate_size", None) or preset.d_ff == config.ffn_hidden_size
    if name == "falcon-7b":
        assert config.multi_query and preset.kv_heads == 1  # num_kv_heads is read by the newer architecture alone
    else:
        assert preset.kv_heads == getattr(config, "num_key_value_heads", config.num_attention_heads)
    assert preset.head_dim == getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_a_model_of_transformers(name: str) -> None:
    """Built without memory for its weights."""
    theirs, preset = pytest.importorskip("transformers"), PRESETS[name]
    shape: dict[str, Any] = {
        "hidden_size": preset.hidden, "num_hidden_layers": preset.layers, "num_attention_heads": preset.heads,
        "vocab_size": preset.vocabulary, "tie_word_embeddings": False,
    }  # fmt: skip
    with torch.device("meta"):
        if preset.family == "bert":
            model = theirs.BertModel(theirs.BertConfig(**shape, intermediate_size=preset.d_ff))
        elif preset.family == "llama":
            grouped = {"intermediate_size": preset.d_ff, "num_key_value_heads": preset.kv_heads}
            model = theirs.LlamaForCausalLM(theirs.LlamaConfig(**shape, **grouped))
        else:
            newer = {"new_decoder_architecture": preset.kv_heads > 1, "num_kv_heads": preset.kv_heads}
            model = theirs.FalconForCausalLM(theirs.FalconConfig(**shape, **newer, ffn_hidden_size=preset.d_ff))
    assert sum(parameter.numel() for parameter in model.parameters()) == preset.parameters
