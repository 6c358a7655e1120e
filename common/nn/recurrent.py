"""The gated hidden unit of Cho et al. 2014a, as Bahdanau et al. 2014 use it (appendix A.1.1), over whole sequences.

    z = sigmoid(W_z x + U_z h + b_z)        update gate
    r = sigmoid(W_r x + U_r h + b_r)        reset gate
    n = tanh(W x + U [r * h] + b)           proposed state
    h' = (1 - z) * h + z * n

This is not `torch.nn.GRU`, which applies the reset gate after the recurrent product (``r * (U h)``) and swaps the
roles of z and 1 - z. Only the products with h are recurrent: W x is computed by the caller for all steps at once,
and `gated_scan` leaves the gradients of U to one product over all steps after the loop.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from common.nn.initialisers import gaussian_, orthogonal_


def gated_step(x: Tensor, h: Tensor, u_gates: Tensor, u_state: Tensor) -> Tensor:
    """One step. x: (..., B, 3H) projected input in the order z, r, n; h: (..., B, H); u_gates: (..., H, 2H) for
    z and r; u_state: (..., H, H). Returns the next state (..., B, H)."""
    hidden = h.shape[-1]
    z, r = torch.sigmoid(x[..., : 2 * hidden] + h @ u_gates).chunk(2, -1)
    n = torch.tanh(x[..., 2 * hidden :] + (r * h) @ u_state)
    return h + z * (n - h)


def gated_step_backward(d_h: Tensor, h: Tensor, gates: Tensor, u_state_t: Tensor, out: Tensor) -> Tensor:
    """Gradient of one step. gates: (..., B, 3H) z, r and n of the step. Writes d(preactivations) into out (..., B, 3H)
    in the same order and returns the part of d(previous state) that does not pass through z and r's preactivations.
    A position with z = 0 (padding) only hands d_h on."""
    z, r, n = gates.chunk(3, -1)
    d_z, d_r, d_n = out.chunk(3, -1)
    torch.mul(d_h, z, out=d_n)
    d_n.addcmul_(d_n * n, n, value=-1)
    torch.mul(d_h, n - h, out=d_z)
    d_z.mul_(z).mul_(1 - z)
    d_rh = (d_n.to(u_state_t.dtype) @ u_state_t).to(d_h.dtype)
    torch.mul(d_rh, h, out=d_r)
    d_r.mul_(r).mul_(1 - r)
    return torch.addcmul(d_h, d_h, z, value=-1).addcmul_(d_rh, r)


class _GatedScan(torch.autograd.Function):
    """`gated_scan` with its gradient written out; recurrent products run in `dtype`, everything else as x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, u_gates: Tensor, u_state: Tensor, keep: Tensor, dtype: torch.dtype
    ) -> Tensor:
        hidden = h0.shape[-1]
        steps = x.shape[0]
        ug, us = u_gates.to(dtype), u_state.to(dtype)
        states = x.new_empty(steps + 1, *h0.shape)
        states[0] = h0
        saved = torch.empty_like(x)
        for t in range(steps):
            h = states[t]
            z, r, n = saved[t].chunk(3, -1)
            gates = saved[t][..., : 2 * hidden]
            torch.add(x[t][..., : 2 * hidden], h.to(dtype) @ ug, out=gates).sigmoid_()
            z.mul_(keep[t])
            torch.add(x[t][..., 2 * hidden :], (r * h).to(dtype) @ us, out=n).tanh_()
            torch.addcmul(h, z, n - h, out=states[t + 1])
        ctx.save_for_backward(saved, states, u_gates, u_state)
        ctx.dtype = dtype
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        saved, states, u_gates, u_state = ctx.saved_tensors
        dtype, hidden = ctx.dtype, u_state.shape[-1]
        ug_t, us_t = u_gates.to(dtype).transpose(-1, -2), u_state.to(dtype).transpose(-1, -2)
        d_x = torch.empty_like(saved)
        d_h = torch.zeros_like(states[0])
        for t in reversed(range(saved.shape[0])):
            d_h = d_h + grad[t]
            d_h = gated_step_backward(d_h, states[t], saved[t], us_t, d_x[t])
            d_h += d_x[t][..., : 2 * hidden].to(dtype) @ ug_t
        d_ug = outer_over_time(states[:-1], d_x[..., : 2 * hidden], dtype)
        d_us = outer_over_time(saved[..., hidden : 2 * hidden] * states[:-1], d_x[..., 2 * hidden :], dtype)
        return d_x, d_h, d_ug.to(u_gates.dtype), d_us.to(u_state.dtype), None, None


def outer_over_time(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over time and batch of left^T right: (T, ..., B, M), (T, ..., B, N) -> (..., M, N)."""
    left, right = left.to(dtype), right.to(dtype)
    if left.dim() == 3:
        return left.flatten(0, 1).transpose(0, 1) @ right.flatten(0, 1)
    fold = (1, 0, 2, 3)
    return left.permute(fold).flatten(1, 2).transpose(1, 2) @ right.permute(fold).flatten(1, 2)


def gated_scan(x: Tensor, h0: Tensor, u_gates: Tensor, u_state: Tensor, keep: Tensor) -> Tensor:
    """`gated_step` over time. x: (T, [D,] B, 3H) projected inputs, h0: ([D,] B, H), u_gates: ([D,] H, 2H),
    u_state: ([D,] H, H), keep: (T, [D,] B, 1), 1.0 at real positions and 0.0 at padding, where the state stays
    what it was. D stacks independent recurrences (the two directions). Returns the states (T, [D,] B, H).

    Under autocast the recurrent products run in its dtype; states and gates stay in x's dtype.
    """
    dtype = matmul_dtype(x)
    with torch.autocast(x.device.type, enabled=False):
        return _GatedScan.apply(x, h0, u_gates, u_state, keep, dtype)  # type: ignore[return-value]


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products under the current autocast state."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype


@dataclass(frozen=True)
class Encoded:
    """Annotations (B, S, D*H) of the encoder, forward direction first, and the last state (D, B, H) of each
    direction: the forward one has read the whole sentence, the backward one ends at the first word."""

    annotations: Tensor
    last: Tensor


class GatedEncoder(nn.Module):
    """Gated recurrent encoder over word embeddings, appendix A.2.1; both directions run in one loop.

    Input weights are drawn from a Gaussian of the given std, recurrent matrices are random orthogonal, biases zero
    (appendix B.1).
    """

    def __init__(self, inputs: int, hidden: int, *, bidirectional: bool, std: float) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.hidden, self.directions = hidden, directions
        self.w = nn.Parameter(gaussian_(torch.empty(inputs, directions * 3 * hidden), std))
        self.bias = nn.Parameter(torch.zeros(directions * 3 * hidden))
        self.u_gates = nn.Parameter(orthogonal_(torch.empty(directions, hidden, 2 * hidden)))
        self.u_state = nn.Parameter(orthogonal_(torch.empty(directions, hidden, hidden)))

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        """embedded: (B, S, E); mask: (B, S) bool, True at real words."""
        batch, time, _ = embedded.shape
        projected = embedded @ self.w + self.bias  # an addition outside autocast's reach: back in the bias's dtype
        x = projected.view(batch, time, self.directions, 3 * self.hidden).permute(1, 2, 0, 3)
        keep = mask.t().to(x.dtype).view(time, 1, batch, 1).expand(-1, self.directions, -1, -1)
        if self.directions == 2:  # the backward direction meets the padding first, where its state stays zero
            x = torch.stack((x[:, 0], x[:, 1].flip(0)), 1)
            keep = torch.stack((keep[:, 0], keep[:, 1].flip(0)), 1)
        h0 = x.new_zeros(self.directions, batch, self.hidden)
        states = gated_scan(x.contiguous(), h0, self.u_gates, self.u_state, keep)
        forward = states[:, 0]
        both = [forward] if self.directions == 1 else [forward, states[:, 1].flip(0)]
        return Encoded(torch.cat(both, -1).transpose(0, 1), states[-1])
