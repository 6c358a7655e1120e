"""Translation models of the shapes whose speed is compared, and one training update of each. Needs torch alone."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from common.nn.encoder_decoder import Transformer
from data.batch import Seq2SeqBatch
from data.vocab import SPECIALS
from reproductions.bahdanau.model import RNNSearch

Shapes = Mapping[str, Any]
"""conf/bench/nmt.yaml"""


def vocabulary_size(shapes: Shapes) -> int:
    """Of a vocabulary, the special ids counted."""
    return shapes["vocabulary"] + len(SPECIALS)


def recurrent(shapes: Shapes, *, attention: bool) -> RNNSearch:
    return RNNSearch(
        vocabulary_size(shapes),
        vocabulary_size(shapes),
        attention=attention,
        embedding=shapes["embedding"],
        hidden=shapes["hidden"],
        alignment=shapes["hidden"],
        maxout=shapes["maxout"],
    )


def transformer(shapes: Shapes) -> Transformer:
    size = vocabulary_size(shapes)
    return Transformer(size, size, backend="reference", share_embeddings=False, **shapes["transformer"])


def update(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Seq2SeqBatch, precision: str
) -> Callable[[], None]:
    """One training update, all of it; precision: fp32, or bf16 for matrix products in bfloat16."""

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)
        loss = nn.functional.cross_entropy(logits.float(), batch.target_out[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run
