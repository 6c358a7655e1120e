"""What a backend is asked, checked once, and what it answers."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from common.attention.masks import Mask
from common.attention.positions import RelativeBias

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Attended(NamedTuple):
    """output (B, H, Lq, Dv); lse (B, H, Lq): natural log of the softmax's sum, fp32 (fp64 for fp64 inputs), -inf where a
    query sees no key; weights (B, H, Lq, Lk), after dropout. What was not asked for is None."""

    output: Tensor
    lse: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """softmax(scale * q k^T + bias, over what the mask allows), dropped out, times v.

    q (B, H, Lq, D); k (B, Hkv, Lk, D); v (B, Hkv, Lk, Dv); Hkv divides H: query head h reads head h // (H / Hkv).
    bias: None, a tensor broadcastable to (B, H, Lq, Lk) with each size 1 or whole, or one by distance.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    bias: Tensor | RelativeBias | None
    scale: float
    dropout_p: float
    seed: int
    return_lse: bool
    return_weights: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, Lq, Lk."""
        batch, heads, lq, _ = self.q.shape
        return batch, heads, lq, self.k.shape[2]

    @property
    def group(self) -> int:
        """Query heads a key head."""
        return self.q.shape[1] // self.k.shape[1]


def check(r: Request) -> None:
    """Raises ValueError, naming what was got and expected, for anything that does not fit together."""
    for name, tensor in (("q", r.q), ("k", r.k), ("v", r.v)):
        if tensor.ndim != 4:
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected (batch, heads, time, head_dim)")
        if tensor.dtype not in DTYPES or tensor.dtype != r.q.dtype:
            raise ValueError(
                f"{name}: got {tensor.dtype} (q: {r.q.dtype}), expected one dtype of fp16, bf16, fp32, fp64"
            )
        if tensor.device != r.q.device:
            raise ValueError(f"{name}: got {tensor.device}, expected {r.q.device} as q")
    batch, heads, lq, lk = r.shape
    if r.k.shape[0] != batch or r.v.shape[:3] != r.k.shape[:3]:
        raise ValueError(
            f"q, k and v: got {tuple(r.q.shape)}, {tuple(r.k.shape)} and {tuple(r.v.shape)}, expected the same batch, and "
            "k and v of the same heads and time"
        )
    if r.q.shape[3] != r.k.shape[3] or not r.q.shape[3]:
        raise ValueError(f"head_dim of q and k: got {r.q.shape[3]} and {r.k.shape[3]}, expected the same, 1 or more")
    if not r.v.shape[3]:
        raise ValueError("head_dim of v: got 0, expected 1 or more")
    if not heads or not r.k.shape[1] or heads % r.k.shape[1]:
        raise ValueError(
            f"heads: got {heads} of q and {r.k.shape[1]} of k and v, expected these to divide those, 1 or more of each"
        )
    if not isinstance(r.mask, Mask):
        raise ValueError(  # noqa: TRY004 - one kind of error for every argument
            f"mask: got {type(r.mask).__name__}, expected a Mask such as Causal(), Padding(keep) or Blocks(table, block)"
        )
    r.mask.check(batch, heads, lq, lk)
    if isinstance(r.bias, RelativeBias):
        if r.bias.heads != heads:
            raise ValueError(f"bias: got one of {r.bias.heads} heads, expected {heads}")
    elif r.bias is not None:
        if not isinstance(r.bias, Tensor):
            raise ValueError(  # noqa: TRY004 - one kind of error for every argument
                f"bias: got {type(r.bias).__name__}, expected a tensor, or a RelativeBias such as Alibi or T5Bias"
            )
        sizes = tuple(r.bias.shape)
        if r.bias.ndim != 4 or any(n not in (1, whole) for n, whole in zip(sizes, r.shape, strict=True)):
            raise ValueError(f"bias: got shape {sizes}, expected {r.shape} with any size 1 in its place")
        if r.bias.device != r.q.device:
            raise ValueError(f"bias: got {r.bias.device}, expected {r.q.device} as q")
        if not r.bias.is_floating_point():
            raise ValueError(f"bias: got {r.bias.dtype}, expected floating point; what may be seen is for mask=")
    if not isinstance(r.scale, Real) or not 0 <= r.scale < math.inf:  # a tensor would lose its gradient in the kernels
        raise ValueError(f"scale: got {r.scale}, expected a finite number, 0 or more")
    if not 0 <= r.dropout_p < 1:
        raise ValueError(f"dropout_p: got {r.dropout_p}, expected from 0 to below 1")
    if not isinstance(r.seed, int) or not 0 <= r.seed < 1 << 63:
        raise ValueError(f"dropout_seed: got {r.seed}, expected an integer from 0 to below 2^63")
