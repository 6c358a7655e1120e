"""Attention written out for tests: exact in fp64, and as one would write it in a low precision."""

import torch
from torch import Tensor

from common.attention import Mask


def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, *, scale: float, bias: Tensor | float = 0.0) -> Tensor:
    """Products in the inputs' dtype, softmax in fp32 (fp64 in fp64), weights cast back. allowed: bool (.., Lq, Lk).

    K and V are repeated for grouped heads; a query that sees nothing gives zeros.
    """
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).to(wide) * scale + bias
    some = allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(~allowed, -1e30).softmax(-1).masked_fill(~(allowed & some), 0.0)
    return weights.to(v.dtype) @ v


def gradients(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, do: Tensor, *, scale: float, bias: Tensor | None = None
) -> dict[str, Tensor]:
    """output, dq, dk, dv (and dbias) of `plain` in the dtype of its inputs."""
    leaves = {"q": q, "k": k, "v": v} | ({} if bias is None else {"bias": bias})
    copies = {name: t.detach().clone().requires_grad_() for name, t in leaves.items()}
    allowed = mask.dense(q.shape[2], k.shape[2], q.device)
    out = plain(copies["q"], copies["k"], copies["v"], allowed, scale=scale, bias=copies.get("bias", 0.0))
    grads = torch.autograd.grad(out, list(copies.values()), do.to(out.dtype))
    return {"output": out.detach()} | {f"d{name}": g for name, g in zip(copies, grads, strict=True)}


def relative_rms(got: Tensor, exact: Tensor) -> float:
    """Root mean square of the error over that of the exact values; 0 where both are zero."""
    error, size = (got.double() - exact).pow(2).mean().sqrt(), exact.pow(2).mean().sqrt()
    return float(error / size) if size > 0 else float(error)
