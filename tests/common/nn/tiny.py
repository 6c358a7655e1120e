"""A small Transformer with weights large enough for everything to matter, and sentences of mixed lengths."""

from typing import Any

import torch
from torch import Tensor, nn

from common.nn.encoder_decoder import Transformer

PAD, BOS, EOS = 0, 1, 2
WORDS = 17
SIZES: dict[str, Any] = {"layers": 2, "d_model": 8, "d_ff": 12, "heads": 4, "backend": "reference"}

ABLATIONS: dict[str, dict[str, Any]] = {
    "as published": {},
    "one head": {"heads": 1},
    "smaller keys": {"head_dim_k": 1},
    "larger values": {"head_dim_k": 3, "head_dim_v": 5},
    "learned": {"positions": "learned", "max_length": 20},
    "none": {"positions": "none"},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "t5": {"positions": "t5"},
    "pre-norm": {"norm": "pre"},
    "rms": {"norm_type": "rms"},
    "swiglu": {"activation": "swiglu"},
    "grouped": {"kv_heads": 2},
    "multi-query": {"kv_heads": 1},
    "two attentions grouped": {"kv_heads": 2, "grouped": ["decoder", "cross"], "match": "params"},
    "local": {"decoder_window": 2},
    "local, alibi": {"decoder_window": 3, "positions": "alibi"},
    "local, rotary": {"decoder_window": 2, "kv_heads": 1, "positions": "rotary"},
    "biases": {"linear_bias": True},
    "two vocabularies": {"share_embeddings": False},
    "everything": {
        "norm": "pre", "norm_type": "rms", "activation": "swiglu", "kv_heads": 2, "positions": "rotary",
        "head_dim_k": 6, "head_dim_v": 3, "linear_bias": True, "share_embeddings": False,
    },
}  # fmt: skip


def transformer(seed: int = 0, std: float = 0.5, **settings: Any) -> Transformer:
    """In fp64 and not training."""
    torch.manual_seed(seed)
    model = Transformer(WORDS, WORDS, **SIZES | settings)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model.double().eval()


def sentences(lengths: list[int], seed: int = 1) -> Tensor:
    """(B, longest): each ends with EOS, which its length counts, padded on the right."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, WORDS, (len(lengths), max(lengths)), generator=g)
    for row, length in zip(ids, lengths, strict=True):
        row[length - 1], row[length:] = EOS, PAD
    return ids


def prefixes(lengths: list[int], seed: int = 2) -> Tensor:
    """(B, longest): BOS and words, padded on the right."""
    target = sentences(lengths, seed)
    return torch.where(target == PAD, PAD, torch.cat((torch.full((len(lengths), 1), BOS), target[:, :-1]), 1))
