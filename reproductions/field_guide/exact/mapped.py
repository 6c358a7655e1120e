"""The map: what its rows say of themselves, seen in the layers."""

from collections.abc import Iterator
from math import log

import torch
from torch import Generator, Tensor, autograd

from common.bench import count_flops
from reproductions.field_guide.exact.scores import drawn
from reproductions.field_guide.exact.value import Value, about, true
from reproductions.field_guide.variants import VARIANTS, Attend, D, Visible

LENGTHS = (64, 256, 1024)
"""Squares, for images; each four times the one before."""
LINEAR = 0.02
"""What may be left over of work that grows with n: windows are cut at the ends of a text."""


def placed(draw: Generator) -> Iterator[Value]:
    """B01, A39: every kind has a place by its source and by what is visible, and costs what it says."""
    x = drawn(draw, 1, 64, D)
    for variant in VARIANTS:
        attend = variant.make()
        yield true(f"{variant.name} sees what is {variant.visible}", visible(attend, x) == variant.visible)
        yield about(f"{variant.name}, power of n", power(attend), variant.work, 0.1)
    for source in ("self", "cross"):
        for seen in ("full", "causal", "sparse"):
            rows = [v for v in VARIANTS if v.source == source and v.visible.startswith(seen)]
            yield true(f"{source}, {seen}: there is one", bool(rows))


def visible(attend: Attend, x: Tensor) -> Visible:
    """By which inputs each output changes."""
    x = x.clone().requires_grad_()
    out = attend(x)[0]
    pairs = torch.stack([autograd.grad(row.sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for row in out])
    past = torch.ones_like(pairs).tril()
    if pairs.all():
        return "full"
    if torch.equal(pairs, past):
        return "causal"
    return "sparse, causal" if not (pairs & ~past).any() else "sparse"


@torch.no_grad()
def power(attend: Attend) -> float:
    """Of n, in the FLOPs: what four times the length costs beyond four times the FLOPs grows with 4^p; where it grows more
    slowly than the length, or is next to nothing, work is linear."""
    first, second, third = (count_flops(lambda n=n: attend(torch.zeros(1, n, D, dtype=torch.float64))) for n in LENGTHS)
    beyond = second - 4 * first, third - 4 * second
    if abs(beyond[1]) <= LINEAR * third:
        return 1.0
    return max(1.0, log(beyond[1] / beyond[0], 4)) if min(beyond) > 0 else torch.nan
