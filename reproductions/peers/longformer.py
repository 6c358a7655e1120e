"""A layer of the transformers library's Longformer beside ours."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from common.nn.sparse import Windowed
from reproductions.peers.layers import HEADS, LENGTH, SIZE, THREADS, Attend, compare

WINDOW, REPEATS = 128, 7
"""WINDOW: keys on each side."""


def theirs() -> Attend:
    from transformers.models.longformer.modeling_longformer import (  # type: ignore[import-not-found]
        LongformerSelfAttention,
    )

    settings = SimpleNamespace(
        hidden_size=SIZE, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, attention_window=[2 * WINDOW]
    )
    layer, output = LongformerSelfAttention(settings, 0), nn.Linear(SIZE, SIZE)
    nothing = torch.zeros(1, LENGTH, dtype=torch.bool)

    def attend(x: Tensor) -> Tensor:
        given = {"attention_mask": nothing.float(), "is_index_masked": nothing, "is_index_global_attn": nothing}
        return output(layer(x, **given, is_global_attn=False)[0])

    return attend


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    ours = Windowed(backend="chunked", window=WINDOW)(SIZE, HEADS, 0, 1)
    layers = {"transformers": (theirs(), False), "ours, fp32": (ours, False), "ours, bf16": (ours, True)}
    compare(layers, f"{WINDOW} keys on each side", REPEATS)
