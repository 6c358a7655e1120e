"""Full attention with one part of it changed, to see what that part is good for, and recurrent layers in its place. All have
the interface of `common.nn.sparse`."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common import attention as core
from common.nn.feedforward import projection
from common.nn.sparse.full import Full, FullAttention
from common.nn.sparse.layer import SelfAttention, Settings

Tie = Literal["key_value", "query_key"]
Scale = Literal["none", "width", "learned"]
Weights = Literal["hard", "uniform", "none"]
Cell = Literal["rnn", "gru", "lstm"]


def check(name: str, value: str, known: object) -> None:
    if value not in get_args(known):
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(get_args(known))}")


@dataclass(frozen=True, kw_only=True)
class Tied(Full):
    """Factory. tie: key_value: W_V is W_K; query_key: W_Q is W_K. Positions still turn queries and keys alone."""

    tie: Tie

    def __post_init__(self) -> None:
        super().__post_init__()
        check("tie", self.tie, Tie)

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "TiedAttention":
        return TiedAttention(d_model, heads, self)


class TiedAttention(FullAttention):
    """softmax(scale * x W_Q (x W_K)^T) x W_K, or with x W_K for queries and keys and x W_V for values."""

    def __init__(self, d_model: int, heads: int, of: Tied) -> None:
        super().__init__(d_model, heads, of)
        if of.tie == "key_value":
            self.w_v = self.w_k
            return
        if self.kv_heads != heads:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected {heads}, the heads of queries that are the keys")
        self.w_q = self.w_k


@dataclass(frozen=True, kw_only=True)
class Scaled(Full):
    """Factory. by: what scores are multiplied with in place of 1 / sqrt(head_dim): none: 1; width: 1 / head_dim; learned: a
    factor of each head times 1 / sqrt(head_dim), 1 to begin with."""

    by: Scale

    def __post_init__(self) -> None:
        super().__post_init__()
        check("by", self.by, Scale)

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "ScaledAttention":
        return ScaledAttention(d_model, heads, self)


class ScaledAttention(FullAttention):
    """softmax(s q k^T) v."""

    def __init__(self, d_model: int, heads: int, of: Scaled) -> None:
        super().__init__(d_model, heads, of)
        self.factor = nn.Parameter(torch.ones(heads, 1, 1)) if of.by == "learned" else None
        self.scale = {"none": 1.0, "width": 1 / self.head_dim, "learned": self.scale}[of.by]

    def query(self, x: Tensor, w_q: nn.Linear, positions: Tensor) -> Tensor:
        q = super().query(x, w_q, positions)
        return q if self.factor is None else q * self.factor


@dataclass(frozen=True, kw_only=True)
class Weighted(Full):
    """Factory. weights: what takes the place of softmax: hard: 1 for the largest score, the first of equals, without a
    gradient for queries and keys; uniform: the same for all that is seen; none: nothing is read, so that feed-forward layers
    and positions are what is left."""

    weights: Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        check("weights", self.weights, Weights)

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "WeightedAttention":
        return WeightedAttention(d_model, heads, self)


class WeightedAttention(FullAttention):
    """Controls of `FullAttention`, of the same size: what they do not use stays as it was drawn."""

    def __init__(self, d_model: int, heads: int, of: Weighted) -> None:
        super().__init__(d_model, heads, of)
        self.weights = of.weights

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: core.Mask) -> Tensor:
        if self.weights == "none":
            return q.new_zeros(*q.shape[:3], v.shape[-1])
        if self.weights == "uniform":
            return super().attend(torch.zeros_like(q), k, v, mask)
        with torch.no_grad():
            found = core.attention(q, k, v, mask=mask, backend="reference", scale=self.scale, return_weights=True)
            assert isinstance(found, core.Attended) and found.weights is not None
            soft = found.weights
            largest = soft.argmax(-1, keepdim=True)
            chosen = torch.zeros_like(soft).scatter(-1, largest, 1.0) * (soft.amax(-1, keepdim=True) > 0)
        return chosen.to(v.dtype) @ v.repeat_interleave(self.heads // self.kv_heads, 1)


@dataclass(frozen=True, kw_only=True)
class OneSided(Full):
    """Factory for encoders: each token sees itself and what stands before it, as in a decoder."""

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> FullAttention:
        made = FullAttention(d_model, heads, self)
        made.mask = core.Causal()
        return made


@dataclass(frozen=True, kw_only=True)
class Recurrent(Settings):
    """Factory of layers that read a text from left to right. cell: of torch. backend: read by nothing."""

    cell: Cell
    backend: str = "reference"
    causal: bool = True

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        check("cell", self.cell, Cell)
        if not self.causal or self.dropout:
            raise ValueError(f"causal, dropout: got {self.causal}, {self.dropout}, expected True, 0")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "RecurrentLayer":
        return RecurrentLayer(d_model, heads, self)


class RecurrentLayer(SelfAttention):
    """W_o h_t with h_t = cell(x_t, h_(t-1)), as wide as all heads together."""

    def __init__(self, d_model: int, heads: int, of: Recurrent) -> None:
        super().__init__(d_model, heads, of)
        inner = heads * self.head_dim
        self.cell = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[of.cell](d_model, inner, batch_first=True)
        self.w_o = projection(inner, d_model, bias=of.linear_bias)

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        """Raises ValueError for padding, which would be read."""
        if real is not None and not bool(real.all()):
            raise ValueError("real: got padding, expected whole sequences, as a recurrent layer reads all there is")
        hidden, _ = self.cell(x)
        return self.w_o(hidden)
