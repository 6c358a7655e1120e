"""Rotary position embedding (Su et al. 2021, section 3.2.2, equation 34) in Triton: one pass over Q or K.

It stands beside the attention kernel, not in its load of K, where each block of queries would turn every block of keys
again. `common.attention.positions.rotary` is the specification; angles are taken as it takes them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.attention.kernels.launch import Launch
from common.attention.positions import rotary_turns

ELEMENTS = 2048
"""Of one program: rows times the head dimension."""


@triton.jit
def rotary_kernel(
    x, cos, sin, out, sx_b, sx_h, sx_t, sx_d, so_b, so_h, so_t, sa_b, sa_h, sa_t, H, T,
    D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, INVERSE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """BT positions of one head: dimensions 2i and 2i + 1 turn by the angle of column i, back by it with INVERSE."""
    blocks = tl.cdiv(T, BT)
    b = (tl.program_id(0) // blocks // H).to(tl.int64)
    h = (tl.program_id(0) // blocks % H).to(tl.int64)
    t = (tl.program_id(0) % blocks * BT + tl.arange(0, BT)).to(tl.int64)[:, None]
    d, half = tl.arange(0, BD).to(tl.int64)[None, :], tl.arange(0, BD // 2)[None, :]
    inside = (t < T) & (d < D)
    pairs = tl.load(x + b * sx_b + h * sx_h + t * sx_t + d * sx_d, mask=inside, other=0.0).to(WIDE)
    even, odd = tl.split(tl.reshape(pairs, (BT, BD // 2, 2)))
    angle, known = b * sa_b + h * sa_h + t * sa_t + half, (t < T) & (half < D // 2)
    c, s = tl.load(cos + angle, mask=known, other=0.0), tl.load(sin + angle, mask=known, other=0.0)
    if INVERSE:
        s = -s
    turned = tl.interleave(even * c - odd * s, even * s + odd * c)
    tl.store(out + b * so_b + h * so_h + t * so_t + d, turned.to(out.dtype.element_ty), mask=inside)


class _Rotary(torch.autograd.Function):
    """A rotation's gradient is the rotation back, and that one's the rotation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.inverse = inverse
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        with torch.cuda.device_of(x):
            turn(x, cos, sin, out, inverse).run()
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        return _Rotary.apply(d_out, cos, sin, not ctx.inverse), None, None, None  # type: ignore[return-value]


def rotary(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """As `common.attention.positions.rotary`, into a new tensor, with the gradient of x.

    x: (B, H, time, D) with even D, any strides; positions: (time,) or broadcastable to (B, H, time). Raises ValueError for
    other shapes.
    """
    if x.ndim != 4 or x.shape[-1] % 2:
        raise ValueError(f"rotary: got shape {tuple(x.shape)}, expected (batch, heads, time, head_dim), head_dim even")
    wide = torch.promote_types(x.dtype, torch.float32)
    turns = rotary_turns(positions.to(x.device), x.shape[3], base)
    cos, sin = (t.to(wide).expand(*x.shape[:3], x.shape[3] // 2) for t in turns)
    return _Rotary.apply(x, cos, sin, False)  # type: ignore[return-value]


def turn(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, inverse: bool) -> Launch:
    """Writes out, of x's shape. cos, sin: (B, H, time, D / 2), any strides but a last one of 1."""
    batch, heads, time, size = x.shape
    bd = 1 << (size - 1).bit_length()
    bt = max(1, min(ELEMENTS // bd, 1 << (time - 1).bit_length())) if time else 1
    arguments = {"x": x, "cos": cos, "sin": sin, "out": out, "H": heads, "T": time, "D": size, "BT": bt, "BD": bd}
    for of, strides in (("x", x.stride()), ("o", out.stride()[:3]), ("a", cos.stride()[:3])):
        arguments |= {f"s{of}_{axis}": stride for axis, stride in zip("bhtd", strides, strict=False)}
    arguments |= {"INVERSE": inverse, "WIDE": tl.float64 if x.dtype == torch.float64 else tl.float32}
    return Launch(rotary_kernel, batch * heads * -(-time // bt), arguments, {"num_warps": 4})
