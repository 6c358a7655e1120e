"""What the flash kernels must do, the same whether interpreted with blocks of 16 or compiled with those of the table.

Lengths and masks are in units of a block. Exact values are those of `plain` in fp64, whose error in the case's own dtype
is what the kernels' is measured against.
"""

# pyright: reportArgumentType=false, reportReturnType=false
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from common.attention import (
    Alibi,
    Blocks,
    Causal,
    Dilated,
    Full,
    Global,
    Mask,
    Packed,
    Padding,
    Random,
    RelativeBias,
    T5Bias,
    Window,
    attention,
)
from tests.common.attention.plain import plain, relative_rms

Sizes = tuple[int, int, int, int]  # B, H, Lq, Lk

HEADS = {"two": (1, 2, 2), "batch": (2, 2, 2), "grouped": (1, 4, 2), "one key head": (2, 2, 1)}
"""B, H, Hkv."""

LENGTHS = {
    "square": (2.5, 2.5),
    "more keys": (1.3, 2.6),
    "more queries": (2.6, 1.3),
    "whole": (2, 2),
    "one query": (0, 2.5),
}
"""Lq and Lk in blocks; 0 is a single row."""

WIDTHS = {"16": (16, 16), "20": (20, 20), "80": (80, 80), "96": (96, 40), "4": (4, 24)}
"""D and Dv: one part, or two of 64 + 16 and 64 + 32, and others that fill no part."""

MASKS: dict[str, Callable[[Sizes, int], Mask]] = {
    "full": lambda sizes, unit: Full(),
    "causal": lambda sizes, unit: Causal(),
    "window": lambda sizes, unit: Window(unit // 2, unit // 4),
    "causal window": lambda sizes, unit: Causal() & Window(unit + 3, None),
    "dilated": lambda sizes, unit: Dilated(unit // 4, 2, 3),
    "bigbird": lambda sizes, unit: Window(3, 3) | Global((0, 5)) | Random(1, unit, seed=2),
    "padding": lambda sizes, unit: Padding(torch.arange(sizes[3]) >= torch.arange(sizes[0])[:, None] * unit - 7),
    "all padding": lambda sizes, unit: Padding.lengths(torch.arange(sizes[0]) * 5, sizes[3]),
    "packed": lambda sizes, unit: Packed(*(_segments(sizes[0], length, unit) for length in sizes[2:])),
    "blocks by head": lambda sizes, unit: Blocks(_table(sizes, unit // 2 + 1), unit // 2 + 1),
}

BIASES: dict[str, Callable[[Sizes], Tensor | RelativeBias | None]] = {
    "none": lambda sizes: None,
    "whole": lambda sizes: _normal(*sizes),
    "of keys": lambda sizes: _normal(1, sizes[1], 1, sizes[3]),
    "of all heads": lambda sizes: _normal(sizes[0], 1, *sizes[2:]),
    "alibi": lambda sizes: Alibi(2.0 ** -torch.arange(1.0, sizes[1] + 1)),
    "t5": lambda sizes: T5Bias(_normal(8, sizes[1]), bidirectional=True, max_distance=20),
}

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "time before heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "dimensions first": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "amid others": lambda x: torch.cat((x, torch.full_like(x, torch.nan)), 3)[..., : x.shape[3]],
}

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One value of each of the tables above, by its name."""

    mask: str = "causal"
    dtype: str = "fp32"
    width: str = "16"
    lengths: str = "square"
    heads: str = "two"
    bias: str = "none"
    layout: str = "contiguous"

    def __str__(self) -> str:
        return "-".join(vars(self).values()).replace(" ", "_")

    def sizes(self, unit: int) -> Sizes:
        lq, lk = (max(1, int(blocks * unit)) for blocks in LENGTHS[self.lengths])
        return *HEADS[self.heads][:2], lq, lk


FACTORS = {
    "mask": list(MASKS), "dtype": list(DTYPES), "width": list(WIDTHS), "lengths": list(LENGTHS), "heads": list(HEADS),
    "bias": list(BIASES), "layout": list(LAYOUTS),
}  # fmt: skip


def pairwise(factors: dict[str, list[str]]) -> list[Case]:
    """Few cases in which any two values of different factors meet."""
    left = {((a, x), (b, y)) for a, b in combinations(factors, 2) for x in factors[a] for y in factors[b]}
    order = sorted(left)
    cases = []
    while left:
        chosen = dict(next(pair for pair in order if pair in left))
        for name, values in factors.items():
            if name not in chosen:
                chosen[name] = max(values, key=lambda value: len(left & _pairs(chosen | {name: value}, factors)))
        left -= _pairs(chosen, factors)
        cases.append(Case(**chosen))
    return cases


def _pairs(chosen: dict[str, str], factors: dict[str, list[str]]) -> set[Any]:
    return set(combinations([(name, chosen[name]) for name in factors if name in chosen], 2))


def inputs(case: Case, unit: int, device: str = "cpu") -> tuple[Mask, dict[str, Tensor], Tensor | RelativeBias | None]:
    """The mask, q, k, v and do, and the bias. Rows that take no part are NaN: keys that no query may attend to, and
    queries that see no key with their gradients."""
    batch, heads, lq, lk = sizes = case.sizes(unit)
    kv, (d, dv) = HEADS[case.heads][2], WIDTHS[case.width]
    mask = MASKS[case.mask](sizes, unit)
    q_dead, k_dead = dead(mask, sizes, kv)
    shapes = {"q": (heads, lq, d), "k": (kv, lk, d), "v": (kv, lk, dv), "do": (heads, lq, dv)}
    tensors = {}
    for name, shape in shapes.items():
        made = _normal(batch, *shape, seed=len(name) + ord(name[0])).to(DTYPES[case.dtype])
        made = made.masked_fill(q_dead if name in ("q", "do") else k_dead, torch.nan)
        tensors[name] = LAYOUTS[case.layout](made.to(device))
    bias = BIASES[case.bias](sizes)
    if isinstance(bias, T5Bias):
        bias = T5Bias(bias.table.to(device), bias.bidirectional, bias.max_distance)
    return mask, tensors, bias.to(device) if isinstance(bias, Tensor) else bias


def dead(mask: Mask, sizes: Sizes, kv: int) -> tuple[Tensor, Tensor]:
    """(B, H, Lq, 1), queries that see nothing; (B, Hkv, Lk, 1), keys that nobody sees."""
    allowed = mask.dense(*sizes[2:]).expand(sizes)
    return ~allowed.any(3, keepdim=True), ~allowed.unflatten(1, (kv, -1)).any(2).any(2)[..., None]


def exact(
    mask: Mask, tensors: dict[str, Tensor], bias: Tensor | RelativeBias | None, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Output and gradients of `plain` in a dtype, with zeros for what takes no part."""
    sizes = (*tensors["q"].shape[:3], tensors["k"].shape[2])
    device = tensors["q"].device
    q_dead, k_dead = (rows.to(device) for rows in dead(mask, sizes, tensors["k"].shape[1]))
    clean = {n: t.to(dtype).masked_fill(q_dead if n in ("q", "do") else k_dead, 0.0) for n, t in tensors.items()}
    allowed = mask.dense(*sizes[2:]).to(device)

    def run(q: Tensor, k: Tensor, v: Tensor, made: Tensor | RelativeBias | None) -> Tensor:
        whole = made.dense(*sizes[2:], device=device) if isinstance(made, RelativeBias) else made
        return plain(q, k, v, allowed, scale=q.shape[3] ** -0.5, bias=0.0 if whole is None else whole)

    wide = bias.double() if isinstance(bias, Tensor) and dtype == torch.float64 else bias
    return differentiate(run, clean, wide)


def differentiate(
    run: Callable[..., Tensor], tensors: dict[str, Tensor], bias: Tensor | RelativeBias | None
) -> dict[str, Tensor]:
    """output, q, k, v and bias (for T5 that of its table), each the gradient for `do` but the first."""
    leaves = {name: tensors[name].detach().requires_grad_() for name in ("q", "k", "v")}
    given = bias
    if isinstance(bias, Tensor):
        given = leaves["bias"] = bias.detach().requires_grad_()
    elif isinstance(bias, T5Bias):
        table = leaves["bias"] = bias.table.detach().requires_grad_()
        given = T5Bias(table, bias.bidirectional, bias.max_distance)
    out = run(leaves["q"], leaves["k"], leaves["v"], given)
    grads = torch.autograd.grad(out, list(leaves.values()), tensors["do"].to(out.dtype))
    return {"output": out.detach()} | dict(zip(leaves, grads, strict=True))


def kernels(
    mask: Mask, tensors: dict[str, Tensor], bias: Tensor | RelativeBias | None, **options: Any
) -> dict[str, Tensor]:
    """Output and gradients of the triton backend."""

    def run(q: Tensor, k: Tensor, v: Tensor, made: Tensor | RelativeBias | None) -> Tensor:
        return attention(q, k, v, mask=mask, backend="triton", bias=made, **options)

    return differentiate(run, tensors, bias)


def assert_within_gate(case: Case, unit: int, device: str = "cpu") -> None:
    """Relative RMS of output and gradients: at most twice that of `plain` in the same dtype, + 1e-5; zeros stay zeros."""
    mask, tensors, bias = inputs(case, unit, device)
    got = kernels(mask, tensors, bias)
    right, ordinary = (exact(mask, tensors, bias, dtype) for dtype in (torch.float64, DTYPES[case.dtype]))
    rows = dict(zip("qk", dead(mask, case.sizes(unit), tensors["k"].shape[1]), strict=True))
    for name, value in got.items():
        assert torch.isfinite(value).all(), name
        if right[name].abs().max() < 1e-6:  # nothing but rounding, as of a bias that a single key sees
            assert value.abs().max() < 1e-5, name
            continue
        error, allowed = relative_rms(value, right[name]), 2 * relative_rms(ordinary[name], right[name]) + 1e-5
        if not right[name].any() or right[name].abs().max() < 1e-12:  # all that is summed cancels
            error = float(value.abs().max())
        assert error <= allowed, f"{name}: {error:.2e}, allowed {allowed:.2e}"
    for name, of in (("output", "q"), ("q", "q"), ("k", "k"), ("v", "k")):
        assert not got[name].masked_select(rows[of].to(device)).any(), f"{name} of a row that takes no part"


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()


def _segments(batch: int, length: int, unit: int) -> Tensor:
    """Rows of several segments, the last few positions padding."""
    place = torch.arange(length)
    rows = [torch.where(place < length - 3 * b, place // (unit - 3 + 5 * b), -1) for b in range(batch)]
    return torch.stack(rows)


def _table(sizes: Sequence[int], block: int) -> Tensor:
    """One for each head; in the last head's, the first blocks of queries see nothing."""
    draw = torch.Generator().manual_seed(4)
    table = torch.rand(1, sizes[1], -(-sizes[2] // block), -(-sizes[3] // block), generator=draw) < 0.5
    table[:, -1, 0] = False
    return table
