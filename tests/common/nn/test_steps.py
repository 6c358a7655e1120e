"""A text read position by position is the text read at once."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.attention import RotaryScaling
from common.attention.cache import Remembered
from common.nn.latent import Latent
from common.nn.linear import Elu, Favor
from common.nn.long import LanguageModel, Memory
from common.nn.positioned import Biased, Disentangled, Shaw
from common.nn.sparse import Factory, Full, Local

REMEMBER: dict[str, Factory] = {
    "full": Full(backend="reference", causal=True),
    "relative": Full(backend="reference", causal=True, relative=True),
    "multi-query": Full(backend="reference", causal=True, kv_heads=1),
    "multi-query, relative": Full(backend="chunked", causal=True, kv_heads=1, relative=True),
    "rotary": Full(backend="reference", causal=True, rotary=True),
    "multi-query, rotary": Full(backend="chunked", causal=True, kv_heads=1, rotary=True),
    "interpolation": Full(
        backend="reference", causal=True, rotary=True, rotary_scaling=RotaryScaling("interpolation", 4)
    ),
    "ntk": Full(backend="reference", causal=True, rotary=True, rotary_scaling=RotaryScaling("ntk", 4)),
    "shaw": Shaw(backend="reference", causal=True, clip=3),
    "multi-query, shaw's keys": Shaw(backend="chunked", causal=True, kv_heads=1, clip=3, values=False),
    "multi-query, disentangled": Disentangled(backend="chunked", causal=True, kv_heads=1, clip=3),
    "t5": Biased(backend="reference", causal=True, kind="t5", buckets=8),
    "multi-query, alibi": Biased(backend="chunked", causal=True, kv_heads=1, kind="alibi"),
    "latent": Latent(backend="reference", causal=True, latent=5, rotary_dim=4),
    "latent queries": Latent(backend="chunked", causal=True, latent=5, rotary_dim=4, query_latent=7),
    "elu": Elu(causal=True),
    "positive": Favor(causal=True, features=7),
    "relu": Favor(causal=True, features=7, kind="relu"),
}


def model(attention: Factory, **options: Any) -> LanguageModel:
    torch.manual_seed(0)
    made = LanguageModel(11, 2, 12, 3, 16, attention=attention, **options)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made.double().eval()


def read(made: LanguageModel, tokens: Tensor) -> tuple[Tensor, list[Memory]]:
    memory, logits, memories = None, [], []
    for t in range(tokens.shape[1]):
        found, memory = made.step(tokens[:, t], memory)
        logits.append(found)
        memories.append(memory)
    return torch.stack(logits, 1), memories


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
@pytest.mark.parametrize("kind", REMEMBER)
def test_steps_give_what_the_whole_text_gives(kind: str, positions: str) -> None:
    made = model(REMEMBER[kind], positions=positions, max_length=9 if positions == "learned" else None)
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1))
    found, memories = read(made, tokens)
    torch.testing.assert_close(found, made(tokens))
    assert memories[-1].seen == 9


def size(memory: Memory) -> int:
    """Numbers that are kept."""
    of_layers = [(of.keys, of.values) if isinstance(of, Remembered) else of for of in memory.layers]
    return sum(part.numel() for layer in of_layers for part in layer if isinstance(part, Tensor))


def test_keys_and_values_grow_and_sums_do_not() -> None:
    """Katharopoulos et al. 2020, section 3.4. Two layers of three heads of four: 2 * 2 * 12 numbers a token of keys and
    values, a third of it with one head of both, and the latent and its rotary key; sums of 4 features by 4 values and their
    normaliser."""
    tokens = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(1))
    kept = [size(memory) for memory in read(model(REMEMBER["full"]), tokens)[1]]
    assert kept == [48 * (t + 1) for t in range(9)]
    of_query = [size(memory) for memory in read(model(REMEMBER["multi-query"]), tokens)[1]]
    of_latent = [size(memory) for memory in read(model(REMEMBER["latent"]), tokens)[1]]
    assert of_query == [16 * (t + 1) for t in range(9)] and of_latent == [2 * (5 + 4) * (t + 1) for t in range(9)]
    assert {size(memory) for memory in read(model(REMEMBER["elu"]), tokens)[1]} == {2 * 3 * 4 * 5}


@pytest.mark.parametrize(
    "attention",
    [Local(backend="chunked", block=4, causal=True), Favor(causal=True, features=7, kind="trigonometric")],
)
def test_layers_that_need_the_whole_text_say_so(attention: Factory) -> None:
    with pytest.raises(ValueError, match="got a single position, expected whole sequences"):
        model(attention).step(torch.tensor([1]))


def test_one_more_position_than_there_are_is_refused() -> None:
    made = model(REMEMBER["elu"], positions="learned", max_length=3)
    with pytest.raises(ValueError, match="tokens: got 4 in a row, expected at most 3"):
        read(made, torch.zeros(1, 4, dtype=torch.int64))
