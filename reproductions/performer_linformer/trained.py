"""What the approximations meet in a trained model: the spectrum of its attention matrices (Linformer, Figure 1), and how the
error of random features grows from layer to layer (Performer, section 4.2)."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from common.bench.by_length import store
from common.nn.linear import Favor
from common.nn.long import MaskedModel, Trunk
from common.nn.longer import start_from
from common.nn.sparse.full import FullAttention


class Reader(Protocol):
    """Masked models with full attention, as one was tested and as it was drawn, and a text, (B, T) ids."""

    @property
    def tested(self) -> Any: ...
    @property
    def drawn(self) -> Any: ...
    @property
    def tokens(self) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """`energy` by layer: per cent of the sum of an attention matrix's singular values that the largest `share` of them hold,
    a sample for each sequence and head. trained_row, untrained_row: of the model and of the same as it was drawn."""

    of: Reader
    share: float
    trained_row: str
    untrained_row: str
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {self.trained_row: {}, self.untrained_row: {}}
        for row, model in ((self.trained_row, self.of.tested), (self.untrained_row, self.of.drawn)):
            for layer, found in enumerate(matrices(model.trunk, self.of.tokens), start=1):
                values = torch.linalg.svdvals(found.double())
                first = max(1, round(self.share * values.shape[-1]))
                energy = 100 * values[..., :first].sum(-1) / values.sum(-1)
                store(rows, row, "energy", layer, "%").extend(energy.flatten().tolist())
        return rows


def matrices(trunk: Trunk, tokens: Tensor) -> list[Tensor]:
    """softmax(Q K^T / sqrt(d)) of each layer, (B, H, T, T)."""
    found: list[Tensor] = []

    def keep(layer: FullAttention, given: tuple[Tensor, ...]) -> None:
        q, k, _ = layer.project(given[0])
        found.append((q @ k.mT * layer.scale).softmax(-1))

    layers = [module for module in trunk.modules() if isinstance(module, FullAttention)]
    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    trunk(tokens)
    for hook in hooks:
        hook.remove()
    return found


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """`relative_error` by layer, a sample a draw: what the hidden vectors behind it differ by from those of softmax attention
    with the same weights, over their size (root mean squares). rows: row -> number of features."""

    of: Reader
    rows: Mapping[str, int]
    draws: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        model, tokens = self.of.tested, self.of.tokens
        exact = hidden(model.trunk, tokens)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        for row, count in self.rows.items():
            for draw in range(self.draws):
                close = hidden(approximate(model, count, seed * self.draws + draw), tokens)
                for layer, (one, other) in enumerate(zip(exact, close, strict=True), start=1):
                    error = (other - one).square().mean().sqrt() / one.square().mean().sqrt()
                    store(rows, row, "relative_error", layer, "of 1").append(error.item())
        return rows


def approximate(model: MaskedModel, features: int, seed: int) -> Trunk:
    """The trunk with random features in place of softmax attention, its weights the same."""
    made, favor = copy.deepcopy(model.trunk), Favor(features=features, seed=seed)
    for n, block in enumerate(made.blocks):
        assert isinstance(block.attention, FullAttention)
        block.attention = favor(made.d_model, block.attention.heads, n, len(made.blocks))
    start_from(made, model.trunk.state_dict(), positions="copied")
    return made.eval()


def hidden(trunk: Trunk, tokens: Tensor) -> list[Tensor]:
    """What each block gives, (B, T, d_model)."""
    found: list[Tensor] = []

    def keep(block: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        found.append(out)

    hooks = [block.register_forward_hook(keep) for block in trunk.blocks]
    trunk(tokens)
    for hook in hooks:
        hook.remove()
    return found
