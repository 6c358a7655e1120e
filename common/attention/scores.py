"""Score functions: how well a query matches a key, before the softmax.

Pure functions of tensors, so that a recurrent decoder can use them one step at a time.
"""

import torch
from torch import Tensor


def additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Bahdanau et al. 2014, section 3.1 and appendix A.1.2: ``v_a^T tanh(W_a s_{i-1} + U_a h_j)``.

    query: (..., A), the projected decoder state ``W_a s_{i-1}``; keys: (..., S, A), the projected annotations
    ``U_a h_j``, the same for every query and so computed once; v: (A,). Returns (..., S).
    """
    return torch.tanh(query.unsqueeze(-2) + keys) @ v


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis where mask (True = may attend) allows; a row that allows nothing gives zeros.

    scores: (..., S); mask: bool, broadcastable to it. A masked score never reaches the result, NaN or not.
    """
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
