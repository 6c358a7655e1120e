"""Features of queries and keys whose products are scores: random ones of the softmax (Choromanski et al. 2020, section 2.3),
and fixed ones (Katharopoulos et al. 2020, section 3.2.1). For `common.attention.linear`.

x: (..., D), queries or keys; draw: (M, D), rows of N(0, I), see `gaussian`. All compute in fp32, fp64 for fp64, under autocast
too.
"""

import torch
from torch import Tensor, nn

KERNEL_EPSILON = 1e-3
"""What is added to generalised features, as the authors have it: no query is without a score."""


def gaussian(features: int, size: int, generator: torch.Generator, *, orthogonal: bool = True) -> Tensor:
    """(features, size), each row N(0, I) by itself; orthogonal: `size` rows at a time lie at right angles (section 2.4), with
    lengths as of independent rows. fp32, drawn on the CPU."""
    if min(features, size) < 1:
        raise ValueError(f"features, size: got {features} and {size}, expected 1 or more of each")
    rows = torch.randn(features, size, generator=generator)
    if not orthogonal:
        return rows
    turned = []
    for start in range(0, features, size):
        q, r = torch.linalg.qr(torch.randn(size, size, generator=generator))
        turned.append((q * r.diagonal().sign()).mT[: features - start])  # by the signs, Q is uniform among rotations
    return torch.cat(turned) * rows.norm(dim=1, keepdim=True)


def positive(x: Tensor, draw: Tensor) -> Tensor:
    """Logarithms of positive features, (..., M): exp(w . x - |x|^2 / 2) / sqrt(M), x over D^(1/4) (lemma 1).

    Their products have the expectation exp(q . k / sqrt(D)).
    """
    x, products = _products(x, draw)
    return products - x.square().sum(-1, keepdim=True) / 2 - torch.log(x.new_tensor(len(draw))) / 2


def trigonometric(x: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Signed features, (..., 2 M): (sin, cos)(w . x) / sqrt(M); and what multiplies them, exp of (..., 1): |x|^2 / 2.

    Products of all have the same expectation as those of positive features, and a variance that grows as scores get small
    (lemma 2).
    """
    x, angle = _products(x, draw)
    return torch.cat((angle.sin(), angle.cos()), -1) * len(draw) ** -0.5, x.square().sum(-1, keepdim=True) / 2


def relu(x: Tensor, draw: Tensor, epsilon: float = KERNEL_EPSILON) -> Tensor:
    """Generalised features, (..., M): ReLU(w . x) + epsilon, x over D^(1/4) (section 2.2): no approximation of the softmax."""
    return _products(x, draw)[1].relu() + epsilon


def elu(x: Tensor) -> Tensor:
    """The Linear Transformer's, (..., D): elu(x) + 1 (Katharopoulos et al. 2020, equation 7)."""
    return nn.functional.elu(x.to(torch.promote_types(x.dtype, torch.float32))) + 1


def _products(x: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """x over D^(1/4), and its products with the draw's rows."""
    if draw.ndim != 2 or x.shape[-1] != draw.shape[1]:
        raise ValueError(
            f"draw: got {tuple(draw.shape)}, expected (features, {x.shape[-1]}), the size of queries and keys"
        )
    wide = torch.promote_types(x.dtype, torch.float32)
    x = x.to(wide) * x.shape[-1] ** -0.25
    with torch.autocast(x.device.type, enabled=False):
        return x, x @ draw.to(x.device, wide).mT
