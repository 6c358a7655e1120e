"""A layer that keeps its keys and values in a growing cache."""

import torch
from torch import Tensor

from common.attention.cache import GrowingCache
from common.nn.long import LanguageModel, Memory
from common.nn.sparse import Full
from reproductions.performer_linformer.generation import bytes_of


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(11, 2, 12, 3, 16, attention=Full(backend="reference", causal=True)).double().eval()


@torch.no_grad()
def read(made: LanguageModel, tokens: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """Logits of the last, and what is remembered."""
    logits = torch.empty(0)
    for t in range(tokens.shape[1]):
        logits, memory = made.step(tokens[:, t], memory)
    assert memory is not None
    return logits, memory


def test_two_texts_with_one_beginning() -> None:
    """The second does not see what the first wrote to the cache that they have in common."""
    made, tokens = model(), torch.randint(11, (2, 3, 20), generator=torch.Generator().manual_seed(1))
    first, second = (torch.cat((tokens[0, :, :9], x[:, 9:]), 1) for x in tokens)
    memory = read(made, first[:, :9])[1]
    for text in (first, second):
        logits, after = read(made, text[:, 9:], memory)
        torch.testing.assert_close(logits, made(text)[:, -1])
        assert after.seen == 20 and memory.layers[0].keys.shape[2] == 9


def test_a_token_is_written_once() -> None:
    """20 tokens: allocated for 16 and for 32."""
    made, tokens = model(), torch.zeros(1, 20, dtype=torch.int64)
    memory, places = None, set()
    for t in range(20):
        memory = read(made, tokens[:, t : t + 1], memory)[1]
        kept = memory.layers[0]
        keys, values, cache = kept.keys, kept.values, kept.cache
        assert isinstance(cache, GrowingCache) and keys.shape[2] == values.shape[2] == t + 1
        assert keys.data_ptr() == cache.planes[0].data_ptr() and values.data_ptr() == cache.planes[1].data_ptr()
        places.add(keys.data_ptr())
    assert len(places) == 2


def test_bytes_remembered_are_those_of_the_tokens() -> None:
    """Of two layers keys and values of twelve numbers, eight bytes each; what is allocated ahead does not count."""
    memory = read(model(), torch.zeros(5, 20, dtype=torch.int64))[1]
    assert bytes_of(memory) == 2 * 2 * 12 * 8 * 5 * 20
