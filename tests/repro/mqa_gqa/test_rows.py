"""Rows at the paper's size have the sizes that the papers print."""

from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from common.nn.fewer_heads import grouped_attentions
from reproductions.compose import job

PAPER = 211e6
"""Parameters of each row, Shazeer 2019, table 1."""
D_FF = {
    "multi_head": 4096, "multi_query": 5440, "multi_head_local": 4096, "multi_query_local": 5440,
    "heads_1": 6784, "heads_2": 6784, "heads_4": 6784, "heads_8": 6784,
}  # fmt: skip
LM_D_FF = {"lm_multi_head": 8192, "lm_multi_query": 9088} | {f"lm_heads_{h}": 9984 for h in (1, 2, 4, 8)}


def model(row: str, **sizes: int) -> nn.Module:
    with torch.device("meta"):
        return instantiate(job((f"experiment=mqa_gqa/{row}", "scale=paper"), None).config["model"], **sizes)


def inner(made: nn.Module) -> set[int]:
    return {p.shape[0] for name, p in made.named_parameters() if name.endswith("w_1.weight")}


@pytest.mark.parametrize("row", D_FF)
def test_translation(row: str) -> None:
    made = model(row, source_words=32768, target_words=32768)
    assert inner(made) == {D_FF[row]}
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(PAPER, rel=0.02)
    heads = {(part.kv_heads, part.heads, part.head_dim_k) for part in grouped_attentions(made).values()}  # type: ignore[union-attr]
    count = int(row.removeprefix("heads_")) if row.startswith("heads_") else 8
    width = 128 // count if row.startswith("heads_") else 128
    assert heads == {(1 if "query" in row else count, count, width)}
    assert made.decoder.window == (32 if "local" in row else None)  # type: ignore[union-attr]


@pytest.mark.parametrize("row", LM_D_FF)
def test_language_models(row: str) -> None:
    made = model(row, vocabulary=2**16)
    assert inner(made) == {LM_D_FF[row]}
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(192e6, rel=0.02)


def test_uptrained_rows_keep_the_multi_head_sizes() -> None:
    """GQA, section 2.1: fewer heads in the decoder alone, nothing widened; three updates in twenty thousand are 5 and 10 %."""
    plain, few = (model(row, source_words=64, target_words=64) for row in ("multi_head", "uptrained_grouped"))
    assert inner(few) == inner(plain) == {4096}
    heads = {name: part.kv_heads for name, part in grouped_attentions(few).items()}
    assert {heads[name] for name in heads if name.startswith("encoder")} == {8}
    assert {heads[name] for name in heads if name.startswith("decoder")} == {2}
    updates = {
        row: budget_of(row)["updates"]
        for row in ("multi_head", "converted_grouped", "uptrained_grouped", "longer_grouped", "longer_multi_head")
    }
    assert [100 * updates[row] / updates["multi_head"] for row in updates] == [100, 0, 5, 10, 10]


def budget_of(row: str) -> Any:
    return job((f"experiment=mqa_gqa/{row}", "scale=paper"), None).config["budget"]


def test_latent_attention_caches_what_the_paper_says() -> None:
    """d_c = 4 d_h and d_h^R = d_h / 2: (9 / 2) d_h numbers a layer."""
    made = model("latent", vocabulary=64)
    shape = made.trunk.blocks[0].attention.cache_shape(torch.bfloat16)  # type: ignore[union-attr]
    assert shape.key_dim + shape.value_dim == 4.5 * 128
