"""Stacked long short-term memory (Hochreiter and Schmidhuber 1997; with forget gates, as Zaremba et al. 2015, section 3).

    i, f, o = sigmoid(W x + U h + b)        input, forget and output gate
    g = tanh(W x + U h + b)                 proposed cell
    c' = f * c + i * g
    h' = o * tanh(c')

Only U h is recurrent: W x is computed by the caller for all steps at once, and `lstm_scan` leaves the gradient of U to
one product over all steps after the loop. Gates lie in the order i, f, g, o.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from common.nn.deferred import Deferred
from common.nn.recurrent import matmul_dtype, outer_over_time


class Cells(NamedTuple):
    """State of a stack: h and c, (..., layers, H)."""

    h: Tensor
    c: Tensor


class _Pointwise(torch.autograd.Function):
    """From the sum before the gates and the cell to h' and c'."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        hidden = c.shape[-1]
        gates = torch.sigmoid(total)
        torch.tanh(total[..., 2 * hidden : 3 * hidden], out=gates[..., 2 * hidden : 3 * hidden])
        i, f, g, o = gates.chunk(4, -1)
        new_c = torch.addcmul(f * c, i, g)
        squashed = new_c.tanh()
        ctx.save_for_backward(gates, c, squashed)
        return o * squashed, new_c

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        d_h, d_c = grad_outputs
        gates, c, squashed = ctx.saved_tensors
        d_total = torch.empty_like(gates)
        return d_total, step_backward(d_h, d_c, gates, c, squashed, d_total)


def activated(total: Tensor) -> Tensor:
    """The gates (..., 4H) of their sums, in place."""
    hidden = total.shape[-1] // 4
    total[..., : 2 * hidden].sigmoid_()
    total[..., 2 * hidden : 3 * hidden].tanh_()
    total[..., 3 * hidden :].sigmoid_()
    return total


def step_backward(d_h: Tensor, d_c: Tensor, gates: Tensor, c: Tensor, squashed: Tensor, out: Tensor) -> Tensor:
    """Gradient of one step: writes that of the sums before the gates into out and returns that of the cell c before.

    d_h, d_c: of h' and c'; squashed: tanh(c').
    """
    i, f, g, o = gates.chunk(4, -1)
    d_i, d_f, d_g, d_o = out.chunk(4, -1)
    torch.mul(d_h, squashed, out=d_o)
    d_o.mul_(o).mul_(1 - o)
    d_c = torch.addcmul(d_c, d_h * o, 1 - squashed * squashed)
    torch.mul(d_c, g, out=d_i)
    d_i.mul_(i).mul_(1 - i)
    torch.mul(d_c, c, out=d_f)
    d_f.mul_(f).mul_(1 - f)
    torch.mul(d_c, i, out=d_g)
    d_g.mul_(1 - g * g)
    return d_c * f


def lstm_step(total: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h' and c', (..., H), from total (..., 4H) = W x + U h + b and c (..., H)."""
    return _Pointwise.apply(total, c)  # type: ignore[return-value]


class _Scan(torch.autograd.Function):
    """`lstm_scan` with its gradient written out; recurrent products run in `dtype`, everything else as x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, u: Tensor, keep: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        steps, low = x.shape[0], u.to(dtype)
        h, c = (x.new_empty(steps + 1, *first.shape) for first in (h0, c0))
        h[0], c[0] = h0, c0
        gates, squashed = torch.empty_like(x), torch.empty_like(h[1:])
        for t in range(steps):
            activated(torch.add(x[t], h[t].to(dtype) @ low, out=gates[t]))
            i, f, g, o = gates[t].chunk(4, -1)
            torch.addcmul(f * c[t], i, g, out=c[t + 1])
            torch.tanh(c[t + 1], out=squashed[t])
            torch.mul(o, squashed[t], out=h[t + 1])
            if keep is not None:
                for state in (h, c):
                    torch.where(keep[t], state[t + 1], state[t], out=state[t + 1])
        ctx.save_for_backward(gates, squashed, h, c, u, keep)
        ctx.dtype = dtype
        return h[1:], c[steps].clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        of_h, d_c = grad_outputs
        gates, squashed, h, c, u, keep = ctx.saved_tensors
        dtype = ctx.dtype
        u_t = u.to(dtype).t()
        d_x, d_h = torch.empty_like(gates), torch.zeros_like(h[0])
        for t in reversed(range(gates.shape[0])):
            d_h = d_h + of_h[t]
            before = step_backward(d_h, d_c, gates[t], c[t], squashed[t], d_x[t])
            if keep is None:
                d_c, d_h = before, (d_x[t].to(dtype) @ u_t).to(d_h.dtype)
            else:  # at padding the state passed by, and so does its gradient
                d_x[t].mul_(keep[t])
                passed = (d_x[t].to(dtype) @ u_t).to(d_h.dtype)
                d_c, d_h = torch.where(keep[t], before, d_c), torch.where(keep[t], passed, d_h)
        d_u = outer_over_time(h[:-1], d_x, dtype)
        return d_x, d_h, d_c, d_u.to(u.dtype), None, None


def lstm_scan(x: Tensor, h0: Tensor, c0: Tensor, u: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`lstm_step` over time: h (T, B, H) of every step, and the last c (B, H).

    x: (T, B, 4H) = W x + b; h0, c0: (B, H); u: (H, 4H); keep: (T, B, 1) bool, False at padding, where the state stays what
    it was; None: no padding. Under autocast the recurrent products run in its dtype; states and gates stay in x's dtype.
    """
    dtype = matmul_dtype(x)
    with torch.autocast(x.device.type, enabled=False):
        return _Scan.apply(x, h0, c0, u, keep, dtype)  # type: ignore[return-value]


class StackedLSTM(nn.Module):
    """`layers` LSTMs one on top of the other. Dropout acts on what comes into each, never on what recurs (Zaremba et al.
    2015, section 3.1). The caller draws the weights."""

    def __init__(self, inputs: int, hidden: int, layers: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers: got {layers}, expected 1 or more")
        self.hidden, self.layers = hidden, layers
        self.w = nn.ModuleList(nn.Linear(hidden if layer else inputs, 4 * hidden) for layer in range(layers))
        self.u = nn.ParameterList(nn.Parameter(torch.empty(hidden, 4 * hidden)) for _ in range(layers))
        self.drop = nn.Dropout(dropout)

    def zeros(self, like: Tensor) -> Cells:
        """The state before anything is read, of like.shape[0] sequences."""
        first = like.new_zeros(like.shape[0], self.layers, self.hidden)
        return Cells(first, first)

    def forward(self, x: Tensor, state: Cells, mask: Tensor | None = None) -> tuple[Tensor, Cells]:
        """x: (B, T, inputs), state: (B, layers, H), mask: (B, T) bool, True at real words, or None for no padding.

        Returns the top layer's h (B, T, H) and the state after each sequence's last real word.
        """
        keep = None if mask is None else mask.t().unsqueeze(-1)
        last_h, last_c = [], []
        for layer, (w, u) in enumerate(zip(self.w, self.u, strict=True)):
            total = w(self.drop(x)).to(state.h.dtype).transpose(0, 1).contiguous()
            h, c = lstm_scan(total, state.h[:, layer], state.c[:, layer], u, keep)
            last_h.append(h[-1])
            last_c.append(c)
            x = h.transpose(0, 1)
        return x, Cells(torch.stack(last_h, 1), torch.stack(last_c, 1))

    def step(self, x: Tensor, state: Cells) -> tuple[Tensor, Cells]:
        """One word: x (..., inputs) and state (..., layers, H) to the top layer's h (..., H) and the next state."""
        hs, cs = [], []
        for layer, (w, u) in enumerate(zip(self.w, self.u, strict=True)):
            before = state.h[..., layer, :]
            total = w(self.drop(x)).to(before.dtype) + (before @ u).to(before.dtype)
            h, c = lstm_step(total, state.c[..., layer, :])
            hs.append(h)
            cs.append(c)
            x = h
        return x, Cells(torch.stack(hs, -2), torch.stack(cs, -2))

    def fed(self, words: Tensor, state: Cells) -> Callable[[int, Tensor], Tensor]:
        """A loop over words (B, T, E) whose steps also read what the loop itself makes: a function of t and of that,
        (B, inputs - E), to the top layer's h (B, H). It begins at `state` and is called for t = 0, 1, ..., T - 1.

        The same as `step` on their concatenation. What the words add to the first layer is one product for all steps, and
        so is the gradient of each matrix.
        """
        size, linears = words.shape[-1], cast(list[nn.Linear], list(self.w))
        first, *others = (w.weight.t() for w in linears)
        given = nn.functional.linear(self.drop(words), first[:size].t(), linears[0].bias)
        totals = given.to(state.h.dtype).unbind(1)
        products = [Deferred(torch.cat((w, u))) for w, u in zip((first[size:], *others), self.u, strict=True)]
        hs, cs = list(state.h.unbind(-2)), list(state.c.unbind(-2))

        def step(t: int, x: Tensor) -> Tensor:
            for layer, product in enumerate(products):
                before = totals[t] if layer == 0 else linears[layer].bias
                total = product(torch.cat((self.drop(x), hs[layer]), -1)) + before
                x, cs[layer] = lstm_step(total, cs[layer])
                hs[layer] = x
            return x

        return step
