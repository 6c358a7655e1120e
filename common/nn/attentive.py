"""A gated decoder that attends at every step, over a whole target sentence (teacher forcing).

Bahdanau et al. 2014, appendix A.1.2 and A.2.2: the score of step i reads the *previous* state s_{i-1}; the context
c_i enters the three gates linearly. Hence C h_j is projected once for all steps, as the paper does with U_a h_j, and
the loop only mixes projected annotations. `attentive_step` is one step in plain operations; `attentive_scan` is the
loop with its gradient written out, which keeps no (B, T, S, A) tensor: the backward pass recomputes each step's.
"""

from typing import Any

import torch
from torch import Tensor

from common.attention.scores import additive_score, masked_softmax
from common.nn.recurrent import gated_step, gated_step_backward, matmul_dtype, outer_over_time


def attentive_step(
    y: Tensor,
    s: Tensor,
    keys: Tensor,
    gate_values: Tensor,
    mask: Tensor,
    w_a: Tensor,
    v_a: Tensor,
    u_gates: Tensor,
    u_state: Tensor,
) -> tuple[Tensor, Tensor]:
    """One step. y: (..., 3H) projected previous word; s: (..., H) state s_{i-1}; keys: (..., S, A) = U_a h_j;
    gate_values: (..., S, 3H) = C h_j for z, r, n; mask: (..., S), True = real word; w_a: (H, A); v_a: (A,).
    Returns s_i (..., H) and the weights alpha_i (..., S)."""
    alpha = masked_softmax(additive_score(s @ w_a, keys, v_a), mask)
    context = (alpha.unsqueeze(-2) @ gate_values).squeeze(-2)
    return gated_step(y + context, s, u_gates, u_state), alpha


class _AttentiveScan(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1 throughout: the sigmoid is vectorised better on CPUs, the constant falls out of the
    softmax, and the factors 2 are folded into the keys, W_a and v_a."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        s0: Tensor,
        keys: Tensor,
        gate_values: Tensor,
        mask: Tensor,
        w_a: Tensor,
        v_a: Tensor,
        u_gates: Tensor,
        u_state: Tensor,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        steps, hidden, score = y.shape[0], s0.shape[-1], w_a.shape[1]
        keys2, v2, us = 2 * keys, 2 * v_a, u_state.to(dtype)
        w_all = torch.cat((2 * w_a, u_gates), 1).to(dtype)
        bias = torch.zeros_like(mask, dtype=y.dtype).masked_fill_(~mask, -torch.inf)
        states = y.new_empty(steps + 1, *s0.shape)
        states[0] = s0
        gates = torch.empty_like(y)
        queries = y.new_empty(steps, s0.shape[0], score)
        weights = y.new_empty(steps, *mask.shape)
        work = torch.empty_like(keys2)
        for t in range(steps):
            s = states[t]
            recurrent = (s.to(dtype) @ w_all).to(y.dtype)
            queries[t] = recurrent[:, :score]
            torch.add(keys2, queries[t].unsqueeze(1), out=work).sigmoid_()
            torch.softmax((work @ v2).add_(bias), -1, out=weights[t])
            x = torch.baddbmm(y[t].unsqueeze(1), weights[t].unsqueeze(1), gate_values).squeeze(1)
            z, r, n = gates[t].chunk(3, -1)
            torch.add(x[:, : 2 * hidden], recurrent[:, score:], out=gates[t][:, : 2 * hidden]).sigmoid_()
            torch.add(x[:, 2 * hidden :], (r * s).to(dtype) @ us, out=n).tanh_()
            torch.addcmul(s, z, n - s, out=states[t + 1])
        ctx.save_for_backward(gates, states, queries, weights, keys2, gate_values, w_a, v_a, u_gates, u_state)
        ctx.dtype = dtype
        return states[1:], weights

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_weights = grad_outputs
        gates, states, queries, weights, keys2, gate_values, w_a, v_a, u_gates, u_state = ctx.saved_tensors
        dtype, hidden = ctx.dtype, u_state.shape[-1]
        us_t = u_state.to(dtype).t()
        w_all_t = torch.cat((w_a, u_gates), 1).to(dtype).t()
        d_y = torch.empty_like(gates)
        d_recurrent = gates.new_empty(*gates.shape[:2], w_a.shape[1] + 2 * hidden)
        d_scores = torch.empty_like(weights)
        d_keys, sigma_sum = torch.zeros_like(keys2), torch.zeros_like(v_a)
        work = torch.empty_like(keys2)
        d_s = torch.zeros_like(states[0])
        for t in reversed(range(gates.shape[0])):
            d_s = d_s + d_states[t]
            d_s = gated_step_backward(d_s, states[t], gates[t], us_t, d_y[t])
            d_alpha = torch.bmm(d_y[t].unsqueeze(1), gate_values.transpose(1, 2)).squeeze(1).add_(d_weights[t])
            d_e = d_scores[t]
            torch.mul(weights[t], d_alpha - (weights[t] * d_alpha).sum(-1, keepdim=True), out=d_e)
            torch.add(keys2, queries[t].unsqueeze(1), out=work).sigmoid_()
            sigma_sum += d_e.view(-1) @ work.flatten(0, 1)
            work.addcmul_(work, work, value=-1)  # sigmoid' = (1 - tanh^2) / 4
            d_keys.addcmul_(work, d_e.unsqueeze(2))
            d_query = torch.bmm(d_e.unsqueeze(1), work).squeeze(1)
            torch.mul(d_query, 4 * v_a, out=d_recurrent[t][:, : w_a.shape[1]])
            d_recurrent[t][:, w_a.shape[1] :] = d_y[t][:, : 2 * hidden]
            d_s += d_recurrent[t].to(dtype) @ w_all_t
        d_all = outer_over_time(states[:-1], d_recurrent, dtype).to(w_a.dtype)
        d_us = outer_over_time(gates[..., hidden : 2 * hidden] * states[:-1], d_y[..., 2 * hidden :], dtype)
        d_values = weights.permute(1, 2, 0).to(dtype) @ d_y.transpose(0, 1).to(dtype)
        d_v = 2 * sigma_sum - d_scores.sum()  # tanh = 2 sigmoid - 1
        return (
            d_y,
            d_s,
            d_keys.mul_(4 * v_a),
            d_values.to(gate_values.dtype),
            None,
            d_all[:, : w_a.shape[1]],
            d_v,
            d_all[:, w_a.shape[1] :],
            d_us.to(u_state.dtype),
            None,
        )


def attentive_scan(
    y: Tensor,
    s0: Tensor,
    keys: Tensor,
    gate_values: Tensor,
    mask: Tensor,
    w_a: Tensor,
    v_a: Tensor,
    u_gates: Tensor,
    u_state: Tensor,
) -> tuple[Tensor, Tensor]:
    """`attentive_step` over time. y: (T, B, 3H), s0: (B, H), keys: (B, S, A), gate_values: (B, S, 3H),
    mask: (B, S) bool with at least one True a row. Returns states s_1..s_T (T, B, H) and weights (T, B, S).

    There is no target mask: padding lies at the end, where no real position reads it. Under autocast the products
    with weights run in its dtype; states, scores and the softmax stay in y's dtype.
    """
    dtype = matmul_dtype(y)
    with torch.autocast(y.device.type, enabled=False):
        return _AttentiveScan.apply(  # type: ignore[return-value]
            y, s0, keys, gate_values, mask, w_a, v_a, u_gates, u_state, dtype
        )
