"""The weights of every layer and head: that they are those that the model computes with."""

from typing import Any

import torch

from common.attention import Causal, Padding
from common.nn.encoder_decoder import Transformer
from common.nn.maps import attention_maps
from data.batch import Seq2SeqBatch
from data.vocab import EOS

SOURCE = torch.tensor([[5, 6, 7, EOS], [8, EOS, 0, 0]])
TARGET = torch.tensor([[9, 10, EOS], [6, EOS, 0]])


def model(**options: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(12, 12, layers=2, d_model=8, d_ff=16, heads=2, backend="sdpa", **options).double().eval()


def maps_of(made: Transformer) -> dict[str, torch.Tensor]:
    batch = Seq2SeqBatch.of(SOURCE, TARGET)
    return attention_maps(made, lambda: made(batch.source, batch.source_mask, batch.target_in, batch.target_mask))


def test_every_attention_is_there_in_the_order_of_the_layers() -> None:
    maps = maps_of(model())
    assert list(maps) == [
        "encoder.blocks.0.attention", "encoder.blocks.1.attention",
        "decoder.blocks.0.attention", "decoder.blocks.0.cross",
        "decoder.blocks.1.attention", "decoder.blocks.1.cross",
    ]  # fmt: skip
    assert [tuple(m.shape) for m in maps.values()] == [(2, 2, 4, 4)] * 2 + [(2, 2, 3, 3), (2, 2, 3, 4)] * 2


def test_they_are_distributions_over_what_may_be_seen() -> None:
    for name, weights in maps_of(model(kv_heads=1, positions="alibi")).items():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
        mask = Causal() if name.startswith("decoder") and name.endswith("attention") else Padding(SOURCE != 0)
        hidden = ~mask.dense(weights.shape[-2], weights.shape[-1]).expand_as(weights)
        assert hidden.any() and not weights[hidden].any()


def test_they_are_the_weights_of_the_output_of_each_layer() -> None:
    """The first layer's attention by hand: W_O of the weighted values, from the embedding."""
    made = model(positions="rotary")
    block = made.encoder.blocks[0].attention  # type: ignore[union-attr]
    x = made.source_embedding(SOURCE, real=SOURCE != 0)
    weights = maps_of(made)["encoder.blocks.0.attention"]
    values = block.w_v(x).unflatten(-1, (2, 4)).transpose(1, 2)  # type: ignore[union-attr,operator]
    by_hand = block.w_o((weights @ values).transpose(1, 2).flatten(-2))  # type: ignore[union-attr,operator]
    torch.testing.assert_close(by_hand, block(x, mask=Padding(SOURCE != 0)))  # type: ignore[operator]


def test_nothing_is_left_on_the_model() -> None:
    made = model()
    maps_of(made)
    assert not any(module._forward_pre_hooks for module in made.modules())
    assert attention_maps(torch.nn.Linear(2, 2), lambda: None) == {}
