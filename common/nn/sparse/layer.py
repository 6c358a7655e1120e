"""What the layers share: their interface, their factories' interface, and the projections of each head."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from common.attention import BACKENDS, Mask, attention
from common.attention.by_content import real_keys
from common.nn.feedforward import projection
from common.nn.relative import RelativePositions


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every factory has. head_dim: d_model / heads unless given; dropout: of the weights, in training; linear_bias: of
    the projections."""

    backend: str
    head_dim: int | None = None
    dropout: float = 0.0
    linear_bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Relative(Settings):
    """relative: Transformer-XL's relative positions, of `relative_size` dimensions, d_model unless given."""

    relative: bool = False
    relative_size: int | None = None


class SelfAttention(nn.Module, ABC):
    """Self-attention of a text, whatever its queries, keys and values are made of."""

    w_o: nn.Linear
    """heads * head_dim to d_model."""

    def __init__(self, d_model: int, heads: int, of: Settings) -> None:
        super().__init__()
        if of.backend not in BACKENDS:
            raise ValueError(f"backend: got {of.backend!r}, expected one of {', '.join(BACKENDS)}")
        if of.head_dim is None and d_model % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of d_model {d_model}, or head_dim given")
        self.heads, self.head_dim = heads, d_model // heads if of.head_dim is None else of.head_dim
        self.backend, self.dropout, self.scale = of.backend, of.dropout, self.head_dim**-0.5

    @abstractmethod
    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        """x: (B, T, d_model), T of 1 or more, to the same.

        real: bool (B, T), False = padding, None: there is none. Results at real positions do not depend on what stands in
        padding, on how much of it there is, or on the other samples; the rest is finite. is_global: bool (B, T), tokens that
        see all and are seen by all, of layers that have such. stage: of training in stages, each with twice the window.
        """

    def step(self, x: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Of a causal layer, one position: x (B, 1, d_model), the one after those of `memory`, which the last call gave (None
        at the first). Returns (B, 1, d_model) and what is remembered now. Raises ValueError for layers that see more."""
        raise ValueError(f"{type(self).__name__}: got a single position, expected whole sequences")

    @property
    def dropout_p(self) -> float:
        return self.dropout if self.training else 0.0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """What each head sees, (B, H, Lq, head_dim)."""
        return attention(q, k, v, mask=mask, backend=self.backend, scale=self.scale, dropout_p=self.dropout_p)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H * head_dim) -> (B, H, T, head_dim), H the heads or, of keys and values, kv_heads."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def merge(self, heads: Tensor) -> Tensor:
        """(B, H, T, head_dim) -> (B, T, d_model)."""
        return self.w_o(heads.transpose(1, 2).flatten(-2))


class Layer(SelfAttention):
    """Self-attention with its projections, W_q, W_k, W_v and W_o (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, d_model: int, heads: int, of: Settings, *, kv_heads: int | None = None) -> None:
        """kv_heads: heads of keys and values, as many as heads unless given."""
        super().__init__(d_model, heads, of)
        self.kv_heads = heads if kv_heads is None else kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected a divisor of heads {heads}")
        inner = heads * self.head_dim
        self.w_q, self.w_k, self.w_v = (
            projection(d_model, many * self.head_dim, bias=of.linear_bias)
            for many in (heads, self.kv_heads, self.kv_heads)
        )
        self.w_o = projection(inner, d_model, bias=of.linear_bias)
        self.relative = None
        if isinstance(of, Relative) and of.relative:
            self.relative = RelativePositions(d_model, heads, self.head_dim, size=of.relative_size or d_model)

    def query(self, x: Tensor, w_q: nn.Linear, positions: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, H, T, head_dim (+ size of the relative positions)). positions: (T,) or (B, T)."""
        q = self.split(w_q(x))
        return q if self.relative is None else self.relative.queries(q, positions)

    def key(self, x: Tensor, w_k: nn.Linear, positions: Tensor) -> Tensor:
        k = self.split(w_k(x))
        return k if self.relative is None else self.relative.keys(k, positions)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of all positions, (B, H, T, .) and twice (B, kv_heads, T, .)."""
        places = torch.arange(x.shape[1], device=x.device)
        return self.query(x, self.w_q, places), self.key(x, self.w_k, places), self.split(self.w_v(x))


class Factory(Protocol):
    """Makes the layers of a model.

    causal: whether its layers see no position after a query's own. extra_tokens: how many learned tokens a model is to put
    in front, which go through all layers. uses_global: whether its layers have tokens that are global.
    """

    @property
    def backend(self) -> str: ...
    @property
    def causal(self) -> bool: ...
    @property
    def extra_tokens(self) -> int: ...
    @property
    def uses_global(self) -> bool: ...
    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> SelfAttention: ...


def without_padding(x: Tensor, real: Tensor | None) -> Tensor:
    """(B, T, d_model) with zeros at padding, so that whatever stands there, NaN too, meets nothing."""
    if real is None:
        return x
    if real.dtype != torch.bool or real.shape != x.shape[:2]:
        raise ValueError(f"real: got {real.dtype} {tuple(real.shape)}, expected bool {tuple(x.shape[:2])}")
    return x.masked_fill(~real[..., None], 0.0)


def among(mask: Mask, real: Tensor | None) -> Mask:
    """What the mask allows of real keys."""
    return mask if real is None else mask & real_keys(real)


def refuse_global(is_global: Tensor | None, kind: str) -> None:
    if is_global is not None:
        raise ValueError(f"is_global: got global tokens, expected None, as {kind} has none to be chosen")
