"""Attention, exact, by several backends: one function, one algebra of masks.

from common.attention import Causal, Window, attention
out = attention(q, k, v, mask=Causal() & Window(128, 0), backend="chunked")
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, overload

import torch
from torch import Tensor

from common.attention.additive import additive_attention
from common.attention.layouts import Blocks, Packed, Padding, Random
from common.attention.masks import And, Causal, Dilated, Full, Global, Mask, Or, Window
from common.attention.positions import Alibi, RelativeBias, RotaryScaling, T5Bias, alibi_slopes, rotary
from common.attention.request import Attended, Request, check

BACKENDS = ("reference", "sdpa", "flex", "chunked", "triton")

__all__ = [
    "BACKENDS", "Alibi", "And", "Attended", "Blocks", "Causal", "Dilated", "Full", "Global", "Mask", "Or", "Packed",
    "Padding", "Random", "RelativeBias", "RotaryScaling", "T5Bias", "Window", "additive_attention", "alibi_slopes",
    "attention", "merge", "rotary", "unsupported",
]  # fmt: skip


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, backend: str, bias: Tensor | RelativeBias | None = None,
    scale: float | None = None, dropout_p: float = 0.0, dropout_seed: int | None = None,
    return_lse: Literal[False] = False, return_weights: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, backend: str, bias: Tensor | RelativeBias | None = None,
    scale: float | None = None, dropout_p: float = 0.0, dropout_seed: int | None = None,
    return_lse: bool = False, return_weights: bool = False,
) -> Tensor | Attended: ...  # fmt: skip
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask,
    backend: str,
    bias: Tensor | RelativeBias | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Tensor | Attended:
    """softmax(scale * q k^T + bias) v over what the mask allows (Vaswani et al. 2017, equation 1).

    Args:
        q: (B, H, Lq, D). k: (B, Hkv, Lk, D) and v: (B, Hkv, Lk, Dv), with Hkv a divisor of H (Shazeer 2019, Ainslie et
            al. 2023). Any strides. One dtype of fp16, bf16, fp32, fp64; under autocast they are cast to its dtype.
        mask: True = may attend. A query that sees no key gets zeros and passes no gradient on.
        backend: one of BACKENDS. It computes exactly this or refuses; nothing is put in its place.
        bias: added to the scaled scores: a tensor broadcastable to (B, H, Lq, Lk), or `Alibi`, `T5Bias`.
        scale: D^(-1/2) unless given.
        dropout_p: of the weights, in this call, whatever is training; dropout_seed: which are dropped; drawn from
            torch's generator unless given.
        return_lse, return_weights: answer with an `Attended` that holds them. No gradient flows through lse.

    Raises:
        ValueError: for shapes, dtypes and masks that do not fit, and for what the backend can't do, with its reason and
            the backends that can.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = (t.to(dtype) if t.is_floating_point() else t for t in (q, k, v))
    seed = dropout_seed
    if seed is None:
        seed = int(torch.randint(1 << 62, ())) if dropout_p else 0
    wanted = scale if scale is not None else max((*q.shape[-1:], 1)) ** -0.5
    request = Request(q, k, v, mask, bias, wanted, dropout_p, seed, return_lse, return_weights)
    check(request)
    if reason := unsupported(request, backend):
        can = [name for name in BACKENDS if name != backend and unsupported(request, name) is None]
        raise ValueError(f"backend {backend!r} {reason}; these can: {', '.join(can)}")
    with torch.autocast(q.device.type, enabled=False):  # what comes now chooses its own dtypes
        answer = _module(backend).attend(request)
    return answer if return_lse or return_weights else answer.output


def unsupported(request: Request, backend: str) -> str | None:
    """Why a backend can't do a request; None where it can."""
    return _module(backend).unsupported(request)


@torch.no_grad()
def merge(parts: Sequence[Attended]) -> Attended:
    """Attention over the union of disjoint ranges of keys from the attention over each (their output and lse).

    Without gradient, as none flows through lse.
    """
    for part in parts:
        if part.lse is None:
            raise ValueError("merge: got a part without lse, expected return_lse=True")
    lse = torch.stack([part.lse for part in parts])  # type: ignore[misc]
    whole = lse.logsumexp(0)
    share = (lse - whole.masked_fill(whole == -torch.inf, 0.0)).exp()[..., None]
    outputs = torch.stack([part.output for part in parts])
    return Attended((outputs.to(lse.dtype) * share).sum(0).to(outputs.dtype), whole)


def _module(backend: str) -> Any:
    return import_module(f"common.attention.backends.{backend}")
