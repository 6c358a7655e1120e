"""Our backends inside models of the transformers library, against its own eager and sdpa: small random models made from a
config, which need nothing from the hub."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from common.adapters.transformers_attention import name_of, register

WORDS, LENGTH, WINDOW, LIMIT = 50, 200, 20, 2e-5
"""LENGTH: several blocks of the chunked backend. With heads of 8 it would give eager's very bits, and show less."""
IMPLEMENTATIONS = ("sdpa", *map(name_of, ("reference", "sdpa", "chunked")))
"""Compared to eager. flex compiles each shape first and triton needs a GPU; both are registered."""


def models() -> dict[str, Any]:
    """Causal with grouped heads, so with a sliding window too, and not causal. Weights are large, so that it matters which
    keys are seen."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers as theirs  # type: ignore[import-not-found]

    shape = {
        "vocab_size": WORDS, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 8, "initializer_range": 0.2,
    }  # fmt: skip
    grouped = {**shape, "num_key_value_heads": 2}
    torch.manual_seed(0)
    return {
        "llama": theirs.LlamaModel(theirs.LlamaConfig(**grouped)).eval(),
        "mistral": theirs.MistralModel(theirs.MistralConfig(**grouped, sliding_window=WINDOW)).eval(),
        "bert": theirs.BertModel(theirs.BertConfig(**shape)).eval(),
    }


def masks() -> dict[str, Tensor | None]:
    """Which tokens are real, int64 (3, LENGTH), 1 = a real one."""
    place, lengths = torch.arange(LENGTH), torch.tensor([[LENGTH], [7], [130]])
    right, left = (place < lengths).long(), (place >= LENGTH - lengths).long()
    return {"no padding": None, "right padding": right, "left padding": left}


@torch.no_grad()
def differences() -> Iterator[tuple[str, str, str, float]]:
    """Model, mask, implementation, and the largest difference of its last states from eager's, at real tokens."""
    register()
    words = torch.randint(5, WORDS, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    for name, model in models().items():
        for how, mask in masks().items():
            real = torch.ones_like(words) if mask is None else mask
            found = {}
            for implementation in ("eager", *IMPLEMENTATIONS):
                model.set_attn_implementation(implementation)  # which may only warn, and keep the one before
                assert model.config._attn_implementation == implementation, model.config._attn_implementation
                found[implementation] = model(words, attention_mask=mask).last_hidden_state[real.bool()]
            for implementation in IMPLEMENTATIONS:
                difference = (found[implementation] - found["eager"]).abs().max()
                yield name, how, implementation, float(difference)


def main() -> None:
    print(f"largest difference from eager of the last states, about 1 in size, at most {LIMIT:g}")
    print(f"{'model':10}{'mask':16}{'implementation':38}{'difference':>10}")
    for name, how, implementation, difference in differences():
        print(f"{name:10}{how:16}{implementation:38}{difference:10.1e}")
        assert difference <= LIMIT, (name, how, implementation, difference)
