"""Longformer-loop: the window one diagonal at a time (Beltagy et al. 2020, section 3.2 and figure 1)."""

import torch
from torch import Tensor
from torch.nn.functional import dropout, pad

from common.attention.scores import masked_softmax


def loop(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    left: int,
    right: int,
    dilation: int,
    keep: Tensor | None = None,
    first: int = 0,
    scale: float,
    dropout_p: float = 0.0,
) -> Tensor:
    """What `common.attention.interleaved.interleaved` computes, with its arguments, but H = Hkv.

    "Non-vectorized": for each of the left + 1 + right keys of the window a pass over all queries, which meet the keys at one
    distance. Memory is of the order of T times the window, time too, and no product is large enough to be fast.
    """
    time, before, after = q.shape[2], left * dilation, right * dilation
    if keep is None:
        keep = torch.ones(len(q), first + time, dtype=torch.bool, device=q.device)
    k, v = (t.masked_fill(~keep[:, None, :, None], 0.0) for t in (k, v))
    around = (0, 0, before, after)
    keys, values = (pad(t[:, :, first:], around) for t in (k, v))
    seen = pad(keep[:, first:], around[2:])
    diagonals = range(0, before + after + 1, dilation)  # where each begins: query i meets what stands at i + start
    scores = torch.stack([(q * keys[:, :, start : start + time]).sum(-1) for start in diagonals], -1)
    allowed = torch.stack([seen[:, start : start + time] for start in diagonals], -1)
    if first:
        scores = torch.cat((q @ k[:, :, :first].mT, scores), -1)
        allowed = torch.cat((keep[:, None, :first].expand(-1, time, -1), allowed), -1)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    weights = masked_softmax(scores.to(wide) * scale, allowed[:, None]).to(v.dtype)
    weights = dropout(weights, dropout_p)
    output = weights[..., :first] @ v[:, :, :first]
    for number, start in enumerate(diagonals):
        output = output + weights[..., first + number, None] * values[:, :, start : start + time]
    return output
