"""Translation models of the shapes whose speed `make bench-nmt` and `make bench-peers` compare. Needs torch alone."""

from collections.abc import Mapping
from typing import Any

from common.nn.encoder_decoder import Transformer
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
