"""Attention made cheaper: patterns, axes, low-rank and linear forms, and who computes them."""

from collections.abc import Iterator
from importlib import import_module

import torch
from torch import Generator, Tensor, autograd

from common.attention import BACKENDS, Blocks, Causal, Full, Global, Mask, Random, Window, attention, unsupported
from common.attention.features import elu
from common.attention.linear import linear_attention
from common.attention.request import DTYPES, Request
from common.bench import count_flops
from common.bench.contestants import Plain
from common.bench.depth import longest
from common.nn.lstm import StackedLSTM
from common.nn.vision import Axial
from reproductions.field_guide.exact.scores import EXACT, drawn, usable
from reproductions.field_guide.exact.value import Value, about, at_least, at_most, same, true
from reproductions.flash_attention.exactness import OUTPUTS, gradients


def patterns(draw: Generator) -> Iterator[Value]:
    """B21: sparse attention is a fixed pattern of pairs, of which a window is one; any pattern is dense attention with the
    others masked, and its density is known."""
    blocks = torch.rand(1, 2, 4, 4, generator=draw) < 0.5
    blocks[..., 0] = True
    masks: dict[str, Mask] = {
        "window": Window(2, 2),
        "blocks of each head": Blocks(blocks, 4),
        "window, global, random": Window(2, 2) | Global((0, 5)) | Random(1, 4, seed=3),
        "causal": Causal(),
    }
    q, k, v = (drawn(draw, 1, 2, 16, 4) for _ in range(3))
    for name, mask in masks.items():
        seen = torch.stack([mask.at(0, head).dense(16, 16) for head in range(2)])
        dense = ((q @ k.mT) / 2).masked_fill(~seen, -torch.inf).softmax(-1) @ v
        for backend in usable(q, k, v, mask):
            yield same(f"{name}, {backend}", attention(q, k, v, mask=mask, backend=backend), dense, EXACT)
    seen = masks["window"].dense(16, 16)
    yield about("pairs of a window of 2 on each side", int(seen.sum()), 16 * 5 - 2 * (2 + 1))
    yield true(
        "the window is a pattern of pairs", torch.equal(seen, (torch.arange(16)[:, None] - torch.arange(16)).abs() <= 2)
    )


def axial(draw: Generator) -> Iterator[Value]:
    """B22: rows, then columns: two steps of n sqrt(n) pairs, after which every pixel has reached every other."""
    d, side = 8, 6
    torch.manual_seed(0)
    rows, columns = (Axial(backend="reference")(d, 2, n).double() for n in (0, 1))
    image = drawn(draw, 1, side, side, d).requires_grad_()
    reached = []
    for out in (rows(image), columns(rows(image))):
        found = torch.stack(
            [
                autograd.grad(out[0, y, x].sum(), image, retain_graph=True)[0][0].abs().sum(-1) > 0
                for y, x in ((0, 0), (3, 2), (5, 5))
            ]
        )
        reached.append(int(found.sum()))
    yield about("pixels that reach three others in one step", reached[0], 3 * side)
    yield about("pixels that reach three others in two", reached[1], 3 * side * side)
    for n in (16, 64, 256):
        width = int(n**0.5)
        q = torch.zeros(width, 1, width, d)
        flops = 2 * count_flops(lambda q=q: attention(q, q, q, mask=Full(), backend="reference"))
        yield about(f"FLOPs of both over n sqrt(n) d, n = {n}", flops / (n * n**0.5 * d), 2 * 4)


def associative(draw: Generator) -> Iterator[Value]:
    """B23: with a feature map, (Q K^T) V is Q (K^T V), whose state does not grow; a causal one is read one by one."""
    q, k, v = (drawn(draw, 2, 2, 9, 4) for _ in range(3))
    phi_q, phi_k = elu(q), elu(k)
    scores = phi_q @ phi_k.mT
    dense = (scores @ v) / scores.sum(-1, keepdim=True)
    out, state = linear_attention(phi_q, phi_k, v)
    yield same("other order", out, dense, 1e-10)
    causal = scores.tril()
    out, _ = linear_attention(phi_q, phi_k, v, causal=True)
    yield same("causal", out, (causal @ v) / causal.sum(-1, keepdim=True), 1e-10)
    held, steps = None, []
    for t in range(9):
        one, held = linear_attention(*(x[:, :, t : t + 1] for x in (phi_q, phi_k, v)), causal=True, state=held)
        steps.append(one)
    yield same("one by one", torch.cat(steps, 2), out, 1e-10)
    _, longer = linear_attention(*(torch.cat([x] * 20, 2) for x in (phi_q, phi_k, v)))
    yield about("numbers of the state, a head", state.sums[0, 0].numel(), 4 * (4 + 1))
    yield about("growth of the state over 20 times the length", longer.sums.numel() / state.sums.numel(), 1)


def exact_flash(draw: Generator) -> Iterator[Value]:
    """B29: attention by tiles, which never holds the matrix, is exact: its error is at most twice that of attention written
    out in the same precision, output and gradients."""
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [drawn(draw, 1, 2, 96, 16, dtype=dtype) for _ in range(4)]
        plain = gradients(Plain(Causal(), 0.0), inputs)
        exact = gradients(Plain(Causal(), 0.0), [t.double() for t in inputs])
        tiled = gradients(lambda q, k, v: attention(q, k, v, mask=Causal(), backend="chunked"), inputs)
        for name, right, first, second in zip(OUTPUTS, exact, plain, tiled, strict=True):
            errors = [float((t.double() - right).norm()) for t in (second, first)]
            yield at_most(f"error of {name} over that of attention written out, {dtype}", errors[0] / errors[1], 2.0)


def registry(draw: Generator) -> Iterator[Value]:
    """B31: tiled attention with its own kernels is one of the backends."""
    for backend in ("chunked", "triton"):
        yield true(f"{backend} is there", backend in BACKENDS)
        module = import_module(f"common.attention.backends.{backend}")
        yield true(
            f"{backend} has attend and unsupported", hasattr(module, "attend") and hasattr(module, "unsupported")
        )


def reasons(draw: Generator) -> Iterator[Value]:
    """B42, B64: what runs depends on device, dtype and libraries: each backend either computes or says why not."""
    for dtype in DTYPES:
        q = torch.zeros(1, 1, 4, 8, dtype=dtype)
        for backend in (name for name in BACKENDS if name != "flex"):
            reason = unsupported(Request(q, q, q, Full(), None, 1.0, 0.0, 0, False, False), backend)
            if reason is None:
                out = attention(q, q, q, mask=Full(), backend=backend)
                yield true(f"{backend} computes, {dtype}", out.shape == q.shape and out.dtype == dtype)
            else:
                yield at_least(f"words of the reason of {backend}, {dtype}", len(reason.split()), 3)
                yield true(f"{backend} refuses, {dtype}", refuses(q, backend))
    needs = torch.zeros(1, 1, 4, 8, requires_grad=True)
    reason = unsupported(Request(needs, needs, needs, Full(), None, 1.0, 0.0, 0, False, False), "flex")
    yield true("flex says that it has no gradient on a CPU", reason is not None and "backward" in reason)


def refuses(q: Tensor, backend: str) -> bool:
    try:
        attention(q, q, q, mask=Full(), backend=backend)
    except ValueError as error:
        return f"backend {backend!r}" in str(error)
    return False


def sequential(draw: Generator) -> Iterator[Value]:
    """B02: the longest chain of operations of a recurrent layer grows with the length, that of attention does not."""
    depths = []
    for n in (8, 16, 32):
        x = [drawn(draw, 1, 4).requires_grad_() for _ in range(n)]
        stack = StackedLSTM(4, 4, 1).double()
        state = stack.zeros(x[0])
        for word in x:
            h, state = stack.step(word, state)
        q = torch.stack(x, 1)[:, None]
        out = attention(q, q, q, mask=Causal(), backend="reference")
        depths.append((longest(h), longest(out)))
    yield about(
        "recurrent, chain of 32 over that of 16, first step apart",
        (depths[2][0] - depths[1][0]) / (depths[1][0] - depths[0][0]),
        2,
    )
    yield at_least("recurrent, operations a position", (depths[2][0] - depths[1][0]) / 16, 1)
    yield about("attention, operations more for 32 than for 8", depths[2][1] - depths[0][1], 0)


def attending_recurrence(draw: Generator) -> Iterator[Value]:
    """B05: attention improved what a recurrent decoder can see, not that it goes word by word: its longest chain still grows
    with the length, attended or not."""
    depths: dict[str, list[int]] = {}
    for name, attended in (("attended", True), ("not", False)):
        for n in (4, 8, 16):
            torch.manual_seed(0)
            memory = drawn(draw, 1, 6, 4)
            stack = StackedLSTM(4, 4, 1).double()
            state = stack.zeros(memory[:, 0])
            h = memory[:, 0].requires_grad_()
            for _ in range(n):
                h, state = stack.step(h, state)
                if attended:
                    h = h + (h[:, None] @ memory.mT).softmax(-1)[:, 0] @ memory[0]
            depths.setdefault(name, []).append(longest(h))
    for name, (short, middle, long) in depths.items():
        yield about(f"{name}, chain of 16 over that of 8, first steps apart", (long - middle) / (middle - short), 2)
    yield at_least("operations a word, attended over not", depths["attended"][2] / depths["not"][2], 1)
