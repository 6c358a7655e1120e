"""How different the heads of a layer are: penalties of Li et al. 2018 (arXiv 1810.10183, section 3.2) for training, measures
for watching it, and both from a model as it is:

    with watched(model, "outputs") as found:
        nll = loss_of(model(tokens))
    loss = nll + 0.1 * penalty("outputs", found)

Vectors of heads are x (B, H, L, D), weights (B, H, Lq, Lk); real: bool (B, L), False = padding, which takes no part. All is
computed in fp32, fp64 where it is given. Matrices (H, H) are means over the real positions of all texts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from common import attention as core
from common.nn.sparse.full import FullAttention
from common.nn.sparse.layer import Layer, SelfAttention, among

What = Literal["subspaces", "positions", "outputs"]


def cosines(x: Tensor, real: Tensor | None = None) -> Tensor:
    """(H, H): the cosine of two heads at the same position; 0 where one is a vector of zeros. Of weights, whose rows are
    queries, that of two heads' maps, from 0 to 1: always 1 at a query that sees a single key, as the first of a causal text."""
    rows = _rows(x, real)
    size = rows.norm(dim=-1, keepdim=True)
    unit = rows / size.masked_fill(size == 0, 1.0)  # not a tiny number, which the gradient would be divided by
    return torch.einsum("rhd,rgd->hg", unit, unit) / len(unit)


def overlaps(weights: Tensor, real: Tensor | None = None) -> Tensor:
    """(H, H): sum over the keys of the product of two heads' weights, from 0 to 1."""
    rows = _rows(weights, real)
    return torch.einsum("rhk,rgk->hg", rows, rows) / len(rows)


def disagreement(what: What, x: Tensor, real: Tensor | None = None) -> Tensor:
    """D of Li et al. 2018, from -1 to 0 but for opposed vectors, (): the more, the more the heads differ. It is minus the
    mean over all H^2 pairs of heads, those of a head with itself among them, of

        subspaces    cos(V^i, V^j)         x: values
        positions    |A^i . A^j|           x: weights, the sum of the products of cells
        outputs      cos(O^i, O^j)         x: what the heads read, before W_o

    at one position, and here the mean over these, where the paper leaves open how they are put together: so lengths do not
    count. A head's overlap with itself is not constant, so that `positions` also asks for less sharp weights.

    Raises ValueError for another kind.
    """
    if what not in get_args(What):
        raise ValueError(f"what: got {what!r}, expected one of {', '.join(get_args(What))}")
    return -(overlaps(x, real) if what == "positions" else cosines(x, real)).mean()


@torch.no_grad()
def divergences(weights: Tensor, real: Tensor | None = None) -> Tensor:
    """(H, H): the Jensen-Shannon divergence of two heads' weights, in bits, from 0 (equal) to 1 (no key in common). Queries
    that see nothing count as equal. Without gradient."""
    p = _rows(weights, real)
    single = _entropy(p)
    found = [  # a head at a time: (rows, H, keys) is large enough
        _entropy((p + p[:, h : h + 1]) / 2) - (single + single[:, h : h + 1]) / 2 for h in range(p.shape[1])
    ]
    return (torch.stack(found, 1) / math.log(2)).clamp(0, 1).mean(0)


@torch.no_grad()
def cka(x: Tensor, real: Tensor | None = None) -> Tensor:
    """(H, H): linear CKA of two heads (Kornblith et al. 2019, arXiv 1905.00414, section 3),

        |Y^T X|_F^2 / (|X^T X|_F |Y^T Y|_F)

    of centred columns, positions of all texts as rows; from 0 to 1, the same whatever either is turned or scaled by. 0 where
    a head is the same at all positions. Needs more positions than D to mean anything: with fewer it is large for any two.
    Without gradient."""
    rows = _rows(x, real)
    rows = (rows - rows.mean(0)).transpose(0, 1)  # (H, rows, D)
    shared = torch.einsum("hrd,gre->hgde", rows, rows).square().sum((2, 3))
    own = shared.diagonal()
    size = (own[:, None] * own).sqrt()
    return (shared / size.masked_fill(size == 0, 1.0)).clamp(max=1.0)


@torch.no_grad()
def entropies(weights: Tensor, seen: Tensor | None = None, real: Tensor | None = None) -> Tensor:
    """(H,): the entropy of a head's weights over log n, its largest, from 0 (one key) to 1 (all alike), the mean over queries
    that see n > 1 keys, 0 where there is none. seen: bool, broadcastable to (B, Lq, Lk), what a query may see; None: all.
    Without gradient."""
    batch, heads, queries, keys = weights.shape
    allowed = torch.ones(keys, dtype=torch.bool, device=weights.device) if seen is None else seen
    count = allowed.expand(batch, queries, keys).sum(-1)
    counted = count > 1 if real is None else (count > 1) & real
    if not counted.any():
        return weights.new_zeros(heads)
    found = _entropy(_rows(weights, counted))
    return (found / count[counted].to(found.dtype).log()[:, None]).mean(0)


def off_diagonal(matrix: Tensor) -> Tensor:
    """The mean over pairs of two heads, (); 0 of a single head. matrix: (H, H)."""
    heads = len(matrix)
    return (matrix.sum() - matrix.diagonal().sum()) / max(heads * (heads - 1), 1)


def copies(similarity: Tensor, above: float = 0.95) -> list[tuple[int, int]]:
    """Pairs of heads, the smaller number first, that are nearly the same. similarity: (H, H), of `cosines`, or of `cka`,
    which also finds copies that are turned; 1 - `divergences` of those that look at the same keys."""
    pairs = (similarity > above).triu(1).nonzero().tolist()
    return [(i, j) for i, j in pairs]


class Watched(NamedTuple):
    """Of one layer. heads: values, weights or outputs, as `disagreement` takes them; real: of its padding."""

    heads: Tensor
    real: Tensor | None


@contextmanager
def watched(model: nn.Module, what: What) -> Iterator[list[Watched]]:
    """A list that gets an entry of each layer, in their order, whenever the model is called within; clear it in between. The
    layers are those with projections of their own (`Layer`), whatever their backend: subspaces are what W_v gives, outputs
    what W_o takes. positions are worked out besides, by the reference, of `Full` and `Sliding` alone. Gradients pass.

    Raises ValueError for another kind, and for a model without such layers.
    """
    if what not in get_args(What):
        raise ValueError(f"what: got {what!r}, expected one of {', '.join(get_args(What))}")
    layers = [part for part in model.modules() if _shows(part, what)]
    if not layers:
        raise ValueError(f"model: got no layer that shows its {what}, expected one or more")
    found: list[Watched] = []
    hooks = [hook for layer in layers for hook in _hooked(layer, what, found)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def penalty(what: What, found: Sequence[Watched]) -> Tensor:
    """-D, the mean over layers, (): what a loss to be minimised gets, times lambda. Raises ValueError for no layers."""
    if not found:
        raise ValueError("found: got no layers, expected those of a call within `watched`")
    return -torch.stack([disagreement(what, *of_layer) for of_layer in found]).mean()


@dataclass(frozen=True)
class Diversity:
    """`optim.penalty`: lambda = weight times `penalty` is added to the loss of each target (Li et al. 2018).

    Raises ValueError for a weight that is not positive, and as `watched` does.
    """

    what: What
    weight: float

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise ValueError(f"weight: got {self.weight}, expected more than 0")

    @contextmanager
    def __call__(self, model: nn.Module) -> Iterator[Callable[[], Tensor]]:
        with watched(model, self.what) as found:
            yield lambda: self.weight * penalty(self.what, found)


def _shows(part: nn.Module, what: What) -> bool:
    if what != "positions":
        return isinstance(part, Layer)
    if not isinstance(part, FullAttention):
        return False
    # of no bias, gate or second window
    return type(part).forward is FullAttention.forward and type(part).attend is SelfAttention.attend


def _hooked(layer: Any, what: What, found: list[Watched]) -> list[Any]:
    """layer: one that `_shows`. real is known at its door, heads further in."""
    given: dict[str, Tensor | None] = {}

    def enters(layer: Any, arguments: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        given["real"] = named.get("real")
        if what == "positions":
            found.append(Watched(_weights(layer, arguments[0], given["real"]), given["real"]))

    def inside(x: Tensor) -> None:
        found.append(Watched(layer.split(x), given.get("real")))

    hooks = [layer.register_forward_pre_hook(enters, with_kwargs=True)]
    if what == "subspaces":
        hooks.append(layer.w_v.register_forward_hook(lambda _, __, out: inside(out)))
    elif what == "outputs":
        hooks.append(layer.w_o.register_forward_pre_hook(lambda _, arguments: inside(arguments[0])))
    return hooks


def _weights(layer: FullAttention, x: Tensor, real: Tensor | None) -> Tensor:
    """(B, H, T, T), before dropout."""
    q, k, v = layer.project(x if real is None else x.masked_fill(~real[..., None], 0.0))
    answer = core.attention(
        q, k, v, mask=among(layer.mask, real), scale=layer.scale, backend="reference", return_weights=True
    )
    assert isinstance(answer, core.Attended) and answer.weights is not None
    return answer.weights


def _rows(x: Tensor, real: Tensor | None) -> Tensor:
    """(B, H, L, D) -> (real positions of all texts, H, D), fp32 at least. Raises ValueError for none."""
    if x.ndim != 4 or (real is not None and (real.dtype != torch.bool or real.shape != (len(x), x.shape[2]))):
        of_real = None if real is None else (real.dtype, tuple(real.shape))
        raise ValueError(f"x, real: got {tuple(x.shape)}, {of_real}, expected (B, H, L, D), bool (B, L)")
    rows = x.to(torch.promote_types(x.dtype, torch.float32)).transpose(1, 2)
    return rows.flatten(0, 1) if real is None else rows[real]


def _entropy(p: Tensor) -> Tensor:
    """In nats, over the last axis; 0 log 0 = 0."""
    return -torch.xlogy(p, p).sum(-1)
