"""What attention of pixels means, one query at a time, in fp64; and who reaches whom."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from common.nn.vision.grid import GridAttention

Pixel = tuple[int, int]
"""Row and column."""
Sees = Callable[[Pixel, Pixel], bool]
"""Query, key -> whether it may be seen."""
Bias = Callable[[int, Pixel, Pixel], Tensor]
"""Head, query, key -> what is added to the score."""

D_MODEL, HEADS = 6, 2


def everything(query: Pixel, key: Pixel) -> bool:
    return True


def same_row(query: Pixel, key: Pixel) -> bool:
    return query[0] == key[0]


def same_column(query: Pixel, key: Pixel) -> bool:
    return query[1] == key[1]


def pixels(height: int, width: int) -> list[Pixel]:
    return [(y, x) for y in range(height) for x in range(width)]


def made(factory: Any, layer: int = 0, d_model: int = D_MODEL, heads: int = HEADS) -> Any:
    """A layer in fp64, with weights large enough for everything to matter."""
    torch.manual_seed(layer)
    module = factory(d_model, heads, layer)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def picture(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def averaging(layer: Any) -> Any:
    """Of d_model 1 and one head: scores of 0, values as they are, so that a query gets the mean of what it sees."""
    for linear in (layer.multihead.w_q, layer.multihead.w_k, layer.multihead.w_v, layer.multihead.w_o):
        nn.init.zeros_(linear.bias)
        nn.init.constant_(linear.weight, 1.0)
    nn.init.zeros_(layer.multihead.w_q.weight)
    return layer


def spelled_out(layer: GridAttention, x: Tensor, sees: Sees, bias: Bias | None = None) -> Tensor:
    of, (_, height, width, _), results = layer.multihead, x.shape, list[Tensor]()
    places = pixels(height, width)
    for image in x:
        rows = torch.stack([image[y, column] for y, column in places])
        q, k, v = (w(rows).view(len(places), of.heads, -1) for w in (of.w_q, of.w_k, of.w_v))
        for i, query in enumerate(places):
            keys = [j for j, key in enumerate(places) if sees(query, key)]
            heads = []
            for h in range(of.heads):
                scores = k[keys, h] @ q[i, h] / math.sqrt(q.shape[-1])
                if bias is not None:
                    scores = scores + torch.stack([bias(h, query, places[j]) for j in keys])
                heads.append(scores.softmax(0) @ v[keys, h])
            results.append(of.w_o(torch.cat(heads)))
    return torch.stack(results).view(x.shape)


def compare(layer: GridAttention, x: Tensor, expected: Tensor) -> None:
    """Outputs, and gradients of x and of every parameter. expected: made of the leaf x and the layer."""
    leaves, weight = [x, *layer.parameters()], picture(*x.shape, seed=5)
    got = layer(x)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-9)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    found = torch.autograd.grad((got * weight).sum(), leaves)
    for mine, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, right, atol=1e-9, rtol=1e-8)


def reaches(function: Callable[[Tensor], Tensor], x: Tensor, query: Pixel) -> set[Pixel]:
    """Pixels on which what comes out at `query` depends, by its gradient. x: (1, H, W, d_model)."""
    leaf = x.clone().requires_grad_()
    out = function(leaf)[0, query[0], query[1]]
    [gradient] = torch.autograd.grad((out * torch.arange(1.0, len(out) + 1, dtype=out.dtype)).sum(), leaf)
    return {(y, column) for y, column in pixels(*x.shape[1:3]) if bool(gradient[0, y, column].any())}
