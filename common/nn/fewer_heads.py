"""A model with fewer heads of keys and values from the weights of one with more: the conversion before uptraining (Ainslie et
al. 2023, section 2.1 and figure 4)."""

from collections.abc import Mapping
from typing import Literal, get_args

from torch import Tensor, nn

from common.nn.multihead import MultiHead
from common.nn.sparse.full import FullAttention

How = Literal["mean", "first", "random"]


def start_from_more_heads(model: nn.Module, state: Mapping[str, Tensor], *, how: How) -> None:
    """Load `converted` weights, in place. Raises ValueError, and loads nothing, for what does not fit."""
    model.load_state_dict(converted(state, model, how))


def converted(state: Mapping[str, Tensor], model: nn.Module, how: How) -> dict[str, Tensor]:
    """The state dict of `model` from that of one with as many heads of keys and values, or some multiple of them.

    A head is `head_dim` consecutive rows of W_k and W_v and as many numbers of their biases; the heads of a group stand side
    by side, as the query heads that read them do. how: of the heads of a group the "mean", or the "first", or "random", what
    `model` has drawn itself. Attention that has as many heads already is copied whatever `how`, and so is all else. Raises
    ValueError for weights that are missing, are too many, or have another shape.
    """
    if how not in get_args(How):
        raise ValueError(f"how: got {how!r}, expected one of {', '.join(get_args(How))}")
    own, found = model.state_dict(), dict(state)
    for name, heads in keys_and_values(model).items():
        if name in found:
            found[name] = _fewer(found[name], own[name], heads, how)
    missing = [name for name in own if name not in found]
    beyond = [name for name in found if name not in own]
    other = [name for name in found if name in own and found[name].shape != own[name].shape]
    if missing or beyond or other:
        raise ValueError(
            f"weights of a model with more heads: missing {missing}, too many {beyond}, of another shape {other}"
        )
    return found


def grouped_attentions(model: nn.Module) -> dict[str, MultiHead | FullAttention]:
    """By name, the parts of a model whose keys and values may have fewer heads than its queries."""
    return {name: part for name, part in model.named_modules() if isinstance(part, MultiHead | FullAttention)}


def keys_and_values(model: nn.Module) -> dict[str, int]:
    """The names of their W_k and W_v, weights and biases, and how many heads each has."""
    return {
        f"{name}.{projection}.{parameter}".removeprefix("."): part.kv_heads
        for name, part in grouped_attentions(model).items()
        for projection in ("w_k", "w_v")
        for parameter, _ in part.get_submodule(projection).named_parameters()
    }


def _fewer(given: Tensor, own: Tensor, heads: int, how: How) -> Tensor:
    """given: (some times heads * head_dim, ...), own: (heads * head_dim, ...). What cannot be grouped is given back, and has
    another shape."""
    if given.shape == own.shape or given.shape[1:] != own.shape[1:] or len(given) % len(own):
        return given
    groups = given.unflatten(0, (heads, len(given) // len(own), -1))  # (heads, heads of a group, head_dim, ...)
    if how == "mean":
        return groups.mean(1).flatten(0, 1)
    return groups[:, 0].flatten(0, 1) if how == "first" else own
