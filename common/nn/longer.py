"""A model from the weights of another one: for longer texts (Beltagy et al. 2020, section 5), with another kind of attention
(Choromanski et al. 2020, section 4.3), or for another task (Devlin et al. 2019, section 3.2)."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from common.nn.sparse.windowed import WindowedAttention

TABLE = "embedding.places"
"""How the name of a table of learned positions ends."""

TRUNK = "trunk."
Positions = Literal["copied", "random"]


def start_from(
    model: nn.Module, shorter: Mapping[str, Tensor], *, positions: Positions, only_new_positions: bool = False
) -> None:
    """Load the weights of a model with fewer learned positions, the state dict `shorter`, in place.

    positions: of the longer table, "copied", the shorter one again and again ("we copy BERT's ... multiple times"), or
    "random", as the model has drawn them itself (table 5). What the shorter one need not have: separate global projections,
    which become copies of the others, extra tokens, and BigBird's and FAVOR+'s draws, which stay. only_new_positions: nothing is
    trained but the positions beyond the shorter model's (table 5, last row), by an optimiser without weight decay, which
    would move the others without a gradient. Raises ValueError, and loads nothing, for weights that are missing besides
    these, are too many, or have another shape.
    """
    if positions not in ("copied", "random"):
        raise ValueError(f"positions: got {positions!r}, expected copied or random")
    own, loaded = model.state_dict(), dict(shorter)
    for name in [name for name in own if name.endswith(TABLE) and name in loaded]:
        loaded[name] = tiled(loaded[name], len(own[name])) if positions == "copied" else own[name]
    missing = [name for name in own if name not in loaded and not _may_lack(name)]
    beyond = [name for name in loaded if name not in own]
    other = [name for name in loaded if name in own and loaded[name].shape != own[name].shape]
    if missing or beyond or other:
        raise ValueError(f"weights of a shorter model: missing {missing}, too many {beyond}, of another shape {other}")
    model.load_state_dict(loaded, strict=False)
    for module in model.modules():
        if isinstance(module, WindowedAttention) and not any("_global." in name for name in loaded):
            module.copy_to_global()
    if only_new_positions:
        train_positions_alone(model, max((len(t) for name, t in shorter.items() if name.endswith(TABLE)), default=0))


def tiled(table: Tensor, length: int) -> Tensor:
    """(N, d) -> (length, d): the table again and again, the last copy cut off where need be."""
    if length < len(table):
        raise ValueError(f"positions: got a table of {len(table)}, expected at most the {length} of the longer model")
    return table.repeat(-(-length // len(table)), 1)[:length]


def train_positions_alone(model: nn.Module, known: int) -> None:
    """Freezes all but the tables of learned positions, and of these the first `known` rows."""
    tables = {name for name, _ in model.named_parameters() if name.endswith(TABLE)}
    if not tables:
        raise ValueError("only_new_positions: got a model without learned positions, expected positions='learned'")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in tables)
        if name in tables:
            new = (torch.arange(len(parameter)) >= known)[:, None]
            parameter.register_hook(lambda gradient, new=new: gradient * new.to(gradient))


def _may_lack(name: str) -> bool:
    return "_global." in name or name.endswith((".order", "trunk.extra", ".attention.draw", ".attention.calls"))


def start_trunk_from(model: nn.Module, pretrained: Mapping[str, Tensor]) -> None:
    """Load the embedding and blocks of another model, the state dict `pretrained`, in place; what a model has on top of its
    trunk stays. Raises ValueError, and loads nothing, for trunks that differ."""
    own = {name for name in model.state_dict() if name.startswith(TRUNK)}
    given = {name: tensor for name, tensor in pretrained.items() if name.startswith(TRUNK)}
    if own != given.keys():
        raise ValueError(
            f"weights of a trunk: missing {sorted(own - given.keys())}, too many {sorted(given.keys() - own)}"
        )
    start_from(model, model.state_dict() | given, positions="copied")
