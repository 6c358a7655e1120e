"""A dilated window as an ordinary one (Beltagy et al. 2020, section 3.1, figure 2c), by folding.

A query sees keys whose distance is a multiple of d, so positions with the same remainder modulo d are among themselves: the
d interleaved sequences go into the batch, and in each of them the window has no gaps. No block of a mask is then looked at
for the sake of one key in d.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.attention import attention
from common.attention.by_content import real_keys
from common.attention.masks import Dilated, Global, Mask, Window


def interleaved(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    left: int,
    right: int,
    dilation: int,
    backend: str,
    keep: Tensor | None = None,
    first: int = 0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """Attention with the mask `dense_meaning`, (B, H, T, Dv), for any T and by any backend.

    Args:
        q: (B, H, T, D). k, v: (B, Hkv, first + T, .): `first` keys that every query sees, then those of the T positions.
        left, right: keys on each side, the query's own not counted, `dilation` apart; right 0 is causal.
        keep: bool (B, first + T), True = a real key. A query that sees none gets zeros.
        scale, dropout_p, dropout_seed: as `attention` has them. With a dilation the weights that a seed drops are others
            than those that the dense mask would drop.

    Raises ValueError for lengths that do not fit, and what `attention` raises.
    """
    batch, _, time, _ = q.shape
    if k.shape[2] != first + time or (keep is not None and keep.shape != (batch, first + time)):
        of_keep = None if keep is None else tuple(keep.shape)
        raise ValueError(
            f"interleaved: got {k.shape[2]} keys and keep of {of_keep}, expected first + T = {first + time} keys and "
            f"keep of {(batch, first + time)}"
        )
    folds, short = dilation, -time % dilation
    if keep is None and short and right:  # what is filled in at the end lies in the windows of those before
        keep = torch.ones(batch, first + time, dtype=torch.bool, device=q.device)
    if keep is not None:
        keep = _fold(keep[:, None, :, None], first, folds)[:, 0, :, 0]
    mask = in_window(left, right, first)
    folded = attention(
        _fold(q, 0, folds),
        _fold(k, first, folds),
        _fold(v, first, folds),
        mask=mask if keep is None else mask & real_keys(keep),
        backend=backend,
        scale=scale,
        dropout_p=dropout_p,
        dropout_seed=dropout_seed,
    )
    if folds == 1:
        return folded
    apart = folded.unflatten(0, (batch, folds)).permute(0, 2, 3, 1, 4)  # (B, H, ceil(T / d), d, Dv)
    return apart.flatten(2, 3)[:, :, :time]


def in_window(left: int, right: int, first: int) -> Mask:
    """Of T queries and first + T keys: the window around the query's own position, and the first keys."""
    window = Window(left, right)
    return window | Global(tuple(range(first))) if first else window  # no query stands at one of the first keys


def dense_meaning(left: int, right: int, dilation: int, first: int = 0, keep: Tensor | None = None) -> Mask:
    """The mask that `interleaved` computes, of T queries and first + T keys."""
    dilated = Dilated(left, right, dilation)
    mask = dilated | Global(tuple(range(first))) if first else dilated
    return mask if keep is None else mask & real_keys(keep)


def _fold(x: Tensor, first: int, folds: int) -> Tensor:
    """(B, H, first + T, D) -> (B * folds, H, first + ceil(T / folds), D): entry b * folds + r has the positions t with t %
    folds = r, behind the first ones, which all have. Zeros (False) fill up at the end."""
    if folds == 1:
        return x
    ahead, rest = x[:, :, :first], x[:, :, first:]
    rest = pad(rest, (0, 0, 0, -rest.shape[2] % folds)).unflatten(2, (-1, folds))
    rest = rest.permute(0, 3, 1, 2, 4).flatten(0, 1)
    return torch.cat((ahead.repeat_interleave(folds, 0), rest), 2) if first else rest
