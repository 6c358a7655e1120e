"""torch's scaled_dot_product_attention, pinned to one of its kernels; what that kernel can't do is refused.

- On a CPU: its flash kernel.
- On a GPU: FLASH_ATTENTION for 16-bit inputs without mask or with the causal one of a square, EFFICIENT_ATTENTION else.

The causal mask of a square goes in as `is_causal`, any other one as a whole (Lq, Lk) tensor, which all of these kernels
work through densely. Grouped heads go in with `enable_gqa`, without copies.
"""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from common.attention.masks import Causal, Full
from common.attention.positions import RelativeBias
from common.attention.request import Attended, Request

SIXTEEN_BITS = (torch.float16, torch.bfloat16)


def unsupported(r: Request) -> str | None:
    if r.return_weights or r.return_lse:
        return "gives no weights and no lse"
    if r.dropout_p:
        return "draws its own random numbers for dropout, so a seed can't be kept"
    if r.q.device.type not in ("cpu", "cuda"):
        return f"is pinned to kernels for cpu and cuda, not {r.q.device.type}"
    refuse = _flash_refuses if pinned(r) is SDPBackend.FLASH_ATTENTION else _efficient_refuses
    return refuse(r)


def pinned(r: Request) -> SDPBackend:
    """The one kernel that is used."""
    if r.q.device.type == "cpu" or (r.q.dtype in SIXTEEN_BITS and r.bias is None and (_is_full(r) or _is_causal(r))):
        return SDPBackend.FLASH_ATTENTION
    return SDPBackend.EFFICIENT_ATTENTION


def attend(r: Request) -> Attended:
    q, k, v, mask, dead = r.q, r.k, r.v, None, None
    if r.bias is not None or not (_is_full(r) or _is_causal(r)):
        allowed = r.mask.dense(r.shape[2], r.shape[3], q.device)
        allowed = allowed if allowed.ndim == 4 else allowed[None, None]
        dead = ~allowed.any(-1, keepdim=True)
        seen = allowed.any(2)[..., None]
        if seen.shape[1] > 1:
            seen = seen.unflatten(1, (k.shape[1], -1)).any(2)
        q, k, v = q.masked_fill(dead, 0.0), k.masked_fill(~seen, 0.0), v.masked_fill(~seen, 0.0)
        mask = allowed | dead  # so that its softmax exists; what comes of it is put to zero
        if r.bias is not None:
            mask = _added(r).masked_fill(dead, 0.0).masked_fill(~mask, -torch.inf)
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    with sdpa_kernel(pinned(r)):
        output = scaled_dot_product_attention(
            q, k, v, mask, is_causal=mask is None and _is_causal(r), scale=r.scale, enable_gqa=r.group > 1
        )
    return Attended(output if dead is None else output.masked_fill(dead, 0.0))


def _added(r: Request) -> Tensor:
    """The bias in fp32 (fp64), (B or 1, H or 1, Lq or 1, Lk or 1)."""
    bias = r.bias.dense(r.shape[2], r.shape[3], r.q.device) if isinstance(r.bias, RelativeBias) else r.bias
    assert bias is not None
    return bias.to(torch.float64 if r.q.dtype == torch.float64 else torch.float32)


def _is_full(r: Request) -> bool:
    return isinstance(r.mask, Full)


def _is_causal(r: Request) -> bool:
    return isinstance(r.mask, Causal) and r.shape[2] == r.shape[3]  # is_causal is aligned top-left


def _bias_wants_gradient(r: Request) -> bool:
    bias = r.bias.vector(1, 1, r.q.device) if isinstance(r.bias, RelativeBias) else r.bias
    return bias is not None and bias.requires_grad and torch.is_grad_enabled()


def _flash_refuses(r: Request) -> str | None:
    size, of_v = r.q.shape[3], r.v.shape[3]
    if size != of_v:
        return f"is pinned to a flash kernel, which takes one head_dim for q, k and v, not {size} and {of_v}"
    if r.q.device.type == "cpu":
        return "is pinned to a flash kernel, which has no gradient for a bias" if _bias_wants_gradient(r) else None
    if size > 256:
        return f"is pinned to a flash kernel, which takes a head_dim of at most 256, not {size}"
    return _empty(r)


def _efficient_refuses(r: Request) -> str | None:
    by = 8 if r.q.dtype in SIXTEEN_BITS else 4
    if r.q.dtype == torch.float64:
        return "is pinned to the memory-efficient kernel here, which takes no fp64"
    if r.group > 1:
        return "is pinned to the memory-efficient kernel here, which takes as many heads of k and v as of q"
    if r.q.shape[3] % by or r.v.shape[3] % by:
        return f"is pinned to the memory-efficient kernel here, which takes a head_dim that is a multiple of {by}"
    if r.bias is not None and r.q.dtype in SIXTEEN_BITS:
        return "is pinned to the memory-efficient kernel here, which rounds a bias to 16 bits"
    return _empty(r)


def _empty(r: Request) -> str | None:
    return None if r.q.numel() and r.k.numel() and r.v.numel() else "takes no empty tensors on a GPU"
