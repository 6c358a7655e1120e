"""Additive attention written out for tests: exact in fp64, and as one would write it in a low precision."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from tests.common.attention.plain import relative_rms

Attend = Callable[..., Tensor]
"""query, keys, values, v, mask -> context."""


def plain(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """All of it in the inputs' dtype, but the softmax in fp32 (fp64 in fp64). A sentence of no real word gives zeros."""
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = torch.einsum("btsa,a->bts", torch.tanh(query[:, :, None, :] + keys[:, None, :, :]), v).to(wide)
    powers = torch.where(mask[:, None, :], torch.exp(scores - scores.max(-1, keepdim=True).values), 0.0)
    total = powers.sum(-1, keepdim=True)
    weights = powers / torch.where(total == 0, 1.0, total)
    return torch.einsum("bts,bsd->btd", weights.to(values.dtype), values)


def inputs(
    shape: tuple[int, int, int, int, int], dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> tuple[Tensor, ...]:
    """query, keys, values, v and a mask for (B, T, S, A, D). The first sentence is whole, others have gaps."""
    batch, steps, source, size, width = shape
    draw = torch.Generator().manual_seed(sum(shape))
    sizes = ((batch, steps, size), (batch, source, size), (batch, source, width), (size,))
    query, keys, values, v = (torch.randn(s, generator=draw, dtype=torch.float64) for s in sizes)
    mask = torch.rand(batch, source, generator=draw) < 0.7
    mask[:1] = True
    return *((t * scale).to(dtype) for t in (query, keys)), values.to(dtype), v.to(dtype), mask


def passes(attend: Attend, given: tuple[Tensor, ...], d_out: Tensor) -> dict[str, Tensor]:
    """The context and the gradients for d_out. The inputs keep their strides."""
    *leaves, mask = given
    leaves = [t.detach().requires_grad_() for t in leaves]
    out = attend(*leaves, mask)  # type: ignore[call-arg]
    grads = torch.autograd.grad(out, leaves, d_out.to(out.dtype))
    return {"context": out.detach()} | dict(zip(("query", "keys", "values", "v"), grads, strict=True))


def d_out_of(given: tuple[Tensor, ...]) -> Tensor:
    draw = torch.Generator().manual_seed(7)
    shape = (*given[0].shape[:2], given[2].shape[2])
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(given[0])


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """New memory holds NaN: what a kernel leaves unwritten, in an output or in between, shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # and fill_uninitialized_memory is on by default
    try:
        assert torch.empty(1).isnan()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def amid_nan(tensor: Tensor) -> Tensor:
    """A copy with NaN before and behind it in memory and between its rows."""
    room = tensor.new_full((*(n + 2 for n in tensor.shape[:-1]), tensor.shape[-1] + 7), math.nan)
    place = room[(*(slice(1, -1) for _ in tensor.shape[:-1]), slice(3, -4))]
    return place.copy_(tensor)


def assert_as_exact_as_plain(attend: Attend, given: tuple[Tensor, ...]) -> None:
    """Context and gradients: relative RMS against fp64 at most twice that of `plain` in the same precision, + 1e-5."""
    d_out = d_out_of(given)
    got = passes(attend, given, d_out)
    exact = passes(plain, (*(t.double() for t in given[:4]), given[4]), d_out.double())
    ordinary = passes(plain, given, d_out)
    for name, tensor in got.items():
        error, allowed = relative_rms(tensor, exact[name]), 2 * relative_rms(ordinary[name], exact[name]) + 1e-5
        assert torch.isfinite(tensor).all(), name
        assert error <= allowed, f"{name}: relative error {error:.2e}, at most {allowed:.2e}"
