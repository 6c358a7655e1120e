"""Forced decoding: the attention with which a model reads the source while it writes a given target."""

import torch
from torch import Tensor

from common.decode.types import StepModel


@torch.no_grad()
def forced_weights(model: StepModel, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor | None:
    """(B, T, S): row t are the weights with which the word after target_in[:, t] is predicted; None without attention.

    source, source_mask: (B, S); target_in: (B, T), BOS and words. Rows of padding mean nothing.
    """
    memory, state = model.begin(source, source_mask)
    rows = []
    for t in range(target_in.shape[1]):
        _, state, weights = model.step(memory, state, target_in[:, t : t + 1])
        if weights is None:
            return None
        rows.append(weights[:, 0])
    return torch.stack(rows, 1)
