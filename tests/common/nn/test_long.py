"""Language and masked models of long texts: counts, causality, padding, stages, and what does not fit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.attention import blocks
from common.nn.latent import Latent
from common.nn.long import LanguageModel, MaskedModel
from common.nn.positioned import Biased, Disentangled, Shaw
from common.nn.sparse import BigBird, Factory, Full, Local, Windowed

SIZES: tuple[int, ...] = (11, 2, 12, 3, 16)

CAUSAL: dict[str, Factory] = {
    "windowed": Windowed(backend="chunked", window=2, causal=True, dilation=[1, 2], dilated_heads=1),
    "relative": Windowed(backend="chunked", window=3, causal=True, relative=True),
    "loop": Windowed(backend="chunked", window=2, causal=True, implementation="loop"),
    "full": Full(backend="sdpa", causal=True),
    "multi-query": Full(backend="sdpa", causal=True, kv_heads=1, rotary=True),
    "shaw": Shaw(backend="reference", causal=True, clip=3),
    "disentangled": Disentangled(backend="chunked", causal=True, clip=3),
    "t5": Biased(backend="chunked", causal=True, kind="t5"),
    "latent": Latent(backend="chunked", causal=True, latent=5, rotary_dim=4, query_latent=7),
    "local": Local(backend="chunked", block=4, causal=True),
}
ENCODERS: dict[str, Factory] = {
    "windowed": Windowed(backend="chunked", window=2, global_attention="separate"),
    "full": Full(backend="sdpa"),
    "multi-query": Full(backend="sdpa", kv_heads=1, rotary=True),
    "relative": Full(backend="chunked", relative=True),
    "shaw": Shaw(backend="reference", clip=3),
    "disentangled": Disentangled(backend="chunked", clip=3),
    "t5": Biased(backend="chunked", kind="t5"),
    "alibi": Biased(backend="sdpa", kind="alibi"),
    "latent": Latent(backend="chunked", latent=5, rotary_dim=4),
    "local": Local(backend="chunked", block=4),
    "itc": BigBird(backend="chunked", block=2, global_blocks=1, random_blocks=1, max_length=20),
    "etc": BigBird(backend="chunked", block=2, global_tokens=3),
}


def large(model: nn.Module) -> Any:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def language(kind: str, **options: Any) -> LanguageModel:
    return large(LanguageModel(*SIZES, attention=CAUSAL[kind], **options))  # type: ignore[arg-type]


def masked(kind: str, **options: Any) -> MaskedModel:
    given = {"positions": "learned", "max_length": 20} | options
    return large(MaskedModel(*SIZES, attention=ENCODERS[kind], **given))  # type: ignore[arg-type]


def tokens(batch: int = 2, time: int = 13) -> Tensor:
    return torch.randint(4, 11, (batch, time), generator=torch.Generator().manual_seed(1))


# Language model


def test_the_papers_character_models_have_41_and_102_million_parameters() -> None:
    """Beltagy et al. 2020, tables 2, 3 and 12: d 512, 8 heads, relative positions; d_ff 2048 and 204 symbols are ours.

    A layer: q, k, v, o; W_r, u, v; the feed-forward network; two norms. Then the tied embedding and the last norm.
    """
    d, ff = 512, 2048
    layer = 4 * (d * d + d) + (d * d + 2 * d) + (d * ff + ff + ff * d + d) + 2 * 2 * d
    factory = Windowed(backend="chunked", window=32, top_window=512, causal=True, relative=True)
    for layers, published in ((12, 41e6), (30, 102e6)):
        with torch.device("meta"):
            model = LanguageModel(204, layers, d, 8, ff, attention=factory)
        count = sum(p.numel() for p in model.parameters())
        assert count == layers * layer + 204 * d + 2 * d
        assert count == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_logits_know_what_comes_after(kind: str) -> None:
    """Another future changes nothing before it, and has no gradient."""
    model, ids = language(kind), tokens()
    other = ids.clone()
    other[:, 8:] = (other[:, 8:] + 1) % 11
    logits = model(ids)
    assert torch.equal(logits[:, :8], model(other)[:, :8]) and not torch.equal(logits[:, 8], model(other)[:, 8])
    vectors: list[Any] = []
    model.trunk.embedding.register_forward_hook(lambda module, args, out: vectors.append(out))
    (gradient,) = torch.autograd.grad(model(ids)[0, 7].square().sum(), vectors[0])
    assert gradient[0, 7].abs().max() > 0 and not gradient[0, 8:].any() and not gradient[1].any()


@pytest.mark.parametrize("kind", CAUSAL)
def test_padding_on_the_right_changes_nothing_before_it(kind: str) -> None:
    model, ids = language(kind), tokens(1)
    beside = torch.cat((ids, torch.zeros(1, 6, dtype=torch.int64)), 1)
    torch.testing.assert_close(model(beside)[:, :13], model(ids))


def test_a_stage_sees_twice_as_far() -> None:
    """Two layers of a window of 3: the logits know 6 tokens before, then 12."""
    model, ids = language("relative"), tokens(1, 30)
    for stage, reach in ((0, 6), (1, 12), (2, 24)):
        logits = model(ids, stage=stage)
        for before, known in ((reach, True), (reach + 1, False)):
            other = ids.clone()
            other[0, 28 - before] = (other[0, 28 - before] - 3) % 7 + 4
            assert torch.equal(model(other, stage=stage)[0, 28], logits[0, 28]) != known


def test_the_softmax_is_tied_to_the_embedding() -> None:
    model, hidden = language("full"), list[Any]()
    model.trunk.register_forward_hook(lambda module, args, out: hidden.append(out))
    logits = model(tokens())
    torch.testing.assert_close(logits, hidden[0] @ model.trunk.embedding.weight.T)


def test_pre_norm_and_gelu_written_out() -> None:
    """x + Attention(LN(x)), x + FFN(LN(x)) with x Phi(x), LN at the end (table 12)."""
    model = large(LanguageModel(11, 1, 12, 3, 16, attention=CAUSAL["full"]))
    block, ids = model.trunk.blocks[0], tokens()
    x = model.trunk.embedding.weight[ids]
    x = x + block.attention(block.norm_1(x))
    y = block.norm_2(x) @ block.feedforward.w_1.weight.T + block.feedforward.w_1.bias
    y = y * torch.special.ndtr(y)
    x = x + y @ block.feedforward.w_2.weight.T + block.feedforward.w_2.bias
    torch.testing.assert_close(model(ids), model.trunk.last(x) @ model.trunk.embedding.weight.T)


def test_initial_weights() -> None:
    """N(0, 0.02^2), those that write into the residual sum over sqrt(2 * layers); global projections are copies again."""
    torch.manual_seed(0)
    factory = Windowed(backend="chunked", window=2, global_attention="separate")
    model = MaskedModel(50, 8, 64, 4, 256, attention=factory)
    for name, parameter in model.trunk.named_parameters():
        if name.endswith(("w_o.weight", "w_2.weight")):
            assert parameter.std().item() == pytest.approx(0.02 / 4, rel=0.06)
        elif name.endswith(("w_q.weight", "w_1.weight", "embedding.weight", "w_k_global.weight")):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
    layer = model.trunk.get_submodule("blocks.3.attention")
    assert torch.equal(layer.w_v_global.weight, layer.w_v.weight)  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"embedding_dropout": 0.5}])
def test_dropout_only_in_training(settings: dict[str, float]) -> None:
    model, none = language("windowed", **settings), language("windowed")
    assert torch.equal(model(tokens()), none(tokens()))
    model.train()
    assert not torch.equal(model(tokens()), model(tokens()))


def test_it_learns_to_copy() -> None:
    """Sixty steps on rows whose second half repeats the first 8 symbols later: the loss of the second half nearly goes."""
    torch.manual_seed(0)
    factory = Windowed(backend="chunked", window=9, causal=True, relative=True)
    model = LanguageModel(11, 2, 32, 2, 64, attention=factory, std=None)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        half = torch.randint(0, 11, (16, 8))
        row = torch.cat((half, half), 1)
        loss = nn.functional.cross_entropy(model(row)[:, 8:-1].flatten(0, 1), row[:, 9:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 2 and losses[-1] < 0.3


# Masked model


@pytest.mark.parametrize("kind", ENCODERS)
def test_neither_padding_nor_neighbours_matter(kind: str) -> None:
    model, ids = masked(kind), tokens(3)
    real = torch.arange(13) < torch.tensor([13, 6, 1])[:, None]
    junk = torch.where(real, ids, 3)
    together = model(junk, real)
    assert together.shape == (3, 13, 11) and together.isfinite().all()
    for b, length in enumerate((13, 6, 1)):
        torch.testing.assert_close(together[b, :length], model(ids[b : b + 1, :length])[0])


def test_order_matters_with_positions_alone() -> None:
    """f(P x) = P f(x) for full attention without positions, and for no kind of them."""
    ids, order = tokens(1), torch.randperm(13, generator=torch.Generator().manual_seed(0))
    of_layers = ("multi-query", "relative", "shaw", "disentangled", "t5", "alibi")
    for kind, positions in [("full", p) for p in ("none", "sinusoidal", "learned")] + [(k, "none") for k in of_layers]:
        model = masked(kind, positions=positions, max_length=13 if positions == "learned" else None)
        alike = torch.allclose(model(ids[:, order]), model(ids)[:, order])
        assert alike == ((kind, positions) == ("full", "none")), (kind, positions)


def test_padding_is_worked_out_once_for_all_layers() -> None:
    """Not layer by layer: with the global tokens of each sample, and for windows of one width, four layers need no more than
    one."""
    missed = []
    for layers in (1, 4):
        model = MaskedModel(11, layers, 12, 3, 16, attention=ENCODERS["windowed"])
        real = torch.arange(90) < torch.tensor([90, 40, 50 + layers])[:, None]
        before = blocks._lower.cache_info().misses
        model(tokens(3, 90), real, torch.arange(90).expand(3, -1) == 0)
        missed.append(blocks._lower.cache_info().misses - before)
    assert missed[0] == missed[1] == 2, "windows, and rows of global tokens"


def test_the_head_written_out() -> None:
    model, hidden = masked("full"), list[Any]()
    model.trunk.register_forward_hook(lambda module, args, out: hidden.append(out))
    logits = model(tokens())
    inner = hidden[0] @ model.dense.weight.T + model.dense.bias
    inner = nn.functional.layer_norm(inner * torch.special.ndtr(inner), (12,), model.norm.weight, model.norm.bias)
    torch.testing.assert_close(logits, inner @ model.trunk.embedding.weight.T + model.bias)


def test_global_tokens_reach_the_layers() -> None:
    """With the first token global the last logits know it, 12 positions away, and without not: 2 layers of 2 keys."""
    model, ids = masked("windowed"), tokens(1)
    other, chosen = ids.clone(), torch.arange(13)[None] == 0
    other[0, 0] = (other[0, 0] - 3) % 7 + 4
    assert torch.equal(model(ids)[0, -1], model(other)[0, -1])
    assert not torch.equal(model(ids, None, chosen)[0, -1], model(other, None, chosen)[0, -1])


def test_extra_tokens_are_the_models() -> None:
    """Three learned vectors that go through all layers, without positions, and do not come out. They carry what the last
    tokens know of the first, which no window does."""
    model, ids = masked("etc"), tokens(1)
    assert model.trunk.extra is not None and model.trunk.extra.shape == (3, 12)
    assert model(ids).shape == (1, 13, 11)
    other = ids.clone()
    other[0, 0] = (other[0, 0] - 3) % 7 + 4
    assert not torch.equal(model(ids)[0, -1], model(other)[0, -1])
    (gradient,) = torch.autograd.grad(model(ids).square().sum(), model.trunk.extra)
    assert (gradient.abs().sum(1) > 0).all()


def test_one_more_token_than_positions_is_refused() -> None:
    """As many as there are go, whatever stands for padding: positions are counted from 0."""
    for kind in ("windowed", "etc"):
        model = masked(kind)
        assert model(tokens(1, 20)).shape == (1, 20, 11)
        with pytest.raises(ValueError, match="tokens: got 21 in a row, expected at most 20, max_length"):
            model(tokens(1, 21))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="attention of a language model: got causal=False, expected causal=True"):
        LanguageModel(*SIZES, attention=ENCODERS["full"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="attention of an encoder: got causal=True, expected causal=False"):
        MaskedModel(*SIZES, attention=CAUSAL["full"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="norm: got 'none', expected pre or post"):
        language("full", norm="none")
    with pytest.raises(ValueError, match="max_length: got None, expected a number for learned positions"):
        language("full", positions="learned")
