"""The weights of every attention of a Transformer, whatever computes it, for a look at them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from common.nn.multihead import MultiHead


@torch.no_grad()
def attention_maps(model: nn.Module, call: Callable[[], object]) -> dict[str, Tensor]:
    """Weights (B, H, Lq, Lk) of each `MultiHead` of the model during a call of it, by module name, in the order in which
    they ran; empty for a model without any. A row of a query that sees nothing is zeros."""
    maps: dict[str, Tensor] = {}

    def before(name: str) -> Callable[[MultiHead, tuple[Tensor, ...], dict[str, Any]], None]:
        def hook(module: MultiHead, positional: tuple[Tensor, ...], named: dict[str, Any]) -> None:
            maps[name] = module.weights(*positional, **named)

        return hook

    attentions = [(name, module) for name, module in model.named_modules() if isinstance(module, MultiHead)]
    handles = [module.register_forward_pre_hook(before(name), with_kwargs=True) for name, module in attentions]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return maps
