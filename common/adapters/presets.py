"""Shapes of published models: what their attention, their weights and their caches amount to.

PRESETS["llama-2-70b"].cache_bytes(4096)
"""

from dataclasses import dataclass
from typing import Literal

import torch

from common.attention.cache import CacheShape, Plan

Family = Literal["bert", "llama", "falcon"]
Kind = Literal["multi-head", "grouped-query", "multi-query"]

BERT_POSITIONS, BERT_SEGMENTS = 512, 2
"""Learned embeddings besides those of words (Devlin et al. 2018, section 3)."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One model.

    source: where the shape is published: the paper, and the config, which has what the paper leaves out. family: how
    `parameters` are counted.
    hidden: numbers a token between layers; d_ff: inside the feed-forward network; vocabulary: rows of the embedding;
    window: of keys that a query sees, its own counted, None: no limit. norms: in a layer.

    Raises ValueError where heads * head_dim is not hidden, or kv_heads don't divide heads.
    """

    source: str
    family: Family
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocabulary: int
    window: int | None = None
    norms: int = 2

    def __post_init__(self) -> None:
        if self.heads * self.head_dim != self.hidden:
            raise ValueError(f"heads * head_dim: got {self.heads} * {self.head_dim}, expected {self.hidden}, hidden")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected a divisor of heads {self.heads}")

    @property
    def kind(self) -> Kind:
        """Multi-query: Shazeer 2019; grouped-query: Ainslie et al. 2023."""
        if self.kv_heads == self.heads:
            return "multi-head"
        return "multi-query" if self.kv_heads == 1 else "grouped-query"

    @property
    def cache_elements(self) -> int:
        """Numbers that one layer keeps of a token, a key and a value of each of kv_heads."""
        return 2 * self.kv_heads * self.head_dim

    def plan(self, dtype: torch.dtype = torch.bfloat16) -> Plan:
        """Of all layers, keys and values being kept in dtype. Raises ValueError for BERT, which sees both sides and keeps
        nothing."""
        if self.family == "bert":
            raise ValueError("cache: got a BERT, expected a model that reads from left to right")
        shape = CacheShape(kv_heads=self.kv_heads, key_dim=self.head_dim, value_dim=self.head_dim, dtype=dtype)
        return Plan(self.layers, shape)

    def cache_bytes(self, context: int, sequences: int = 1, dtype: torch.dtype = torch.bfloat16) -> int:
        """Of `context` tokens of each sequence, of which a model with a window keeps the last `window`."""
        kept = context if self.window is None else min(context, self.window)
        return self.plan(dtype).bytes(kept, sequences)

    @property
    def parameters(self) -> int:
        """As published: BERT's with the pooler and without a head; the others' with an output matrix beside the embedding
        (that of Falcon is stored apart, though the same numbers)."""
        h, ff = self.hidden, self.d_ff
        attention = 2 * h * self.head_dim * (self.heads + self.kv_heads)  # W_q and W_o, W_k and W_v
        embedding = self.vocabulary * h
        match self.family:
            case "llama":  # SwiGLU, RMSNorm, no biases
                layer = attention + 3 * h * ff + self.norms * h
                return 2 * embedding + self.layers * layer + h
            case "falcon":  # LayerNorm, no other biases
                layer = attention + 2 * h * ff + self.norms * 2 * h
                return 2 * embedding + self.layers * layer + 2 * h
            case "bert":  # LayerNorm, biases everywhere, a norm after the embeddings and h x h in the pooler
                layer = attention + 4 * h + 2 * h * ff + ff + h + self.norms * 2 * h
                return embedding + (BERT_POSITIONS + BERT_SEGMENTS + 2) * h + self.layers * layer + h * h + h


PRESETS = {
    "bert-base": Preset(
        source="arXiv 1810.04805, section 3; google-bert/bert-base-uncased", family="bert",
        hidden=768, layers=12, heads=12, kv_heads=12, head_dim=64, d_ff=3072, vocabulary=30522,
    ),
    "llama-2-7b": Preset(
        source="arXiv 2307.09288; meta-llama/Llama-2-7b-hf", family="llama",
        hidden=4096, layers=32, heads=32, kv_heads=32, head_dim=128, d_ff=11008, vocabulary=32000,
    ),
    "llama-2-13b": Preset(
        source="arXiv 2307.09288; meta-llama/Llama-2-13b-hf", family="llama",
        hidden=5120, layers=40, heads=40, kv_heads=40, head_dim=128, d_ff=13824, vocabulary=32000,
    ),
    "llama-2-70b": Preset(
        source="arXiv 2307.09288; meta-llama/Llama-2-70b-hf", family="llama",
        hidden=8192, layers=80, heads=64, kv_heads=8, head_dim=128, d_ff=28672, vocabulary=32000,
    ),
    "llama-3-8b": Preset(
        source="arXiv 2407.21783; meta-llama/Meta-Llama-3-8B", family="llama",
        hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, d_ff=14336, vocabulary=128256,
    ),
    "falcon-7b": Preset(
        source="arXiv 2311.16867; tiiuae/falcon-7b", family="falcon",
        hidden=4544, layers=32, heads=71, kv_heads=1, head_dim=64, d_ff=4 * 4544, vocabulary=65024,
        norms=1,  # one for attention and feed-forward network, which stand side by side
    ),
    "falcon-40b": Preset(
        source="arXiv 2311.16867; tiiuae/falcon-40b", family="falcon",
        hidden=8192, layers=60, heads=128, kv_heads=8, head_dim=64, d_ff=4 * 8192, vocabulary=65024,
    ),
    "mistral-7b": Preset(
        source="arXiv 2310.06825; mistralai/Mistral-7B-v0.1", family="llama",
        hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, d_ff=14336, vocabulary=32000, window=4096,
    ),
}  # fmt: skip
