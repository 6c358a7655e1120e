"""Published models and other libraries: shapes, weights, layouts."""

from collections.abc import Iterator
from importlib.util import find_spec

import torch
from torch import Generator, nn

from common.adapters import transformers_attention
from common.adapters.layouts import flash_attn_func, memory_efficient_attention
from common.adapters.presets import PRESETS
from common.adapters.torch_multihead import from_torch, mask_from_torch
from common.attention import Full
from reproductions.field_guide.exact.scores import DEEP, EXACT, drawn
from reproductions.field_guide.exact.value import Unavailable, Value, about, at_most, same, true


def bert(draw: Generator) -> Iterator[Value]:
    """B38: BERT-base has 12 heads of 64 over 768."""
    model = PRESETS["bert-base"]
    yield about("dimensions", model.hidden, 768)
    yield about("heads", model.heads, 12)
    yield about("dimensions over heads", model.hidden / model.heads, 64)
    yield about("million parameters", model.parameters / 1e6, 110, 1.1)


def grouped(draw: Generator) -> Iterator[Value]:
    """B16: Llama 2 and Falcon share keys and values by groups."""
    for name in ("llama-2-7b", "llama-2-13b", "llama-2-70b", "falcon-7b", "falcon-40b"):
        yield true(f"{name} is grouped-query", PRESETS[name].kind == "grouped-query")


def grouped_large(draw: Generator) -> Iterator[Value]:
    """B16's limit: the largest ones do, the small Llama 2 is multi-head and the small Falcon multi-query."""
    kinds = {
        "llama-2-7b": "multi-head", "llama-2-13b": "multi-head", "llama-2-70b": "grouped-query",
        "falcon-7b": "multi-query", "falcon-40b": "grouped-query",
    }  # fmt: skip
    for name, kind in kinds.items():
        yield true(f"{name} is {kind}", PRESETS[name].kind == kind)


def torch_weights(draw: Generator) -> Iterator[Value]:
    """B39: torch's nn.MultiheadAttention and ours are the same layer: with its weights ours gives what it gives."""
    torch.manual_seed(0)
    for dtype, within in ((torch.float32, 1e-6), (DEEP, EXACT)):
        theirs = nn.MultiheadAttention(16, 4, batch_first=True, dtype=dtype)
        nn.init.normal_(theirs.in_proj_bias)
        ours = from_torch(theirs, backend="reference")
        x, memory = drawn(draw, 2, 5, 16, dtype=dtype), drawn(draw, 2, 7, 16, dtype=dtype)
        hidden = torch.zeros(2, 7, dtype=torch.bool)
        hidden[1, 4:] = True
        with torch.no_grad():
            expected = theirs(x, x, x, need_weights=False)[0]
            yield same(f"self, {dtype}", ours(x, mask=Full()), expected, within)
            expected = theirs(x, memory, memory, key_padding_mask=hidden, need_weights=False)[0]
            yield same(f"cross, padded, {dtype}", ours(x, memory, mask=mask_from_torch(hidden)), expected, within)


def layouts(draw: Generator) -> Iterator[Value]:
    """B41, the exact half: with (batch, length, heads, dim) as xformers and flash-attn have it, softmax(Q K^T / sqrt(d)) V."""
    q, k, v = drawn(draw, 2, 5, 3, 8), drawn(draw, 2, 7, 3, 8), drawn(draw, 2, 7, 3, 8)
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) / 8**0.5).softmax(-1)
    expected = torch.einsum("bhij,bjhd->bihd", weights, v)
    yield same("memory_efficient_attention", memory_efficient_attention(q, k, v, backend="reference"), expected, EXACT)
    yield same("flash_attn_func", flash_attn_func(q, k, v, backend="reference"), expected, EXACT)


def transformers(draw: Generator) -> Iterator[Value]:
    """B40: a model of the transformers library takes its attention by name: eager, sdpa and ours agree."""
    if find_spec("transformers") is None:
        raise Unavailable("needs the package transformers: make bench-peers ROW=attention_interface compares them")
    from transformers import LlamaConfig, LlamaForCausalLM  # pyright: ignore[reportMissingImports]

    transformers_attention.register()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50}
    config = LlamaConfig(hidden_size=64, intermediate_size=64, **sizes)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    words, found = torch.randint(50, (2, 20), generator=draw), {}
    for name in ("eager", "sdpa", transformers_attention.name_of("chunked")):
        model.set_attn_implementation(name)
        with torch.no_grad():
            found[name] = model(words).logits
        yield at_most(f"difference from eager, {name}", (found[name] - found["eager"]).abs().max(), 1e-4)
