"""What transformers calls, with the arguments that it gives, against an oracle; and inside its models, where it is there."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.adapters import transformers_attention
from common.adapters.transformers_attention import attend, name_of, register
from reproductions.peers import attention_interface

BACKENDS = ("reference", "sdpa", "chunked")
EMPTY = torch.finfo(torch.float64).min


def layer(is_causal: bool) -> nn.Module:
    module = nn.Module()
    module.is_causal = is_causal  # type: ignore[assignment]
    return module


def inputs(lq: int, lk: int, kv_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, lq, 8), torch.randn(2, kv_heads, lk, 8), torch.randn(2, kv_heads, lk, 8)
    return q.double(), k.double(), v.double()


def oracle(q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float) -> Tensor:
    """As transformers' eager attention: keys repeated, a mask added. added: broadcastable to (B, H, Lq, Lk). Gives (B, Lq,
    H, D)."""
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    weights = (torch.einsum("bhid,bhjd->bhij", q, k) * scale + added).softmax(-1)
    return torch.einsum("bhij,bhjd->bihd", weights, v)


def added(keep: Tensor) -> Tensor:
    return torch.zeros(keep.shape).double().masked_fill(~keep, EMPTY)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_bool_mask_says_what_is_seen(kv_heads: int, backend: str) -> None:
    """(B, 1, Lq, Lk), padding and order in one, whatever is_causal says, with the scale that is given."""
    q, k, v = inputs(5, 5, kv_heads)
    keep = torch.ones(5, 5, dtype=torch.bool).tril() & (torch.arange(5) < torch.tensor([[5], [2]]))[:, None, None]
    for causal in (True, False):
        got, weights = attend(layer(causal), q, k, v, keep, dropout=0.0, scaling=0.7, backend=backend, use_cache=True)
        assert weights is None and got.is_contiguous()
        torch.testing.assert_close(got, oracle(q, k, v, added(keep), 0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_of_numbers_is_added(backend: str) -> None:
    """(B, H, Lq, Lk), of a size that a mask from 0 and 1 would not have."""
    q, k, v = inputs(5, 7)
    numbers = torch.randn(2, 4, 5, 7).double().masked_fill(torch.rand(2, 4, 5, 7) < 0.3, EMPTY)
    got, _ = attend(layer(True), q, k, v, numbers, scaling=0.7, backend=backend)
    torch.testing.assert_close(got, oracle(q, k, v, numbers, 0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("of_layer", "given"), [(True, None), (False, None), (True, False), (False, True)])
def test_without_a_mask_is_causal_counts_the_argument_before_the_layer(
    of_layer: bool, given: bool | None, backend: str
) -> None:
    q, k, v = inputs(5, 5)
    keep = torch.ones(5, 5, dtype=torch.bool)
    if given or (given is None and of_layer):
        keep = keep.tril()
    got, _ = attend(layer(of_layer), q, k, v, None, scaling=8**-0.5, is_causal=given, backend=backend)
    torch.testing.assert_close(got, oracle(q, k, v, added(keep), 8**-0.5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_query_sees_all_keys_and_a_prompt_none_of_the_empty_places_behind_it(backend: str) -> None:
    """A step of decoding, and a prompt of 5 in a static cache of 9, whose end is not to be read."""
    q, k, v = inputs(1, 9)
    got, _ = attend(layer(True), q, k, v, None, scaling=0.7, backend=backend)
    torch.testing.assert_close(got, oracle(q, k, v, torch.zeros(1, 9).double(), 0.7), rtol=0, atol=1e-12)
    q, k, v = inputs(5, 9)
    got, _ = attend(layer(True), q, k, v, None, scaling=0.7, backend=backend)
    want = oracle(q, k[:, :, :5], v[:, :, :5], added(torch.ones(5, 5, dtype=torch.bool).tril()), 0.7)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias", "output_attentions"])
def test_what_would_change_the_result_is_refused(name: str) -> None:
    q, k, v = inputs(5, 5)
    given: Any = torch.ones(4) if name in ("s_aux", "position_bias") else 30.0 if name == "softcap" else True
    with pytest.raises(ValueError, match=f"attention_reproductions:chunked.*got {name}"):
        attend(layer(True), q, k, v, None, backend="chunked", **{name: given})
    nothing: Any = False if given is True else None
    attend(layer(True), q, k, v, None, backend="chunked", **{name: nothing})


def test_dropout_reaches_the_weights() -> None:
    """All values 1: without dropout every output is 1; with it they spread around 1."""
    q, k, v = inputs(64, 64)
    got, _ = attend(layer(False), q, k, torch.ones_like(v), None, dropout=0.5, backend="chunked")
    assert got.std() > 0.05 and abs(got.mean() - 1) < 0.1
    with pytest.raises(ValueError, match="backend 'sdpa' draws its own random numbers"):
        attend(layer(False), q, k, v, None, dropout=0.5, backend="sdpa")


# From here on with transformers itself: python -m pytest in the environment of bench-peers, with pytest added.


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backend of each call from here on, so that nothing else can have answered."""
    calls: list[str] = []
    ours = transformers_attention.attend

    def counted(*args: Any, **given: Any) -> Any:
        calls.append(given["backend"])
        return ours(*args, **given)

    monkeypatch.setattr(transformers_attention, "attend", counted)
    register()
    return calls


def test_models_agree_with_eager() -> None:
    """Llama with grouped heads, Mistral with a window and BERT, with no padding, right and left, three of our backends."""
    pytest.importorskip("transformers")
    found = list(attention_interface.differences())
    assert len(found) == 3 * 3 * len(attention_interface.IMPLEMENTATIONS)
    assert [entry for entry in found if not entry[3] <= attention_interface.LIMIT] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_our_backend_is_what_runs_and_gradients_agree(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    calls = count_calls(monkeypatch)
    words, mask = torch.arange(60).view(2, 30) % 45 + 5, torch.arange(30) < torch.tensor([[30], [11]])
    for model in attention_interface.models().values():
        found = {}
        for implementation in ("eager", name_of(backend)):
            calls.clear()
            model.set_attn_implementation(implementation)
            model.zero_grad()
            (model(words, attention_mask=mask.long()).last_hidden_state[mask] ** 3).mean().backward()
            assert calls == ([] if implementation == "eager" else [backend] * 2)  # once in each of two layers
            found[implementation] = model.get_input_embeddings().weight.grad.clone()
        largest = found["eager"].abs().max()
        torch.testing.assert_close(found[name_of(backend)], found["eager"], rtol=0, atol=float(1e-4 * largest))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache_agrees(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy, prompts with padding on the left: the same words as eager's, one call a layer and word."""
    theirs = pytest.importorskip("transformers")
    calls = count_calls(monkeypatch)
    torch.manual_seed(0)
    config = theirs.LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = theirs.LlamaForCausalLM(config).eval()
    words, mask = torch.randint(5, 50, (3, 9)), (torch.arange(9) >= torch.tensor([[0], [4], [7]])).long()
    settings = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache, "disable_compile": True}
    for given in (mask, torch.ones_like(mask)):
        found = []
        for implementation in ("eager", name_of("chunked")):
            calls.clear()
            model.set_attn_implementation(implementation)
            found.append(model.generate(words, attention_mask=given, **settings))
        assert calls == ["chunked"] * 24
        assert torch.equal(*found) and len(found[0][0].unique()) > 3


def test_loading_a_folder_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("transformers")
    calls = count_calls(monkeypatch)
    saved = attention_interface.models()["bert"]
    saved.save_pretrained(tmp_path)

    def refused(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refused)
    words = torch.arange(20).view(1, 20) + 5
    loaded = theirs.AutoModel.from_pretrained(tmp_path, attn_implementation=name_of("chunked")).eval()
    got = loaded(words).last_hidden_state
    assert calls == ["chunked"] * 2
    torch.testing.assert_close(got, saved(words).last_hidden_state, rtol=0, atol=1e-5)


def test_every_backend_is_registered_with_its_masks() -> None:
    theirs = pytest.importorskip("transformers")
    names = register()
    assert "attention_reproductions:triton" in names and len(names) == 5
    for registry in (theirs.AttentionInterface, theirs.AttentionMaskInterface):
        assert set(names) <= set(registry().valid_keys())
