"""The specification: eager, every mask, whole score matrices, computed in fp32 (fp64 inputs in fp64)."""

import torch
from torch import Tensor

from common.attention import dropout
from common.attention.positions import RelativeBias
from common.attention.request import Attended, Request


def unsupported(request: Request) -> str | None:
    return None


def attend(r: Request) -> Attended:
    """Memory: a few (B, H, Lq, Lk) tensors.

    A key that no query may attend to takes no part, whatever it holds; a query that sees no key, or none without a bias
    of -inf, gets zeros.
    """
    batch, heads, lq, lk = r.shape
    wide = torch.float64 if r.q.dtype == torch.float64 else torch.float32
    allowed = r.mask.dense(lq, lk, r.q.device).expand(batch, heads, lq, lk)
    grouped = allowed.unflatten(1, (-1, r.group))
    seen = grouped.any(2).any(2)[..., None]  # (B, Hkv, Lk, 1)
    k, v = (t.to(wide).masked_fill(~seen, 0.0).unsqueeze(2) for t in (r.k, r.v))
    q = r.q.to(wide).masked_fill(~allowed.any(-1, keepdim=True), 0.0).unflatten(1, (-1, r.group))
    scores = (q @ k.transpose(-1, -2) * r.scale).flatten(1, 2)
    bias = dense_bias(r)
    if bias is not None:
        scores = scores + bias.to(wide)
    scores = scores.masked_fill(~allowed, -torch.inf)
    dead = (scores == -torch.inf).all(-1, keepdim=True)  # by the mask, or by a bias of -inf
    weights = scores.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
    lse = scores.logsumexp(-1) if lk else scores.new_full((batch, heads, lq), -torch.inf)
    if r.dropout_p:
        weights = weights * kept(r) / (1 - r.dropout_p)
    output = (weights.unflatten(1, (-1, r.group)) @ v).flatten(1, 2)
    output = output.masked_fill(dead, 0.0).to(r.q.dtype)  # keeps a NaN in the gradient of such a row from v's
    return Attended(output, lse.detach() if r.return_lse else None, weights if r.return_weights else None)


def dense_bias(r: Request) -> Tensor | None:
    """Broadcastable to (B, H, Lq, Lk)."""
    return r.bias.dense(r.shape[2], r.shape[3], r.q.device) if isinstance(r.bias, RelativeBias) else r.bias


def kept(r: Request) -> Tensor:
    """bool (B, H, Lq, Lk), drawn by `common.attention.dropout`."""
    batch, heads, lq, lk = r.shape
    device = r.q.device
    place = torch.arange(batch * heads, device=device).view(batch, heads, 1, 1)
    i, j = torch.arange(lq, device=device)[:, None], torch.arange(lk, device=device)
    return dropout.keep(r.seed, r.dropout_p, place, i, j)
