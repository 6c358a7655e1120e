"""The Transformer against torch's own layers with the same weights, its size against a closed form, and what it sees."""

import inspect
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from common.attention import Causal, Full
from common.nn.encoder_decoder import Transformer
from tests.common.nn.tiny import ABLATIONS, PAD, SIZES, WORDS, prefixes, sentences, transformer


def logits(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model(source, source != PAD, target, target != PAD)


# Against torch


def by_torch(model: Transformer, source: Tensor, target: Tensor, norm: str) -> Tensor:
    """Logits (B, T, V) by torch's layers, written by others, with sinusoids and the shared matrix by the formulas."""
    d, heads, ff = 8, 4, 12
    given: dict[str, Any] = {"batch_first": True, "norm_first": norm == "pre", "dtype": torch.float64, "dropout": 0.0}
    last = (lambda: nn.LayerNorm(d, dtype=torch.float64)) if norm == "pre" else (lambda: None)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, heads, ff, **given), 2, last(), False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, heads, ff, **given), 2, last())
    copy(model.encoder.state_dict(), encoder, {"norm2": "norm_2"})
    copy(model.decoder.state_dict(), decoder, {"norm2": "norm_2", "norm3": "norm_3"})
    matrix = model.source_embedding.weight

    def embed(ids: Tensor) -> Tensor:
        places = torch.zeros(ids.shape[1], d, dtype=torch.float64)
        for pos in range(ids.shape[1]):
            for i in range(d // 2):
                angle = pos / 10000 ** (2 * i / d)
                places[pos, 2 * i], places[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
        return matrix[ids] * math.sqrt(d) + places

    hidden = source == PAD
    memory = encoder(embed(source), src_key_padding_mask=hidden)
    ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    out = decoder(
        embed(target), memory, tgt_mask=ahead, tgt_key_padding_mask=target == PAD, memory_key_padding_mask=hidden
    )
    return out @ matrix.t()


def copy(ours: dict[str, Tensor], theirs: nn.Module, norms: dict[str, str]) -> None:
    """Our weights under torch's names; biases that ours lacks are zero."""
    for name, parameter in theirs.named_parameters():
        name = name.replace("layers", "blocks").replace("linear", "feedforward.w_").replace("norm1", "norm_1")
        name = name.replace("self_attn", "attention").replace("multihead_attn", "cross").replace("out_proj", "w_o")
        for before, after in norms.items():
            name = name.replace(before, after)
        name = name.replace("norm.", "last.") if name.startswith("norm.") else name
        if "in_proj_" in name:
            parts = [ours.get(name.replace("in_proj_", f"w_{part}.")) for part in "qkv"]
            value = torch.cat(parts) if parts[0] is not None else None  # type: ignore[arg-type]
        else:
            value = ours.get(name)
        if value is None:
            assert "attention" in name or "cross" in name, name
            value = torch.zeros_like(parameter)
        parameter.data.copy_(value)


@pytest.mark.parametrize("linear_bias", [False, True])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_as_torch_layers(norm: str, linear_bias: bool) -> None:
    model = transformer(norm=norm, linear_bias=linear_bias)
    source, target = sentences([6, 3, 1]), prefixes([5, 7, 2])
    expected = by_torch(model, source, target, norm)[target != PAD]
    torch.testing.assert_close(logits(model, source, target), expected, rtol=1e-5, atol=1e-5)  # sinusoids are fp32


def test_the_defaults_are_the_paper() -> None:
    """Nothing but the sizes is given: as the other test with norm="post" and no biases."""
    model = transformer()
    assert isinstance(model.encoder.last, nn.Identity) and isinstance(model.decoder.last, nn.Identity)
    assert {name for name, _ in model.named_parameters() if name.endswith("w_o.bias")} == set()
    assert model.source_embedding.weight is model.target_embedding.weight


# Size


def size(
    words: int, layers: int, d: int, ff: int, h: int, d_k: int, d_v: int, source_words: int = 0, places: int = 0
) -> int:
    """Sections 3.1 to 3.4: W_Q and W_K (d, h d_k), W_V (d, h d_v), W_O (h d_v, d); W_1, b_1, W_2, b_2; gain and bias of
    each norm; one matrix for both embeddings and the logits."""
    attention = 2 * d * h * d_k + d * h * d_v + h * d_v * d
    feedforward = d * ff + ff + ff * d + d
    encoder = layers * (attention + feedforward + 2 * 2 * d)
    decoder = layers * (2 * attention + feedforward + 3 * 2 * d)
    return (words + source_words + 2 * places) * d + encoder + decoder


BASE = {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8}
TABLE_3: dict[str, dict[str, Any]] = {
    "base": {},
    "A 1": {"heads": 1},
    "A 4": {"heads": 4},
    "A 16": {"heads": 16},
    "A 32": {"heads": 32},
    "B 16": {"head_dim_k": 16},
    "B 32": {"head_dim_k": 32},
    "C N 2": {"layers": 2},
    "C N 4": {"layers": 4},
    "C N 8": {"layers": 8},
    "C d_model 256": {"d_model": 256},
    "C d_model 1024": {"d_model": 1024},
    "C d_ff 1024": {"d_ff": 1024},
    "C d_ff 4096": {"d_ff": 4096},
    "D": {"dropout": 0.2},
    "E": {"positions": "learned", "max_length": 300},
    "big": {"d_model": 1024, "d_ff": 4096, "heads": 16},
}


@pytest.mark.parametrize("row", TABLE_3)
def test_parameters_of_every_row_of_table_3(row: str) -> None:
    given: dict[str, Any] = BASE | TABLE_3[row]
    with torch.device("meta"):
        model = Transformer(37000, 37000, backend="sdpa", **given)
    h, d = given["heads"], given["d_model"]
    d_k, places = given.get("head_dim_k", d // h), given.get("max_length", 0)
    expected = size(37000, given["layers"], d, given["d_ff"], h, d_k, d // h, places=places)
    assert sum(p.numel() for p in model.parameters()) == expected


def test_the_base_model_by_hand() -> None:
    """An encoder layer: 4 * 512^2 + (2 * 512 * 2048 + 2048 + 512) + 4 * 512 = 3,150,336; a decoder layer 4,199,936."""
    assert size(37000, 6, 512, 2048, 8, 64, 64) == 37000 * 512 + 6 * (3_150_336 + 4_199_936) == 63_045_632


def test_its_file_is_the_base_model() -> None:
    """Every setting stands there, and what the constructor leaves out is as there."""
    config: Any = OmegaConf.load(Path(__file__).parents[3] / "conf" / "model" / "transformer.yaml")
    with torch.device("meta"):
        model = instantiate(config, source_words=37000, target_words=37000)
    assert isinstance(model, Transformer) and sum(p.numel() for p in model.parameters()) == 63_045_632
    assert {part.p for part in model.modules() if isinstance(part, nn.Dropout)} == {0.1}
    parameters = inspect.signature(Transformer).parameters
    assert set(config) - {"_target_"} == set(parameters) - {"source_words", "target_words"}
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    assert {name for name, value in defaults.items() if config[name] != value} == {"dropout"}


def test_parameters_of_ablations() -> None:
    def parameters(**settings: Any) -> int:
        return sum(p.numel() for p in transformer(**settings).parameters())

    n, d, ff, h, plain = 2, 8, 12, 4, size(WORDS, 2, 8, 12, 4, 2, 2)
    assert parameters() == plain
    assert parameters(head_dim_k=3, head_dim_v=5) == size(WORDS, n, d, ff, h, 3, 5)
    assert parameters(share_embeddings=False) == plain + WORDS * d
    assert parameters(norm="pre") == plain + 2 * 2 * d
    assert parameters(norm_type="rms") == plain - n * 5 * d
    assert parameters(activation="swiglu") == plain + 2 * n * (d * ff - ff - d)
    assert parameters(kv_heads=1) == plain - 3 * n * 2 * (d * d - d * d // h)
    assert parameters(linear_bias=True) == plain + 3 * n * 4 * d
    assert parameters(positions="t5") == plain + 2 * 32 * h
    assert parameters(positions="alibi") == parameters(positions="rotary") == parameters(positions="none") == plain


# What it sees


REFUSED = {(name, "sdpa") for name in ("t5", "smaller keys", "larger values", "everything")}
"""A gradient for a bias, and d_k other than d_v: tests of the backends."""


@pytest.mark.parametrize(
    ("name", "backend"),
    [pair for pair in itertools.product(ABLATIONS, ("reference", "sdpa", "chunked")) if pair not in REFUSED],
)
def test_a_sentence_does_not_depend_on_its_batch(name: str, backend: str) -> None:
    """Pairs of mixed lengths: beside each other, alone, and with ten more columns of padding on the right."""
    settings: dict[str, Any] = ABLATIONS[name] | {"backend": backend}
    model = transformer(**settings)
    source, target = sentences([6, 1, 4]), prefixes([5, 7, 1])
    together = logits(model, source, target).split([5, 7, 1])
    for s, t, got in zip(source, target, together, strict=True):
        alone = logits(model, s[s != PAD][None], t[t != PAD][None])
        torch.testing.assert_close(got, alone, rtol=1e-9, atol=1e-9)
    if "max_length" not in settings:
        wide = [nn.functional.pad(ids, (0, 10), value=PAD) for ids in (source, target)]
        torch.testing.assert_close(logits(model, *wide), torch.cat(together), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_side_of_the_padding_does_not_matter(name: str) -> None:
    model = transformer(**ABLATIONS[name])
    source, target = sentences([6, 2]), prefixes([4, 4])
    left = source.clone()
    left[1] = source[1].roll(4)
    assert left[1, :4].tolist() == [PAD] * 4
    torch.testing.assert_close(logits(model, left, target), logits(model, source, target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ABLATIONS)
def test_padding_is_never_seen_and_every_word_is(name: str) -> None:
    """What a word is sent to changes exactly the logits that may see it."""
    model = transformer(**ABLATIONS[name] | {"share_embeddings": False})
    source, target = sentences([5, 3]), prefixes([4, 4])
    before = logits(model, source, target).unflatten(0, (2, 4))
    with torch.no_grad():
        model.source_embedding.weight[PAD] = torch.nan
    torch.testing.assert_close(logits(model, source, target).unflatten(0, (2, 4)), before)
    for place in range(3):
        other = source.clone()
        other[1, place] = 9 + (source[1, place] == 9)
        after = logits(model, other, target).unflatten(0, (2, 4))
        assert (after[1] != before[1]).any(-1).all() and torch.equal(after[0], before[0])
    for place in range(1, 4):
        other = target.clone()
        other[1, place] = 9 + (target[1, place] == 9)
        changed = (logits(model, source, other).unflatten(0, (2, 4)) - before).abs().amax(-1) > 1e-9
        assert changed.tolist() == [[False] * 4, [False] * place + [True] * (4 - place)]


def test_a_pair_without_a_target_passes_no_gradient() -> None:
    """The stand-in row of an empty shard: nothing to predict, and no NaN."""
    model = transformer()
    source, target = sentences([3, 1]), prefixes([3, 1])
    mask = torch.tensor([[True] * 3, [False] * 3])
    alone = logits(model, source[:1], target[:1])
    both = model(source, source != PAD, target, mask)
    torch.testing.assert_close(both, alone)
    both.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# Dropout, start, errors

SUBLAYERS = ("attention.w_o", "cross.w_o", "feedforward.w_2")


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_only_in_training(settings: dict[str, Any]) -> None:
    model, none = transformer(**settings), transformer()
    source, target = sentences([6, 3]), prefixes([5, 2])
    torch.testing.assert_close(logits(model, source, target), logits(none, source, target), rtol=0, atol=0)
    model.train()
    assert not torch.equal(logits(model, source, target), logits(model, source, target))


def test_where_dropout_is() -> None:
    """Section 5.4: of each sum of embedding and position, and of what each of the 2 + 3 sublayers of a layer adds."""
    model = transformer(dropout=0.25)
    places = {name: part.p for name, part in model.named_modules() if isinstance(part, nn.Dropout)}
    assert set(places.values()) == {0.25}
    calls = dict.fromkeys(places, 0)
    for name, part in model.named_modules():
        if name in places:
            part.register_forward_hook(lambda *_, name=name: calls.update({name: calls[name] + 1}))
    logits(model, sentences([3]), prefixes([2]))
    assert calls == {
        "source_embedding.dropout": 1,
        "target_embedding.dropout": 1,
        **{f"encoder.blocks.{n}.dropout": 2 for n in range(2)},
        **{f"decoder.blocks.{n}.dropout": 3 for n in range(2)},
    }


@pytest.mark.parametrize("loud", SUBLAYERS)
def test_dropout_of_a_decoder_block_is_of_what_each_sublayer_adds(loud: str) -> None:
    """The other two add nothing, and with norm="pre" the sum is not normed: half of what is added is zero, the rest twice
    as much."""
    block = transformer(dropout=0.5, norm="pre", layers=1).decoder.blocks[0]
    for name in {*SUBLAYERS} - {loud}:
        nn.init.zeros_(block.get_parameter(f"{name}.weight"))
    nn.init.zeros_(block.get_parameter("feedforward.w_2.bias"))
    x, annotations = torch.randn(40, 50, 8).double(), torch.randn(40, 3, 8).double()
    added, dropped = (block.train(on)(x, annotations, mask=Causal(), source_mask=Full()) - x for on in (False, True))
    kept = dropped != 0
    assert 0.45 < kept.double().mean() < 0.55
    torch.testing.assert_close(dropped[kept], 2 * added[kept])


def test_an_untrained_model_guesses() -> None:
    """Near ln 1000 = 6.91 on random targets; embeddings, times sqrt(d_model), have variance 1."""
    torch.manual_seed(0)
    model = Transformer(1000, 1000, layers=2, d_model=512, d_ff=1024, heads=8, backend="sdpa")
    source, target = torch.randint(4, 1000, (2, 8, 16))
    loss = nn.functional.cross_entropy(logits(model, source, target), torch.randint(4, 1000, (8 * 16,)))
    assert 6.5 < loss.item() < 8
    model.source_embedding.positions = "none"
    assert model.source_embedding(source).var().item() == pytest.approx(1, rel=0.1)


def test_it_learns_to_reverse() -> None:
    """Whoever does not read the source stays near ln 13 = 2.6, whoever reads only its first or last word near 2."""
    torch.manual_seed(0)
    model = Transformer(WORDS, WORDS, **SIZES | {"d_model": 32, "d_ff": 64, "backend": "sdpa"})
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(200):
        source = torch.randint(4, WORDS, (32, 5))
        target = source.flip(1)
        target_in = torch.cat((torch.ones(32, 1, dtype=torch.int64), target[:, :-1]), 1)
        loss = nn.functional.cross_entropy(logits(model, source, target_in), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 2.3 and losses[-1] < 0.5


def test_two_sizes_of_vocabulary_need_two_matrices() -> None:
    with pytest.raises(ValueError, match="got 5 and 6, expected the same .* one vocabulary .* share_embeddings=false"):
        Transformer(5, 6, **SIZES)
    model = Transformer(5, 6, **SIZES, share_embeddings=False)
    assert model(torch.tensor([[4]]), torch.ones(1, 1) > 0, torch.tensor([[5]]), torch.ones(1, 1) > 0).shape == (1, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers: got 0, expected 1 or more"),
        ({"norm": "none"}, "norm: got 'none', expected one of pre, post"),
        ({"norm_type": "batch"}, "norm_type: got 'batch', expected one of layer, rms"),
        ({"positions": "rope"}, "positions: got 'rope', expected one of learned"),
        ({"activation": "tanh"}, "activation: got 'tanh', expected one of relu, gelu, swiglu"),
        ({"positions": "learned"}, "max_length: got None, expected a number for learned positions"),
        ({"heads": 3}, "heads: got 3, expected a divisor of d_model 8"),
        ({"kv_heads": 3}, "kv_heads: got 3, expected a divisor of heads 4"),
        ({"backend": "fast"}, "backend: got 'fast', expected one of reference"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformer(**settings)
