"""Widths of feed-forward layers at equal numbers of weights: those that the papers print, and counts of whole models."""

from typing import Any

import pytest
import torch

from common.nn.encoder_decoder import Transformer
from common.nn.long import LanguageModel
from common.nn.multihead import MultiHead
from common.nn.sparse import Full

TRANSLATION: dict[str, Any] = {"layers": 1, "d_model": 1024, "d_ff": 4096, "backend": "reference", "match": "params"}


def widths(model: torch.nn.Module) -> set[int]:
    return {p.shape[0] for name, p in model.named_parameters() if name.endswith("w_1.weight")}


@pytest.mark.parametrize(
    ("settings", "d_ff"),
    [
        ({"heads": 8}, 4096),
        ({"heads": 8, "kv_heads": 1}, 5440),
        ({"heads": 1, "head_dim_k": 128, "head_dim_v": 128}, 6784),
        ({"heads": 2, "head_dim_k": 64, "head_dim_v": 64}, 6784),
        ({"heads": 4, "head_dim_k": 32, "head_dim_v": 32}, 6784),
        ({"heads": 8, "head_dim_k": 16, "head_dim_v": 16}, 6784),
        ({"heads": 8, "kv_heads": 1, "match": "none"}, 4096),
        # 2 of 3 attentions save 1024 * 896 * 2 weights each; two feed-forward layers of 2 * 1024 a unit share them.
        ({"heads": 8, "kv_heads": 1, "grouped": ["decoder", "cross"]}, 4096 + 2 * 1024 * 896 * 2 // (2 * 2 * 1024)),
        ({"heads": 8, "kv_heads": 1, "activation": "swiglu"}, 4096 + round(3 * 1024 * 896 * 2 / (2 * 3 * 1024))),
    ],
)
def test_translation(settings: dict[str, Any], d_ff: int) -> None:
    """Shazeer 2019, table 1."""
    with torch.device("meta"):
        model = Transformer(32, 32, **TRANSLATION | settings)
    assert widths(model) == {d_ff}


@pytest.mark.parametrize(
    ("heads", "settings", "d_ff"),
    [
        (8, {}, 8192),
        (8, {"kv_heads": 1}, 9088),
        (1, {"head_dim": 128}, 9984),
        (2, {"head_dim": 64}, 9984),
        (4, {"head_dim": 32}, 9984),
        (8, {"head_dim": 16}, 9984),
    ],
)
def test_language_model(heads: int, settings: dict[str, Any], d_ff: int) -> None:
    """Shazeer 2019, table 3."""
    with torch.device("meta"):
        attention = Full(backend="reference", causal=True, **settings)
        model = LanguageModel(32, 6, 1024, heads, 8192, attention=attention, match="params")
    assert widths(model) == {d_ff}


def test_all_rows_of_table_1_have_as_many_weights() -> None:
    """211 million in the paper; here without embeddings, to one in a hundred."""
    rows: list[dict[str, Any]] = [
        {"heads": 8},
        {"heads": 8, "kv_heads": 1},
        *({"heads": h, "head_dim_k": d, "head_dim_v": d} for h, d in ((1, 128), (2, 64), (4, 32), (8, 16))),
    ]
    with torch.device("meta"):
        models = [Transformer(32, 32, **{**TRANSLATION, "layers": 6, **row}) for row in rows]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    assert max(counts) / min(counts) < 1.01
    assert counts[0] == pytest.approx(211e6 - 2**15 * 1024, rel=0.01)  # a vocabulary of 32 K


def test_what_cannot_be_matched() -> None:
    with pytest.raises(ValueError, match="match: got 'parameters', expected one of none, params"):
        Transformer(32, 32, **TRANSLATION | {"heads": 8, "match": "parameters"})
    with pytest.raises(ValueError, match="got a feed-forward width of -"):
        Transformer(32, 32, layers=1, d_model=8, d_ff=8, heads=2, head_dim_k=64, backend="reference", match="params")


def test_weights_are_drawn_as_without() -> None:
    """Counting draws nothing, so that seeds of rows that save nothing stay theirs."""
    torch.manual_seed(3)
    plain = Transformer(9, 9, layers=1, d_model=8, d_ff=8, heads=2, backend="reference")
    torch.manual_seed(3)
    matched = Transformer(9, 9, layers=1, d_model=8, d_ff=8, heads=2, backend="reference", match="params")
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), matched.parameters(), strict=True))


def test_which_attentions_are_grouped() -> None:
    model = Transformer(9, 9, layers=1, d_model=8, d_ff=8, heads=4, kv_heads=1, grouped=["cross"], backend="reference")
    heads = {name: m.kv_heads for name, m in model.named_modules() if isinstance(m, MultiHead)}
    assert sorted(heads.values()) == [1, 4, 4] and heads["decoder.blocks.0.cross"] == 1
    with pytest.raises(ValueError, match="grouped: got \\['all'\\], expected some of encoder, decoder, cross"):
        Transformer(9, 9, layers=1, d_model=8, d_ff=8, heads=4, grouped=["all"], backend="reference")  # type: ignore[list-item]
