"""Multi-head attention with its projections (Vaswani et al. 2017, section 3.2.2), also with fewer heads of keys."""

import torch
from torch import Tensor, nn

from common.attention import BACKENDS, Attended, Mask, RelativeBias, attention, rotary
from common.attention.cache import CacheShape, Remembered
from common.attention.scores import masked_softmax
from common.nn.feedforward import projection


class MultiHead(nn.Module):
    """MultiHead(X, Y) = Concat(head_1, ..., head_h) W_O, head_i = Attention(X W_Q,i, Y W_K,i, Y W_V,i).

    kv_heads = heads: multi-head; 1: multi-query (Shazeer 2019); between: grouped-query attention (Ainslie et al. 2023),
    head i reads keys and values of head i // (heads / kv_heads). head_dim_k, head_dim_v: d_k of queries and keys and d_v of
    values, d_model / heads unless given. Which backend, which dropout and whether queries and keys are turned by their
    positions (Su et al. 2021) is settled here; mask, bias and positions come with each call, and nothing of a call is kept.

    `extend` and `look` are the same attention one position at a time, for decoding: keys and values come from outside, and
    each is a few plain operations whatever the backend, which with a query or two has nothing to save. The query heads of a
    group are looked up in one product, and in `look` K hypotheses of a sentence too.
    """

    counts_as_written_out = True
    """Its FLOPs are counted as those of the reference, whoever computes it."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim_k: int | None = None,
        head_dim_v: int | None = None,
        backend: str,
        scale: float | None = None,
        dropout: float = 0.0,
        rotary: bool = False,
        linear_bias: bool = True,
    ) -> None:
        super().__init__()
        if None in (head_dim_k, head_dim_v) and d_model % heads:
            raise ValueError(
                f"heads: got {heads}, expected a divisor of d_model {d_model}, or head_dim_k and head_dim_v given"
            )
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected a divisor of heads {heads}")
        if backend not in BACKENDS:
            raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
        self.head_dim_k = d_model // heads if head_dim_k is None else head_dim_k
        self.head_dim_v = d_model // heads if head_dim_v is None else head_dim_v
        if rotary and self.head_dim_k % 2:
            raise ValueError(f"head_dim_k: got {self.head_dim_k}, expected an even one for rotary positions")
        self.backend, self.dropout, self.rotary = backend, dropout, rotary
        self.scale = self.head_dim_k**-0.5 if scale is None else scale
        self.w_q = projection(d_model, heads * self.head_dim_k, bias=linear_bias)
        self.w_k = projection(d_model, self.kv_heads * self.head_dim_k, bias=linear_bias)
        self.w_v = projection(d_model, self.kv_heads * self.head_dim_v, bias=linear_bias)
        self.w_o = projection(heads * self.head_dim_v, d_model, bias=linear_bias)

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
        q, k, v = self.queries_keys_values(x, memory, positions)
        dropout_p = self.dropout if self.training else 0.0
        heads = attention(
            q, k, v, mask=mask, backend=self.backend, bias=bias, scale=self.scale, dropout_p=dropout_p
        )  # (B, H, Lq, head_dim_v)
        return self.w_o(heads.transpose(1, 2).flatten(-2))

    def weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask,
        bias: Tensor | RelativeBias | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The weights (B, H, Lq, Lk) behind `forward`, written out, without dropout."""
        q, k, v = self.queries_keys_values(x, memory, positions)
        found = attention(q, k, v, mask=mask, backend="reference", bias=bias, scale=self.scale, return_weights=True)
        assert isinstance(found, Attended) and found.weights is not None
        return found.weights

    def queries_keys_values(
        self, x: Tensor, memory: Tensor | None, positions: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, Lq, head_dim_k), (B, kv_heads, Lk, head_dim_k), (B, kv_heads, Lk, head_dim_v)."""
        q = self.w_q(x).unflatten(-1, (self.heads, self.head_dim_k)).transpose(1, 2)
        k, v = self.keys_values(x if memory is None else memory)
        if self.rotary:
            if memory is not None:
                raise ValueError("rotary positions: got a memory, expected attention of x to itself")
            places = torch.arange(x.shape[1], device=x.device) if positions is None else positions[..., None, :]
            q, k = rotary(q, places), rotary(k, places)
        return q, k, v

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, Lk, d_model) to keys (B, kv_heads, Lk, head_dim_k) and values (B, kv_heads, Lk, head_dim_v)."""
        k = self.w_k(memory).unflatten(-1, (self.kv_heads, self.head_dim_k)).transpose(1, 2)
        v = self.w_v(memory).unflatten(-1, (self.kv_heads, self.head_dim_v)).transpose(1, 2)
        return k, v

    def nothing_yet(self, sequences: int, like: Tensor, window: int | None) -> Remembered:
        """What `extend` remembers before the first position; like: of the dtype and device of what it is given."""
        shape = CacheShape(kv_heads=self.kv_heads, key_dim=self.head_dim_k, value_dim=self.head_dim_v, dtype=like.dtype)
        return Remembered.nothing(shape, sequences, like.device, window=window)

    def extend(self, x: Tensor, before: Remembered, bias: Tensor | None = None) -> tuple[Tensor, Remembered]:
        """Attention of the next position of each hypothesis to those before it, as many as are remembered, and itself.

        x: (N, d_model); before: of the N hypotheses; bias: (H, 1, t) of the t positions that are seen. Returns (N, d_model)
        and what is remembered with this position.
        """
        q = self.w_q(x).unflatten(-1, (self.kv_heads, -1, self.head_dim_k))  # a group's query heads are its rows
        k = self.w_k(x).unflatten(-1, (self.kv_heads, 1, self.head_dim_k))
        v = self.w_v(x).unflatten(-1, (self.kv_heads, 1, self.head_dim_v))
        if self.rotary:
            place = torch.full((1,), before.seen, device=x.device)
            q, k = rotary(q, place), rotary(k, place)
        after = before.extended(k, v)
        scores = (q * self.scale) @ after.keys.mT
        if bias is not None:
            scores = scores + bias.reshape(self.kv_heads, -1, bias.shape[-1])
        heads = scores.softmax(-1) @ after.values  # (N, kv_heads, H / kv_heads, head_dim_v)
        return self.w_o(heads.flatten(-3)), after

    def look(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of one position of K hypotheses a sentence to the memory that they share.

        x: (B, K, d_model); keys, values: of `keys_values`; mask: bool (B, Lk), True = may attend. Returns (B, K, d_model)
        and the weights (B, K, H, Lk).
        """
        q = (
            self.w_q(x).unflatten(-1, (self.kv_heads, -1, self.head_dim_k)).transpose(1, 2)
        )  # (B, kv_heads, K, group, .)
        size = q.shape[2:4]
        weights = masked_softmax((q * self.scale).flatten(2, 3) @ keys.mT, mask[:, None, None])
        heads = (weights @ values).unflatten(2, size).transpose(1, 2)
        return self.w_o(heads.flatten(-3)), weights.unflatten(2, size).transpose(1, 2).flatten(2, 3)
