"""Score functions: how well a query matches a key, before the softmax; and the windows of local attention, after it.

Pure functions of tensors, so that a recurrent decoder can use them one step at a time: query (..., H) is its state h_t,
keys (..., S, H) are the S states of the encoder, scores are (..., S); leading axes broadcast. Matrices are stored as
(inputs, outputs). Who has all queries at once uses `common.attention.attention` (general: with W_a applied to the
queries first) or `common.attention.additive.additive_attention`.

Global attention is ``masked_softmax(scores, real) @ values``; local attention (Luong et al. 2015, section 3.2) is

    center = predicted_center(h_t, w_p, v_p, lengths)                   local-p; for local-m, center = t
    alpha = masked_softmax(scores, real & window(center, D, S)) * truncated_gaussian(center, D, S)      local-p alone

As in the paper (equation 10) the Gaussian multiplies the weights *after* the softmax and nothing normalises them again:
they sum to at most 1.
"""

import torch
from torch import Tensor


def dot_score(query: Tensor, keys: Tensor) -> Tensor:
    """Luong et al. 2015, section 3.1, "dot": ``h_t^T h_s``."""
    if (
        query.ndim > 1 and keys.ndim == query.ndim + 1 and keys.shape[-3] == 1
    ):  # several queries of the same keys: one product
        return query @ keys.squeeze(-3).mT
    return (keys @ query.unsqueeze(-1)).squeeze(-1)


def scaled_dot_score(query: Tensor, keys: Tensor) -> Tensor:
    """Vaswani et al. 2017, section 3.2.1, equation 1: ``q^T k / sqrt(d_k)``."""
    return dot_score(query * query.shape[-1] ** -0.5, keys)


def general_score(query: Tensor, keys: Tensor, w_a: Tensor) -> Tensor:
    """Luong et al. 2015, section 3.1, "general": ``h_t^T W_a h_s``. w_a: (H of the query, H of the keys)."""
    return dot_score(query @ w_a, keys)


def concat_score(query: Tensor, keys: Tensor, w_a: Tensor, v_a: Tensor) -> Tensor:
    """Luong et al. 2015, section 3.1, "concat": ``v_a^T tanh(W_a [h_t; h_s])``. w_a: (H of query + H of keys, A); v_a: (A,).

    The product of W_a with the concatenation is the sum of two products, so this is `additive_score` with one matrix.
    """
    size = query.shape[-1]
    return additive_score(query @ w_a[:size], keys @ w_a[size:], v_a)


def location_score(query: Tensor, w_a: Tensor, source: int) -> Tensor:
    """Luong et al. 2015, section 3.1, equation 8, "location": ``a_t = softmax(W_a h_t)``, from the state alone.

    w_a: (H, most positions). Returns the scores of the first `source` positions, (..., source): of shorter sentences only
    the top part is used; in longer ones the words beyond w_a's positions are ignored, their score is -inf.
    """
    scores = query @ w_a[:, :source]
    return torch.nn.functional.pad(scores, (0, source - scores.shape[-1]), value=-torch.inf)


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


def predicted_center(query: Tensor, w_p: Tensor, v_p: Tensor, lengths: Tensor) -> Tensor:
    """Luong et al. 2015, section 3.2, equation 9, local-p: ``p_t = S sigmoid(v_p^T tanh(W_p h_t))``, from 0 to S.

    query: (..., H); w_p: (H, P); v_p: (P,); lengths: S of each sentence, broadcastable to (...): (B,) for one step of a
    batch, (B, 1) for all steps. Returns (...), in fp32 (fp64 stays), as bf16 knows no odd position beyond 256. The
    gradient of W_p and v_p comes through `truncated_gaussian`.
    """
    share = torch.tanh(query @ w_p) @ v_p
    return lengths * torch.sigmoid(share if share.dtype == torch.float64 else share.float())


def window(center: Tensor, half_width: int, source: int) -> Tensor:
    """Luong et al. 2015, section 3.2: bool (..., source), True at positions s in ``[p_t - D, p_t + D]``.

    center: p_t, (...), counted from 0 as s is; local-m sets p_t = t. half_width: D. What of the window lies outside the
    sentence is ignored: one that lies wholly outside (local-m, t > S - 1 + D) holds nothing, and gives a context of zeros.
    """
    return _distance(center, half_width, source).abs() <= half_width


def truncated_gaussian(center: Tensor, half_width: int, source: int) -> Tensor:
    """Luong et al. 2015, section 3.2, equation 10: ``exp(-(s - p_t)^2 / (2 sigma^2))``, sigma = D / 2, (..., source).

    The factor of the weights, to multiply *after* the softmax; 0 outside of `window`. Arguments as there.
    """
    distance = _distance(center, half_width, source)
    factor = torch.exp(-(distance**2) / (2 * (half_width / 2) ** 2))
    return factor.masked_fill(distance.abs() > half_width, 0.0)


def _distance(center: Tensor, half_width: int, source: int) -> Tensor:
    """s - p_t, (..., source)."""
    if half_width < 1:
        raise ValueError(f"half_width: got {half_width}, expected 1 or more source positions")
    return torch.arange(source, device=center.device) - center.unsqueeze(-1)
