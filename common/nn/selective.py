"""A selective state-space block with the interface of the layers of long texts (`common.nn.sparse`): Mamba (Gu and Dao 2023,
arXiv 2312.00752, sections 3.2 to 3.4). What is remembered of a text has one size, whatever its length."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad, silu, softplus

from common.nn.feedforward import projection
from common.nn.sparse.layer import SelfAttention, Settings, refuse_global, without_padding

FASTEST, SLOWEST = 0.1, 0.001
"""Between which Delta starts (section 3.6); its logarithm is uniform, as in the released code."""


@dataclass(frozen=True, kw_only=True)
class Selective(Settings):
    """Factory.

    state: N, numbers kept for each channel. expand: E, channels over d_model. rank: of the projection to Delta, d_model / 16
    rounded up unless given. conv: width of the causal convolution, 0: none. selective: whether Delta, B and C are made of the
    token (algorithm 2), or are the same for all (algorithm 1, the diagonal S4D). gate: whether silu(z) multiplies what is
    read. chunk: positions of a chunk of the scan, None: one after the other, which a CPU does sooner, and a GPU in as many
    launches as there are positions. backend: read by nothing, as nothing here is attention; any name, so that this takes the
    place of `Full` by its `_target_` alone.
    """

    backend: str = "reference"
    linear_bias: bool = False
    causal: bool = True
    state: int = 16
    expand: float = 2.0
    rank: int | None = None
    conv: int = 4
    selective: bool = True
    gate: bool = True
    chunk: int | None = 32

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        if not self.causal:
            raise ValueError(
                "causal: got False, expected True: the state holds what stands before a token, and what follows would need a "
                "second scan from the other end, with weights of its own"
            )
        if self.dropout or self.head_dim is not None:
            raise ValueError(
                f"dropout, head_dim: got {self.dropout}, {self.head_dim}, expected 0, None: there are no weights to drop, "
                "and channels are in no heads"
            )
        if self.state < 1 or self.conv < 0:
            raise ValueError(f"state, conv: got {self.state}, {self.conv}, expected 1 or more, and 0 or more")
        for name in ("rank", "chunk"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name}: got {size}, expected 1 or more, or None")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "SelectiveLayer":
        return SelectiveLayer(d_model, heads, self)


class State(NamedTuple):
    """What follows depends on. inputs: (B, conv - 1, channels), the last that the convolution saw; hidden: (B, channels, N),
    h, at least fp32."""

    inputs: Tensor
    hidden: Tensor


class SelectiveLayer(SelfAttention):
    """With x_t a row of x, D the channels, products of channels elementwise (figure 3, algorithm 2):

        [u; z] = W_in x_t        u = silu(conv(u))
        Delta = softplus(W_Delta W_x^Delta u + b_Delta)      (D)         B, C = W_x^B u, W_x^C u      (N)
        A' = exp(Delta A)        B' = Delta B                            A = -exp(log_a)              (D, N)
        h_t = A' h_(t-1) + B' u                              (2a)
        y_t = W_o (silu(z) (C h_t + D u))                    (2b)

    A' is the zero-order hold of equation 4; B' is Euler's step in place of its (Delta A)^-1 (exp(Delta A) - 1) Delta B, as the
    released code has it. With selective=False, Delta is softplus(b_Delta), and B and C are parameters (D, N), so that what is
    read of u is a convolution with one kernel.

    Padding may stand on either side: the state passes it unchanged. In between it keeps its place before the convolution.
    Stages change nothing.
    """

    def __init__(self, d_model: int, heads: int, of: Selective) -> None:
        super().__init__(d_model, heads, of)
        channels, n = round(of.expand * d_model), of.state
        if channels < 1:
            raise ValueError(f"expand: got {of.expand}, expected 1 channel or more of d_model {d_model}")
        self.channels, self.width, self.chunk = channels, of.conv, of.chunk
        self.gated, self.selective = of.gate, of.selective
        self.rank = math.ceil(d_model / 16) if of.rank is None else of.rank
        self.w_in = projection(d_model, channels * (1 + of.gate), bias=of.linear_bias)
        if of.conv:
            spread = of.conv**-0.5
            self.conv_weight = nn.Parameter(torch.empty(channels, of.conv).uniform_(-spread, spread))
            self.conv_bias = nn.Parameter(torch.empty(channels).uniform_(-spread, spread))
        if of.selective:
            self.w_x = projection(channels, self.rank + 2 * n, bias=False)
            # not nn.Linear: a model that draws these anew would take it for one of the usual size
            self.w_delta = nn.Parameter(torch.empty(channels, self.rank).uniform_(-(self.rank**-0.5), self.rank**-0.5))
        else:
            self.b, self.c = nn.Parameter(torch.ones(channels, n)), nn.Parameter(torch.randn(channels, n))
        delta = torch.empty(channels).uniform_(math.log(SLOWEST), math.log(FASTEST)).exp()
        self.delta_bias = nn.Parameter(delta + (-torch.expm1(-delta)).log())  # of which softplus makes delta
        self.log_a = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(channels, 1))
        self.skip = nn.Parameter(torch.ones(channels))
        self.w_o = projection(channels, d_model, bias=of.linear_bias)

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        refuse_global(is_global, "a state-space layer")
        return self.run(without_padding(x, real), real, None)[0]

    def step(self, x: Tensor, memory: State | None) -> tuple[Tensor, State]:
        """Here any number of positions may follow at once; gradients pass through the state."""
        return self.run(x, None, memory)

    def run(self, x: Tensor, real: Tensor | None, before: State | None) -> tuple[Tensor, State]:
        """x: (B, T, d_model), what follows the text of `before`. Returns the same and the state, from which a text goes on
        that has no padding on the right."""
        u = self.w_in(x)
        u, z = u.chunk(2, -1) if self.gated else (u, None)
        if real is not None:
            u = u.masked_fill(~real[..., None], 0.0)  # a bias has been added
        u, inputs = self.convolved(u, None if before is None else before.inputs)
        y, hidden = self.scanned(silu(u), real, None if before is None else before.hidden)
        return self.w_o(y if z is None else y * silu(z)), State(inputs, hidden)

    def convolved(self, u: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """u: (B, T, channels). Returns the same, and the inputs that the next position sees besides its own."""
        if before is None:
            before = u.new_zeros(len(u), max(self.width - 1, 0), self.channels)
        if not self.width:
            return u, before
        seen, time = torch.cat((before, u), 1), u.shape[1]
        weight = self.conv_weight.to(u.dtype)
        out = self.conv_bias.to(u.dtype) + sum(weight[:, k] * seen[:, k : k + time] for k in range(self.width))
        return out, seen[:, time:]

    def parts(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Delta before its bias and softplus, (B, T, channels) or 0; B and C: (B, T, 1, N), or (channels, N)."""
        if not self.selective:
            return u.new_zeros(()), self.b, self.c
        low, b, c = self.w_x(u).split((self.rank, *[self.log_a.shape[1]] * 2), -1)
        return linear(low, self.w_delta), b.unsqueeze(-2), c.unsqueeze(-2)

    def scanned(self, u: Tensor, real: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """u: (B, T, channels); state: (B, channels, N). Returns C h_t + D u (B, T, channels), and the state at the end. In
        fp32 at least, also under autocast: a state is a sum over the whole text."""
        wide = torch.promote_types(u.dtype, torch.float32)
        raw, b, c = (part.to(wide) for part in self.parts(u))
        with torch.autocast(u.device.type, enabled=False):
            of_u = u.to(wide)
            delta = softplus(raw + self.delta_bias.to(wide)).expand_as(of_u)
            if real is not None:
                delta = delta.masked_fill(~real[..., None], 0.0)
            decay = (delta.unsqueeze(-1) * -self.log_a.to(wide).exp()).exp()
            if state is None:
                state = torch.zeros_like(decay[:, 0])
            hidden = scan(decay, (delta * of_u).unsqueeze(-1) * b, state, chunk=self.chunk)
            read = (hidden @ c.mT).squeeze(-1) if c.ndim == 4 else (hidden * c).sum(-1)
            return (read + self.skip.to(wide) * of_u).to(u.dtype), hidden[:, -1]


def scan(decay: Tensor, added: Tensor, state: Tensor, *, chunk: int | None) -> Tensor:
    """h_t = decay_t h_(t-1) + added_t, h_0 = state. decay, from 0 to 1, and added: (B, T, ...); state: (B, ...). Returns all
    h_t, (B, T, ...).

    chunk: None: position by position, the specification. Else chunks of so many positions at once, each from a state of 0,
    then the chunks' last states one after the other, and what of these is left at each position: chunk + T / chunk steps for
    T. Only products of decays are formed, never quotients: what has died out is 0, and nothing overflows.
    """
    if chunk is None:
        found = []
        for a, b in zip(decay.unbind(1), added.unbind(1), strict=True):
            state = a * state + b
            found.append(state)
        return torch.stack(found, 1)
    return _Scan.apply(decay, added, state, min(chunk, decay.shape[1]))  # type: ignore[return-value]


class _Scan(torch.autograd.Function):
    """The gradient g_t of h_t is a scan from the other end, g_t = (that of what is made of h_t) + decay_(t+1) g_(t+1), so that
    decays and states are all that is kept."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, added: Tensor, state: Tensor, chunk: int) -> Tensor:
        hidden = _chunked(decay, added, state, chunk)
        ctx.save_for_backward(decay, hidden, state)
        ctx.chunk = chunk
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        decay, hidden, state = ctx.saved_tensors
        (of_hidden,) = grad_outputs
        after = torch.cat((decay[:, 1:], torch.zeros_like(decay[:, :1])), 1)
        grad = _chunked(after.flip(1), of_hidden.flip(1), torch.zeros_like(state), ctx.chunk).flip(1)
        before = torch.cat((state[:, None], hidden[:, :-1]), 1)
        return grad * before, grad, decay[:, 0] * grad[:, 0], None


def _chunked(decay: Tensor, added: Tensor, state: Tensor, chunk: int) -> Tensor:
    time, around = decay.shape[1], (0, 0) * (decay.ndim - 2) + (0, -decay.shape[1] % chunk)
    # copies, also where nothing is filled up: what was given stays as it is
    decay, local = (pad(x, around).unflatten(1, (-1, chunk)) for x in (decay, added))
    for t in range(1, chunk):
        local[:, :, t].addcmul_(decay[:, :, t], local[:, :, t - 1])
    left = decay.cumprod(2)  # of a chunk's first state
    first = []
    for n in range(decay.shape[1]):
        first.append(state)
        state = torch.addcmul(local[:, n, -1], left[:, n, -1], state)
    return local.addcmul_(left, torch.stack(first, 1).unsqueeze(2)).flatten(1, 2)[:, :time]
