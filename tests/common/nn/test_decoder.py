"""Decoding a word at a time against teacher forcing and against a search without a cache."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import common.decode.beam as beam_module
from common.attention.cache import Remembered
from common.decode import Hypothesis, State, beam_search
from common.decode.forced import forced_weights
from common.nn.decoder import Tensors
from common.nn.encoder_decoder import Transformer
from common.nn.multihead import MultiHead
from common.nn.no_cache import NoCache
from tests.common.nn.tiny import ABLATIONS, BOS, EOS, PAD, WORDS, prefixes, sentences, transformer

EXACT: dict[str, Any] = {"rtol": 0.0, "atol": 1e-12}
LENGTHS = [6, 1, 4]


def recomputed(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Log-probs (B, T, V) of what follows each prefix, by teacher forcing of each prefix from its first word on."""
    rows = []
    for t in range(target.shape[1]):
        prefix = target[:, : t + 1]
        logits = model(source, source != PAD, prefix, torch.ones_like(prefix, dtype=torch.bool))
        rows.append(logits.unflatten(0, prefix.shape)[:, -1].log_softmax(-1))
    return torch.stack(rows, 1)


def stepwise(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The same, (B, T, V), one word after another; target: (B, K, T) or (B, T)."""
    memory, state = model.begin(source, source != PAD)
    target = target if target.ndim == 3 else target[:, None]
    each = torch.arange(len(source)).repeat_interleave(target.shape[1])
    state = {name: kept.reordered(each) for name, kept in state.items()}
    rows = []
    for t in range(target.shape[-1]):
        log_probs, state, _ = model.step(memory, state, target[..., t])
        rows.append(log_probs)
    return torch.stack(rows, 2)


@pytest.mark.parametrize("lengths", [[5], LENGTHS], ids=["alone", "mixed"])
@pytest.mark.parametrize("name", ABLATIONS)
def test_each_step_is_as_recomputed(name: str, lengths: list[int]) -> None:
    """Three hypotheses a sentence, each with words of its own."""
    model = transformer(**ABLATIONS[name])
    source = sentences(lengths)
    targets = [torch.where((ids := prefixes([8] * len(lengths), seed)) == EOS, 5, ids) for seed in (2, 3, 4)]
    found = stepwise(model, source, torch.stack(targets, 1))
    for n, target in enumerate(targets):
        torch.testing.assert_close(found[:, n], recomputed(model, source, target), **EXACT)


def test_in_full_precision_only() -> None:
    """Log-probs of a 16-bit model are fp32, of others of the model's own."""
    source, target = sentences([3]), prefixes([4])
    for dtype, wide in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert stepwise(transformer().to(dtype), source, target).dtype == wide


@pytest.mark.parametrize("name", ["as published", "multi-query", "everything"])
def test_weights_are_those_of_the_last_layer(name: str) -> None:
    """softmax(q k^T / sqrt(d_k)) head by head, from what goes into the last cross-attention in teacher forcing."""
    model = transformer(**ABLATIONS[name])
    source, target = sentences(LENGTHS), prefixes([5, 5, 5])
    cross = model.decoder.blocks[-1].get_submodule("cross")
    assert isinstance(cross, MultiHead)
    went_in: list[Tensor] = []
    cross.register_forward_hook(lambda _, given, __: went_in.extend(given))
    model(source, source != PAD, target, target != PAD)
    queries, keys = cross.w_q(went_in[0]), cross.w_k(went_in[1])
    found = forced_weights(model, source, source != PAD, target)
    assert found is not None and found.shape == (3, 5, 6)
    heads, d_k = cross.heads, cross.head_dim_k
    for b, length in enumerate(LENGTHS):
        expected = torch.zeros(5, length).double()
        for h in range(heads):
            of_keys = h // (heads // cross.kv_heads)
            q, k = queries[b, :, h * d_k : (h + 1) * d_k], keys[b, :length, of_keys * d_k : (of_keys + 1) * d_k]
            expected += (q @ k.T / d_k**0.5).softmax(-1) / heads
        torch.testing.assert_close(found[b, :, :length], expected, **EXACT)
        assert not found[b, :, length:].any()


def copies(state: dict[str, Remembered]) -> dict[str, Tensor]:
    return {
        f"{name}.{n}": part.clone() for name, kept in state.items() for n, part in enumerate((kept.keys, kept.values))
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("window", [None, 1, 2])
def test_a_step_changes_nothing_it_was_given(window: int | None) -> None:
    """So that one state may be gone on from twice, with other words."""
    model = transformer(decoder_window=window)
    memory, state = model.begin(source := sentences(LENGTHS), source != PAD)
    for word in (BOS, 4, 5, 6):
        _, state, _ = model.step(memory, state, torch.full((3, 1), word))
        kept = copies(state)
        first, after, _ = model.step(memory, state, torch.full((3, 1), 7))
        second = copies(after)
        model.step(memory, state, torch.full((3, 1), 8))
        assert same(copies(state), kept) and same(copies(after), second)
        assert torch.equal(model.step(memory, state, torch.full((3, 1), 7))[0], first)


@pytest.mark.parametrize(("window", "seen"), [(None, [0, 1, 2, 3, 4, 5]), (2, [0, 1, 2, 2, 2, 2])])
def test_what_is_kept(window: int | None, seen: list[int]) -> None:
    """Of the source keys and values once a sentence, of the target one position more a step and hypothesis, or the last ones."""
    model = transformer(kv_heads=2, head_dim_k=3, head_dim_v=5, decoder_window=window)
    memory, state = model.begin(source := sentences(LENGTHS), source != PAD)
    assert {name: tensor.shape[1:] for name, tensor in memory.items()} == {
        "mask": (6,), "keys_0": (2, 6, 3), "values_0": (2, 6, 5), "keys_1": (2, 6, 3), "values_1": (2, 6, 5),
    }  # fmt: skip
    for t, count in enumerate(seen):
        assert {name: tuple(x.shape) for name, x in copies(state).items()} == {
            f"target_{n}.{part}": (3, 2, count, size) for n in range(2) for part, size in enumerate((3, 5))
        }
        assert model.decoder.position(state) == t
        _, state, _ = model.step(memory, state, torch.full((3, 1), 4))


def test_positions_out_of_the_window_are_given_back() -> None:
    """Of 60 positions no more are allocated than the window of 5 needs when it is moved half of twice its size at a time."""
    model = transformer(decoder_window=5)
    memory, state = model.begin(source := sentences([3]), source != PAD)
    for _ in range(60):
        _, state, _ = model.step(memory, state, torch.full((1, 1), 4))
        assert all(kept.cache.capacity <= 16 and kept.cache.lengths[0] <= 10 for kept in state.values())


def test_padding_of_the_source_is_never_looked_at() -> None:
    model = transformer(share_embeddings=False)
    source, target = sentences(LENGTHS), prefixes([4, 4, 4])
    expected = stepwise(model, source, target)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = torch.nan
    torch.testing.assert_close(stepwise(model, source, target), expected, **EXACT)


def test_behind_the_last_learned_position() -> None:
    """Four fit to the brim; the fifth is refused and the state is as it was."""
    model = transformer(positions="learned", max_length=4)
    memory, state = model.begin(source := sentences([3]), source != PAD)
    for _ in range(4):
        _, state, _ = model.step(memory, state, torch.full((1, 1), 4))
    before = copies(state)
    with pytest.raises(ValueError, match="got 5 in a row, expected at most 4"):
        model.step(memory, state, torch.full((1, 1), 4))
    assert same(copies(state), before)


# Search


class Ending:
    """A model to which the end of a sentence gets the more likely the longer it is, in order that sentences do end.

    One more thing to be reordered: `clock`, the words so far.
    """

    def __init__(self, model: Transformer | NoCache) -> None:
        self.model = model

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Tensors, dict[str, Any]]:
        memory, state = self.model.begin(source, source_mask)
        return memory, state | {"clock": torch.zeros(len(source), 1)}

    def step(
        self, memory: Tensors, state: dict[str, Any], tokens: Tensor
    ) -> tuple[Tensor, dict[str, Any], Tensor | None]:
        log_probs, after, weights = self.model.step(memory, state, tokens)
        bonus = 0.5 * (state["clock"] - 3)
        log_probs = log_probs + bonus.unsqueeze(-1) * nn.functional.one_hot(torch.tensor(EOS), WORDS)
        return log_probs.log_softmax(-1), after | {"clock": state["clock"] + 1}, weights


def searched(**settings: Any) -> Transformer:
    """Weights with which hypotheses overtake each other."""
    model = transformer(**settings)
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        if ".norm" in name or "last" in name:
            nn.init.constant_(parameter, float(name.endswith("weight")))
        else:
            nn.init.normal_(parameter, std=0.6 if "embedding" in name else 1.0)
    return model


def search(
    model: Transformer | NoCache, source: Tensor, beam: int, *, n_best: int = 1, alpha: float = 0.6
) -> list[list[Hypothesis]]:
    """At most as many words as the source has, and five more."""
    mask = source != PAD
    given: dict[str, Any] = {"max_len": mask.sum(1) + 5, "length_penalty": alpha, "length_rule": "gnmt"}
    return beam_search(Ending(model), source, mask, bos=BOS, eos=EOS, beam=beam, n_best=n_best, **given)


SIX = [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_search_is_as_without_a_cache(name: str, beam: int) -> None:
    model, source = searched(**ABLATIONS[name]), sentences(SIX)
    cached, plain = (search(way, source, beam, n_best=beam) for way in (model, NoCache(model)))
    for found, expected in zip(cached, plain, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in expected], abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_hypothesis_has_the_score_and_the_weights_of_its_words(beam: int) -> None:
    """By teacher forcing, which knows of no beam: the words of one hypothesis, read with the cache of another, would not."""
    model = searched()
    for source in (row[row != PAD][None] for row in sentences(SIX)):
        for h in search(model, source, beam, n_best=beam)[0]:
            target = torch.tensor([[BOS, *h.tokens]])[:, : len(h.tokens) + h.finished]
            log_probs = recomputed(model, source, target)[0]
            log_probs[:, EOS] += 0.5 * (torch.arange(len(log_probs)) - 3)
            words = torch.tensor([*h.tokens, EOS])[: len(log_probs), None]
            expected = log_probs.log_softmax(-1).gather(1, words).sum().item()
            assert h.log_prob == pytest.approx(expected, abs=1e-5)
            weights = forced_weights(model, source, source != PAD, target)
            assert h.weights is not None and weights is not None
            torch.testing.assert_close(h.weights, weights[0], **EXACT)


def test_those_searches_put_the_cache_to_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypotheses overtake each other, sentences end at different lengths, and a beam finds more than one word at a time."""
    model, source = searched(), sentences(SIX)
    reordered: list[bool] = []
    reorder = beam_module._reorder

    def spied(state: State, rows: Tensor, parents: Tensor, size: tuple[int, int]) -> State:
        reordered.append(not torch.equal(parents, torch.arange(parents.shape[1]).expand_as(parents)))
        return reorder(state, rows, parents, size)

    monkeypatch.setattr(beam_module, "_reorder", spied)
    greedy = [best[0].tokens for best in search(model, source, 1)]
    assert not any(reordered)
    found = search(model, source, 4)
    assert sum(reordered) >= 4
    assert len({len(best[0].tokens) for best in found if best[0].finished}) >= 3
    assert [best[0].tokens for best in found] != greedy


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("size", [2, 6])
def test_a_search_does_not_depend_on_its_batch(size: int, beam: int) -> None:
    model, source = searched(), sentences(SIX)
    alone = [search(model, row[row != PAD][None], beam)[0][0] for row in source]
    together = [best[0] for start in range(0, 6, size) for best in search(model, source[start : start + size], beam)]
    for one, other in zip(alone, together, strict=True):
        assert one.tokens == other.tokens and one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
        assert one.weights is not None and other.weights is not None
        torch.testing.assert_close(one.weights, other.weights)


def test_only_sentences_that_go_on_are_computed() -> None:
    model = searched()
    sizes: list[tuple[int, int]] = []
    feedforward = model.decoder.blocks[0].get_submodule("feedforward")
    feedforward.register_forward_hook(lambda _, given, __: sizes.append(tuple(given[0].shape[:2])))
    steps = sorted(len(best[0].tokens) + best[0].finished for best in search(model, sentences(SIX), 1, alpha=0.0))
    assert len(set(steps)) >= 3
    assert sizes == [(sum(t < step for step in steps), 1) for t in range(steps[-1])]
