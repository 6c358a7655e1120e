"""All kinds of attention here on two axes, what queries and keys are made of and what is visible, with what each costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from common.attention import Causal, Full, Mask, Window, additive_attention
from common.nn import conditional, positioned, sparse, vision
from common.nn.hybrid import Sliding
from common.nn.latent import Latent
from common.nn.linear import Elu, Favor
from common.nn.linformer import Linformer
from common.nn.multihead import MultiHead
from common.nn.selective import Selective

Source = Literal["self", "cross"]
Visible = Literal["full", "causal", "sparse", "sparse, causal"]
Attend = Callable[[Tensor], Tensor]
"""(1, n, D) to (1, n, D)."""
D, HEADS, LONGEST = 16, 2, 4096


@dataclass(frozen=True)
class Variant:
    """work: the power of n that its products grow with. kept: numbers that generation keeps of n tokens, per head and
    dimension, "-": it does not generate. computes: softmax, whatever it adds to the scores, or another function."""

    name: str
    source: Source
    visible: Visible
    work: float
    kept: str
    computes: str
    when: str
    paper: str
    module: str
    make: Callable[[], Attend]


def layer(kind: Any) -> Callable[[], Attend]:
    """Layer 0 of a kind, its weights drawn large enough for every score to count."""

    def made() -> Attend:
        torch.manual_seed(0)
        one: nn.Module = kind(D, HEADS, 0, 1)
        return drawn(one)

    return made


def drawn(one: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in one.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return one.double().eval()


def image(kind: Any) -> Callable[[], Attend]:
    """Layer 0 of a kind for images, on a square of n pixels."""

    def made() -> Attend:
        torch.manual_seed(0)
        one = drawn(kind(D, HEADS, 0))

        def attend(x: Tensor) -> Tensor:
            side = round(x.shape[1] ** 0.5)
            return one(x.unflatten(1, (side, side))).flatten(1, 2)

        return attend

    return made


def queries(memory: Tensor) -> Tensor:
    """As many as what they look at, and the same whatever that is."""
    return torch.ones_like(memory).cumsum(1).sin()


def to_memory(mask: Mask) -> Callable[[], Attend]:
    """Queries of other vectors than what is attended to: as many, that do not change."""

    def made() -> Attend:
        torch.manual_seed(0)
        backend = "reference" if isinstance(mask, Full | Causal) else "chunked"
        one = drawn(MultiHead(D, HEADS, backend=backend))

        def attend(memory: Tensor) -> Tensor:
            return one(queries(memory), memory, mask=mask)

        return attend

    return made


def additive() -> Attend:
    torch.manual_seed(0)
    w_a, u_a, v_a = (torch.randn(*size, dtype=torch.float64) for size in ((D, D), (D, D), (D,)))

    def attend(memory: Tensor) -> Tensor:
        query, real = queries(memory), torch.ones(memory.shape[:2], dtype=torch.bool)
        return additive_attention(query @ w_a, memory @ u_a, memory, v_a, mask=real, backend="reference")

    return attend


PLAIN: dict[str, Any] = {"backend": "reference"}
CHUNKS: dict[str, Any] = {"backend": "chunked"}
SOFTMAX, OTHER = "softmax", "another function"

VARIANTS: tuple[Variant, ...] = (
    Variant("full", "self", "full", 2, "-", SOFTMAX, "encoders, up to a few thousand tokens", "1706.03762", "sparse.Full", layer(sparse.Full(**PLAIN))),
    Variant("causal", "self", "causal", 2, "2 n h", SOFTMAX, "decoders, language models", "1706.03762", "sparse.Full(causal)", layer(sparse.Full(**PLAIN, causal=True))),
    Variant("grouped-query", "self", "causal", 2, "2 n g", SOFTMAX, "serving, little lost", "2305.13245", "sparse.Full(kv_heads)", layer(lambda d, h, n, of: sparse.Full(**PLAIN, causal=True, kv_heads=2)(d, 4, n, of))),
    Variant("multi-query", "self", "causal", 2, "2 n", SOFTMAX, "serving with the smallest cache of softmax", "1911.02150", "sparse.Full(kv_heads=1)", layer(sparse.Full(**PLAIN, causal=True, kv_heads=1))),
    Variant("latent", "self", "causal", 2, "d_c + d_R a token", SOFTMAX, "a small cache with all heads", "2405.04434", "latent.Latent", layer(Latent(**PLAIN, causal=True, latent=8, rotary_dim=2))),
    Variant("rotary", "self", "causal", 2, "2 n h", SOFTMAX, "positions that shift", "2104.09864", "sparse.Full(rotary)", layer(sparse.Full(**PLAIN, causal=True, rotary=True))),
    Variant("Shaw's relative positions", "self", "full", 2, "-", SOFTMAX, "distances within a clip", "1803.02155", "positioned.Shaw", layer(positioned.Shaw(**PLAIN))),
    Variant("disentangled", "self", "full", 2, "-", SOFTMAX, "encoders, content and position apart", "2006.03654", "positioned.Disentangled", layer(positioned.Disentangled(**PLAIN, clip=16))),
    Variant("T5's buckets", "self", "full", 2, "-", SOFTMAX, "encoders and decoders, a bias a distance", "1910.10683", "positioned.Biased(t5)", layer(positioned.Biased(**PLAIN, kind="t5"))),
    Variant("ALiBi", "self", "causal", 2, "2 n h", SOFTMAX, "texts longer than those of training", "2108.12409", "positioned.Biased(alibi)", layer(positioned.Biased(**PLAIN, kind="alibi", causal=True))),
    Variant("window", "self", "sparse", 1, "-", SOFTMAX, "long texts, local structure", "2004.05150", "sparse.Windowed", layer(sparse.Windowed(**CHUNKS, window=4))),
    Variant("window, causal", "self", "sparse, causal", 1, "-", SOFTMAX, "long texts from left to right", "2004.05150", "sparse.Windowed(causal)", layer(sparse.Windowed(**CHUNKS, window=4, causal=True))),
    Variant("sliding", "self", "sparse, causal", 1, "2 w h", SOFTMAX, "the same with generation", "2004.05150", "hybrid.Sliding", layer(Sliding(**CHUNKS, window=4))),
    Variant("blocks on their own", "self", "sparse", 1, "-", SOFTMAX, "a baseline", "2011.04006", "sparse.Local", layer(sparse.Local(**CHUNKS, block=8))),
    Variant("BigBird", "self", "sparse", 1, "-", SOFTMAX, "long documents, any pair in two layers", "2007.14062", "sparse.BigBird", layer(sparse.BigBird(**CHUNKS, block=8, random_blocks=1, max_length=LONGEST))),
    Variant("gated heads", "self", "causal", 2, "2 n h", SOFTMAX, "k of h heads for each token", "2210.05144", "conditional.GatedHeads", layer(conditional.GatedHeads(**PLAIN, causal=True, budget=1))),
    Variant("positive random features", "self", "full", 1, "-", "approximates softmax", "very long texts, where recall counts little", "2009.14794", "linear.Favor", layer(Favor(features=16))),
    Variant("positive random features, causal", "self", "causal", 1, "m (d + 1)", "approximates softmax", "generation with a state of one size", "2009.14794", "linear.Favor(causal)", layer(Favor(features=16, causal=True))),
    Variant("elu + 1", "self", "causal", 1, "d (d + 1)", OTHER, "the same, without a softmax to approximate", "2006.16236", "linear.Elu(causal)", layer(Elu(causal=True))),
    Variant("low rank along the length", "self", "full", 1, "-", OTHER, "encoders of one length", "2006.04768", "linformer.Linformer", layer(Linformer(**CHUNKS, rank=16, max_length=LONGEST))),
    Variant("selective state space", "self", "causal", 1, "N a channel", OTHER, "very long texts; no attention, but in its place", "2312.00752", "selective.Selective", layer(Selective())),
    Variant("axial", "self", "sparse", 1.5, "-", SOFTMAX, "images, rows and columns in turns", "1912.12180", "vision.Axial", image(vision.Axial(**PLAIN))),
    Variant("shifted windows", "self", "sparse", 1, "-", SOFTMAX, "images, in a pyramid", "2103.14030", "vision.Swin", image(vision.Swin(**PLAIN, window=4))),
    Variant("cross", "cross", "full", 2, "2 n h, once", SOFTMAX, "translation, text that leads images", "1706.03762", "multihead.MultiHead", to_memory(Full())),
    Variant("additive", "cross", "full", 2, "n, once", SOFTMAX, "recurrent decoders", "1409.0473", "attention.additive_attention", additive),
    Variant("cross, causal", "cross", "causal", 2, "2 n h", SOFTMAX, "streams that are read and written in step", "1706.03762", "multihead.MultiHead", to_memory(Causal())),
    Variant("cross, window", "cross", "sparse", 1, "2 w h", SOFTMAX, "monotone alignments, such as speech", "1508.04025", "multihead.MultiHead", to_memory(Window(2, 2))),
)  # fmt: skip
