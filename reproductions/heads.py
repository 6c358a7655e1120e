"""What every layer and head of a trained Transformer looks at, for some sentences and their translations."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.decode.types import Hypothesis
from common.lit.seq2seq import Seq2Seq
from common.nn.maps import attention_maps
from data.batch import Seq2SeqBatch
from data.pairs import Example
from data.translation import TranslationData
from data.vocab import EOS


def drawable(example: Example, hypothesis: Hypothesis) -> bool:
    """Whether a translation is short enough, and whole, for a picture of it."""
    return hypothesis.finished and 8 <= len(example.source_tokens) <= 16 and len(hypothesis.tokens) > 0


def write_heads(
    module: Seq2Seq, data: TranslationData, split: str, chosen: Sequence[Hypothesis], file: Path, sentences: int
) -> None:
    """The weights of the first drawable sentences, in percent, by the name of each attention; no file for a model without
    multi-head attention."""
    drawn = []
    for example, hypothesis in zip(data.examples(split), chosen, strict=True):
        if len(drawn) < sentences and drawable(example, hypothesis):
            maps = _maps(module, data, example, hypothesis)
            if not maps:
                return
            drawn.append(
                {
                    "id": example.id,
                    "source": [*data.source_vocab.split(example.source_tokens), "</s>"],
                    "target": ["<s>", *data.target_vocab.units(hypothesis.tokens)],
                    "maps": maps,
                }
            )
    if drawn:
        file.write_text(json.dumps(drawn))


def _maps(module: Seq2Seq, data: TranslationData, example: Example, hypothesis: Hypothesis) -> dict[str, Any]:
    source, target = (
        torch.tensor([[*ids, EOS]]) for ids in (data.source_vocab.encode(example.source_tokens), hypothesis.tokens)
    )
    batch = Seq2SeqBatch.of(source, target).to(module.device)
    maps = attention_maps(module.model, lambda: module.logits(batch))
    return {name: _percent(weights[0]) for name, weights in maps.items()}


def _percent(weights: Tensor) -> list[list[list[int]]]:
    return (100 * weights).round().int().tolist()
