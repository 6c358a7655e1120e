"""Our backends as attention of the transformers library's models.

register()
model = AutoModel.from_pretrained(folder, attn_implementation=name_of("chunked"))
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from common.adapters.top_left import causal_top_left
from common.attention import BACKENDS, Blocks, Full, Mask, attention

CHANGES_THE_RESULT = ("softcap", "s_aux", "position_bias", "output_attentions")
"""Arguments of some models that ours has nothing for. A sliding_window is in the mask already."""


def name_of(backend: str) -> str:
    """Under which a backend is registered. With a slash transformers would look for it on the hub."""
    return f"attention_reproductions:{backend}"


def register() -> list[str]:
    """Register every backend with transformers, version 5, under the names that are returned.

    Masks are asked for as sdpa's are: transformers makes none for an attention that has no entry for them, and padding
    would be seen.
    """
    from transformers import AttentionInterface, AttentionMaskInterface  # type: ignore[import-not-found]
    from transformers.masking_utils import sdpa_mask  # type: ignore[import-not-found]

    for backend in BACKENDS:
        AttentionInterface.register(name_of(backend), partial(attend, backend=backend))
        AttentionMaskInterface.register(name_of(backend), sdpa_mask)
    return [name_of(backend) for backend in BACKENDS]


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    *,
    backend: str,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer.

    Args:
        module: the layer; read of it is `is_causal`, where that is not given.
        query: (B, H, Lq, D). key, value: (B, Hkv, Lk, D), Hkv a divisor of H, not repeated.
        attention_mask: (B or 1, H or 1, Lq, Lk), bool, True = may attend, or floating point, added to the scores. None
            where there is no padding: then all is seen, or if causal, by more than one query, keys 0 to i by query i, as
            the keys behind those of a prompt are empty places of a static cache.
        dropout: 0 unless training. scaling: D^(-1/2) unless given.

    Returns (B, Lq, H, D), and no weights. Raises ValueError for an argument that would change the result and that ours
    has nothing for, and for what the backend can't do.
    """
    for name in CHANGES_THE_RESULT:
        if others.get(name) is not None and others[name] is not False:
            raise ValueError(
                f"attention {name_of(backend)!r}: got {name}, expected none; 'eager' has it where models do"
            )
    mask: Mask = Full()
    bias = None
    if attention_mask is None:
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        if causal and query.shape[2] > 1:
            mask = causal_top_left(query.shape[2], key.shape[2])
    elif attention_mask.dtype == torch.bool:
        mask = Blocks(attention_mask, 1)
    else:
        bias = attention_mask
    output = attention(query, key, value, mask=mask, bias=bias, scale=scaling, dropout_p=dropout, backend=backend)
    return output.transpose(1, 2).contiguous(), None
