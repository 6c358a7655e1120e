"""Multi-head attention with its projections (Vaswani et al. 2017, section 3.2.2), also with fewer heads of keys."""

import torch
from torch import Tensor, nn

from common.attention import BACKENDS, Mask, RelativeBias, attention, rotary
from common.nn.feedforward import projection


class MultiHead(nn.Module):
    """MultiHead(X, Y) = Concat(head_1, ..., head_h) W_O, head_i = Attention(X W_Q,i, Y W_K,i, Y W_V,i).

    kv_heads = heads: multi-head; 1: multi-query (Shazeer 2019); between: grouped-query attention (Ainslie et al. 2023),
    head i reads keys and values of head i // (heads / kv_heads). Which backend, which dropout and whether queries and
    keys are turned by their positions (Su et al. 2021) is settled here; mask, bias and positions come with each call,
    and nothing of a call is kept.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        backend: str,
        scale: float | None = None,
        dropout: float = 0.0,
        rotary: bool = False,
        linear_bias: bool = True,
    ) -> None:
        super().__init__()
        if head_dim is None and d_model % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of d_model {d_model}, or head_dim given")
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected a divisor of heads {heads}")
        if backend not in BACKENDS:
            raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
        self.head_dim = d_model // heads if head_dim is None else head_dim
        if rotary and self.head_dim % 2:
            raise ValueError(f"head_dim: got {self.head_dim}, expected an even one for rotary positions")
        self.backend, self.scale, self.dropout, self.rotary = backend, scale, dropout, rotary
        self.w_q = projection(d_model, heads * self.head_dim, bias=linear_bias)
        self.w_k = projection(d_model, self.kv_heads * self.head_dim, bias=linear_bias)
        self.w_v = projection(d_model, self.kv_heads * self.head_dim, bias=linear_bias)
        self.w_o = projection(heads * self.head_dim, d_model, bias=linear_bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask,
        bias: Tensor | RelativeBias | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """x: (B, Lq, d_model), the queries; memory: (B, Lk, d_model), what they attend to, x itself unless given.

        positions: (Lq,) or (B, Lq), read where rotary, 0 to Lq - 1 unless given. Returns (B, Lq, d_model). Raises
        ValueError for what the backend can't do, and for rotary positions with a memory, whose positions aren't known.
        """
        source = x if memory is None else memory
        q = self.w_q(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        k = self.w_k(source).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.w_v(source).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        if self.rotary:
            if memory is not None:
                raise ValueError("rotary positions: got a memory, expected attention of x to itself")
            places = torch.arange(x.shape[1], device=x.device) if positions is None else positions[..., None, :]
            q, k = rotary(q, places), rotary(k, places)
        dropout_p = self.dropout if self.training else 0.0
        heads = attention(
            q, k, v, mask=mask, backend=self.backend, bias=bias, scale=self.scale, dropout_p=dropout_p
        )  # (B, H, Lq, head_dim)
        return self.w_o(heads.transpose(1, 2).flatten(-2))
