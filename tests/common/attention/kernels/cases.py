"""What every backend must do, and the flash kernels, whether interpreted with blocks of 16 or compiled with the table's.

Masks and some of the lengths are in units of a block. Exact values are those of `plain` in fp64, whose error in the case's
own dtype is what a backend's is measured against.
"""

# pyright: reportArgumentType=false, reportReturnType=false
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, product
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

LENGTHS: dict[str, tuple[float, float]] = {
    "square": (2.5, 2.5),
    "more keys": (1.3, 2.6),
    "more queries": (2.6, 1.3),
    "whole": (2.0, 2.0),
    "one query": (1, 2.5),
    "1": (1, 1),
    "17": (17, 17),
    "127": (127, 127),
    "1000": (1000, 1000),
    "17 of 1000": (17, 1000),
    "1000 of 127": (1000, 127),
}
"""Lq and Lk: an int is itself, a float a number of blocks."""

WIDTHS = {
    "16": (16, 16), "20": (20, 20), "80": (80, 80), "96": (96, 40), "4": (4, 24), "256": (256, 256), "7": (7, 7),
    "128": (128, 128),
}  # fmt: skip
"""D and Dv: one part, or two of 64 + 16 and 64 + 32, and others that fill no part."""

# In squares, windows let a single pair of a block through, or hide a single one.
MASKS: dict[str, Callable[[Sizes, int], Mask]] = {
    "full": lambda sizes, unit: Full(),
    "causal": lambda sizes, unit: Causal(),
    "window": lambda sizes, unit: Window(unit + 1, unit - 2),
    "causal window": lambda sizes, unit: Causal() & Window(2 * unit - 2, None),
    "dilated": lambda sizes, unit: Dilated(unit // 4, 2, 3),
    "bigbird": lambda sizes, unit: Window(3, 1) | Global((0, 5)) | Random(1, unit, seed=2),
    "padding": lambda sizes, unit: Padding(torch.arange(sizes[3]) >= torch.arange(sizes[0])[:, None] * unit - 7),
    "all padding": lambda sizes, unit: Padding.lengths((torch.arange(sizes[0]) * 5).clamp(max=sizes[3]), sizes[3]),
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
        lq, lk = (size if isinstance(size, int) else int(size * unit) for size in LENGTHS[self.lengths])
        return *HEADS[self.heads][:2], lq, lk


ALL_FACTORS = {
    "mask": list(MASKS), "dtype": list(DTYPES), "width": list(WIDTHS), "lengths": list(LENGTHS), "heads": list(HEADS),
    "bias": list(BIASES), "layout": list(LAYOUTS),
}  # fmt: skip

FACTORS = ALL_FACTORS | {"width": list(WIDTHS)[:6], "lengths": list(LENGTHS)[:7]}
"""What an interpreter has time for in blocks of 16."""


def pairwise(factors: dict[str, list[str]], whole: tuple[str, ...] = ()) -> list[Case]:
    """Few cases in which any two values of different factors meet, and all combinations of those of the factors `whole`."""
    left = {((a, x), (b, y)) for a, b in combinations(factors, 2) for x in factors[a] for y in factors[b]}
    order = sorted(left)
    starts = (
        [dict(zip(whole, values, strict=True)) for values in product(*(factors[name] for name in whole))]
        if whole
        else []
    )
    used, made = Counter[tuple[str, str]](), []
    while starts or left:
        chosen = starts.pop(0) if starts else dict(next(pair for pair in order if pair in left))
        for name, values in factors.items():
            if name not in chosen:
                new = {value: len(left & _pairs(chosen | {name: value}, factors)) for value in values}
                chosen[name] = max(values, key=lambda value: (new[value], -used[name, value]))
        left -= _pairs(chosen, factors)
        used.update(chosen.items())
        made.append(Case(**chosen))
    return made


def _pairs(chosen: dict[str, str], factors: dict[str, list[str]]) -> set[Any]:
    return set(combinations([(name, chosen[name]) for name in factors if name in chosen], 2))


LONG = [
    *pairwise({"mask": list(MASKS), "dtype": list(DTYPES), "heads": list(HEADS)[1:], "lengths": ["127"]}),
    Case("causal", "bf16", lengths="1000"),
    Case("bigbird", "fp16", lengths="1000", bias="t5"),
    Case("window", "fp32", lengths="1000", heads="grouped"),
    Case("packed", "bf16", lengths="17 of 1000", heads="batch", bias="of keys"),
    Case("padding", "fp16", lengths="1000 of 127", heads="one key head"),
]
"""What it has time for in blocks of 128."""


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


@dataclass(frozen=True)
class Truth:
    """The inputs of a case and what they give: `right` in fp64, `ordinary` by `plain` in the case's dtype.

    dead: of "q" and "k", which rows take no part. vanished: names of gradients that are zero, as each query that is left
    has one key and so one weight: what cancels there, as a root mean square.
    """

    mask: Mask
    tensors: dict[str, Tensor]
    bias: Tensor | RelativeBias | None
    dead: dict[str, Tensor]
    right: dict[str, Tensor]
    ordinary: dict[str, Tensor]
    vanished: dict[str, float]


def truth(case: Case, unit: int, device: str = "cpu") -> Truth:
    mask, tensors, bias = inputs(case, unit, device)
    rows = (side.to(device) for side in dead(mask, case.sizes(unit), tensors["k"].shape[1]))
    right, ordinary = (exact(mask, tensors, bias, dtype) for dtype in (torch.float64, DTYPES[case.dtype]))
    none = {name for name, value in right.items() if name != "output" and value.abs().max() < 1e-9}
    terms = exact(mask, tensors, bias, torch.float64, unnormalised) if none else {}
    vanished = {name: float(terms[name].pow(2).mean().sqrt()) for name in none}
    return Truth(mask, tensors, bias, dict(zip("qk", rows, strict=True)), right, ordinary, vanished)


def exact(
    mask: Mask,
    tensors: dict[str, Tensor],
    bias: Tensor | RelativeBias | None,
    dtype: torch.dtype,
    form: Callable[..., Tensor] = plain,
) -> dict[str, Tensor]:
    """Output and gradients of `plain` in a dtype, with zeros for what takes no part."""
    sizes = (*tensors["q"].shape[:3], tensors["k"].shape[2])
    device = tensors["q"].device
    q_dead, k_dead = (rows.to(device) for rows in dead(mask, sizes, tensors["k"].shape[1]))
    clean = {n: t.to(dtype).masked_fill(q_dead if n in ("q", "do") else k_dead, 0.0) for n, t in tensors.items()}
    allowed = mask.dense(*sizes[2:]).to(device)

    def run(q: Tensor, k: Tensor, v: Tensor, made: Tensor | RelativeBias | None) -> Tensor:
        whole = made.dense(*sizes[2:], device=device) if isinstance(made, RelativeBias) else made
        return form(q, k, v, allowed, scale=q.shape[3] ** -0.5, bias=0.0 if whole is None else whole)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if isinstance(bias, T5Bias):
        return differentiate(run, clean, T5Bias(bias.table.to(wide), bias.bidirectional, bias.max_distance))
    return differentiate(run, clean, bias.to(wide) if isinstance(bias, Tensor) else bias)


def unnormalised(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, *, scale: float, bias: Tensor | float = 0.0
) -> Tensor:
    """As `plain`, but no gradient flows through the softmax's sum: what that would subtract from the others is missing."""
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2) * scale + bias).masked_fill(~allowed, -1e30)
    weights = (scores - scores.detach().logsumexp(-1, keepdim=True)).exp()
    return weights.masked_fill(~(allowed & allowed.any(-1, keepdim=True)), 0.0) @ v


def differentiate(
    run: Callable[..., Tensor],
    tensors: dict[str, Tensor],
    bias: Tensor | RelativeBias | None,
    wanted: Collection[str] = ("q", "k", "v", "bias"),
) -> dict[str, Tensor]:
    """output, and of those wanted the gradient for `do`: q, k, v and bias (for T5 that of its table)."""
    leaves = {name: tensors[name].detach().requires_grad_(name in wanted) for name in ("q", "k", "v")}
    given = bias
    if isinstance(bias, Tensor):
        given = leaves["bias"] = bias.detach().requires_grad_("bias" in wanted)
    elif isinstance(bias, T5Bias):
        table = leaves["bias"] = bias.table.detach().requires_grad_("bias" in wanted)
        given = T5Bias(table, bias.bidirectional, bias.max_distance)
    out = run(leaves["q"], leaves["k"], leaves["v"], given)
    chosen = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    grads = torch.autograd.grad(out, list(chosen.values()), tensors["do"].to(out.dtype)) if chosen else ()
    return {"output": out.detach()} | dict(zip(chosen, grads, strict=True))


def kernels(
    mask: Mask, tensors: dict[str, Tensor], bias: Tensor | RelativeBias | None, **options: Any
) -> dict[str, Tensor]:
    """Output and gradients of the triton backend."""

    def run(q: Tensor, k: Tensor, v: Tensor, made: Tensor | RelativeBias | None) -> Tensor:
        return attention(q, k, v, mask=mask, backend="triton", bias=made, **options)

    return differentiate(run, tensors, bias)


def errors(known: Truth, got: dict[str, Tensor]) -> dict[str, tuple[float, float]]:
    """Relative RMS of output and gradients, and what is allowed: twice that of `plain` in the same dtype, + 1e-5.

    A gradient that vanishes is measured against what cancels in it, and may be off by a rounding of that: kernels that keep
    the output alone, in 16 bits, have it in both of what they subtract. Raises AssertionError for what is not finite, and for
    rows that take no part and are not zero.
    """
    found = {}
    for name, value in got.items():
        right = known.right[name]
        assert value.shape == right.shape and torch.isfinite(value).all(), f"{name} has a wrong shape or is not finite"
        if name in known.vanished:
            size = known.vanished[name]
            error = float(value.double().pow(2).mean().sqrt()) / (size or 1.0)
            found[name] = error, torch.finfo(known.tensors["q"].dtype).eps / 2 * (size > 0) + 1e-5
        else:
            found[name] = relative_rms(value, right), 2 * relative_rms(known.ordinary[name], right) + 1e-5
    for name, of in (("output", "q"), ("q", "q"), ("k", "k"), ("v", "k")):
        if name in got:
            assert not got[name].masked_select(known.dead[of]).any(), f"{name} of a row that takes no part is not zero"
    return found


def assert_within_gate(case: Case, unit: int, device: str = "cpu") -> None:
    """Of the kernels: see `errors`; zeros stay zeros."""
    known = truth(case, unit, device)
    for name, (error, allowed) in errors(known, kernels(known.mask, known.tensors, known.bias)).items():
        assert error <= allowed, f"{name}: {error:.2e}, allowed {allowed:.2e}"


@contextmanager
def poisoned_memory(device: str = "cpu") -> Iterator[None]:
    """New memory holds NaN: an output or a part of one that nobody writes shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert torch.empty(1, device=device).isnan()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


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
