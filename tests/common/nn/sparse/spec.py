"""What the layers mean, one pair of tokens at a time, in fp64; and inputs of mixed lengths for them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from common.nn.sparse.layer import Layer, SelfAttention
from common.nn.sparse.windowed import WindowedAttention

Sees = Callable[[int, int, int], bool]
"""head, position of the query, position of the key -> whether it may be seen."""

D_MODEL, HEADS = 12, 3


def made(factory: Any, layer: int = 0, layers: int = 1, seed: int = 0, heads: int = HEADS) -> Layer:
    """A layer of d_model 12 with 3 heads, in fp64, with weights large enough for everything to matter."""
    torch.manual_seed(seed)
    module = factory(D_MODEL, heads, layer, layers)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def texts(lengths: Sequence[int], seed: int = 1) -> tuple[Tensor, Tensor]:
    """x (B, longest, 12) in fp64, with large numbers in padding, and real."""
    torch.manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), D_MODEL, dtype=torch.float64)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return x.masked_fill(~real[..., None], 1e6), real


def spelled_out(layer: Layer, x: Tensor, real: Tensor, sees: Sees, is_global: Tensor | None = None) -> Tensor:
    """Rows of zeros at padding. `sees` is asked for pairs of which neither is global."""
    rows = [[torch.zeros(D_MODEL, dtype=x.dtype) for _ in range(x.shape[1])] for _ in range(len(x))]
    projections = [layer.w_q, layer.w_k, layer.w_v]
    of_global: list[Any] = [*projections]
    if isinstance(layer, WindowedAttention) and layer.separate:
        of_global = [layer.w_q_global, layer.w_k_global, layer.w_v_global]
    for b in range(len(x)):
        chosen = [] if is_global is None else [t for t in is_global[b].nonzero().flatten().tolist() if real[b, t]]
        alive = real[b].nonzero().flatten().tolist()
        for i in alive:
            w_q, w_k, w_v = of_global if i in chosen else projections
            heads = []
            for h in range(layer.heads):
                part, shared = (
                    slice(n * layer.head_dim, (n + 1) * layer.head_dim)
                    for n in (h, h // (layer.heads // layer.kv_heads))
                )
                q = w_q(x[b, i])[part]
                keys = [j for j in alive if i in chosen or j in chosen or sees(h, i, j)]
                scores = torch.stack([score(layer, h, i, j, q, w_k(x[b, j])[shared]) for j in keys])
                weights = (scores / math.sqrt(layer.head_dim)).softmax(0)
                heads.append(sum(w * w_v(x[b, j])[shared] for w, j in zip(weights, keys, strict=True)))
            rows[b][i] = layer.w_o(torch.cat(heads))  # type: ignore[arg-type]
    return torch.stack([torch.stack(row) for row in rows])


def score(layer: Layer, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
    """q . k, of rotary positions turned by their distance (Su et al. 2021, section 3.2.2), or Dai et al. 2019, section 3.3."""
    at = layer.relative
    if getattr(layer, "rotary", False):
        return q @ turned(k, j - i)
    if at is None:
        return q @ k
    angle = torch.tensor([(i - j) * 10000 ** (-2 * m / at.size) for m in range(at.size // 2)], dtype=torch.float64)
    r = at.w_r.weight.view(at.heads, at.head_dim, -1)[h] @ torch.cat((angle.sin(), angle.cos()))
    return (q + at.u[h]) @ k + (q + at.v[h]) @ r


def turned(x: Tensor, position: int) -> Tensor:
    """Times the matrix of Su et al. 2021, equation 15: pairs of dimensions turn by position * 10000^(-2m / size)."""
    angles = torch.tensor([position * 10000 ** (-2 * m / len(x)) for m in range(len(x) // 2)], dtype=x.dtype)
    return (
        torch.block_diag(*(torch.tensor([[a.cos(), -a.sin()], [a.sin(), a.cos()]], dtype=x.dtype) for a in angles)) @ x
    )


def window(left: int, right: int, dilation: Sequence[int] = (1, 1, 1)) -> Sees:
    """dilation: of each head."""
    return lambda h, i, j: (j - i) % dilation[h] == 0 and -left <= (j - i) // dilation[h] <= right


def compare(layer: SelfAttention, expected: Tensor, x: Tensor, real: Tensor | None, **given: Any) -> None:
    """Outputs at real positions, and gradients of x and of every parameter. expected: made of the leaf x and the layer."""
    at = torch.ones(x.shape[:2], dtype=torch.bool) if real is None else real
    leaves = [x, *layer.parameters()]
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)[at]
    wanted = torch.autograd.grad((expected[at] * weight).sum(), leaves, retain_graph=True, allow_unused=True)
    got = layer(x, real=real, **given)
    assert got.isfinite().all()
    torch.testing.assert_close(got[at], expected[at], atol=1e-10, rtol=1e-9)
    found = torch.autograd.grad((got[at] * weight).sum(), leaves, allow_unused=True)
    for leaf, *both in zip(leaves, found, wanted, strict=True):
        mine, right = (torch.zeros_like(leaf) if t is None else t for t in both)
        torch.testing.assert_close(mine, right, atol=1e-9, rtol=1e-8)


def reached(function: Callable[[Tensor], Tensor], x: Tensor, position: int) -> list[int]:
    """Positions of the first sample whose output changes with what stands at a position."""
    other = x.clone()
    other[0, position, 0] += 1.0
    return (function(other) != function(x)).flatten(2).any(2)[0].nonzero().flatten().tolist()
