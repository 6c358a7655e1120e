"""Full attention that knows positions by the distance of query and key: Shaw et al. 2018, DeBERTa's disentangled attention
(He et al. 2021), T5's buckets (Raffel et al. 2020) and ALiBi (Press et al. 2022). Rotary and Transformer-XL's relative
positions are settings of `common.nn.sparse.Full`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from common import attention as core
from common.nn.embedding import ScoreBias
from common.nn.feedforward import projection
from common.nn.sparse.full import Full, FullAttention

Kind = Literal["alibi", "t5"]


@dataclass(frozen=True, kw_only=True)
class Positioned(Full):
    """What the factories share: the settings of `Full`, without its own positions."""

    _shared: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary or self.relative:
            raise ValueError(
                f"rotary, relative: got {self.rotary}, {self.relative}, expected False for {type(self).__name__}, which has "
                "positions of its own"
            )

    def of_all_layers(self, layer: int, make: Callable[[], Any]) -> Any:
        """What the layers have in common that one factory makes from layer 0 on."""
        if layer == 0:
            self._shared["made"] = make()
        if not self._shared:
            raise ValueError(f"layer: got {layer} first, expected 0: its positions are those of the layers after it")
        return self._shared["made"]


@dataclass(frozen=True, kw_only=True)
class Shaw(Positioned):
    """Factory. clip: k, the distance from which on all are one. values: whether values have positions too, as the paper's;
    the backend must then give weights."""

    clip: int = 16
    values: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip < 0:
            raise ValueError(f"clip: got {self.clip}, expected 0 or more")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "ShawAttention":
        return ShawAttention(d_model, heads, self)


@dataclass(frozen=True, kw_only=True)
class Disentangled(Positioned):
    """Factory. clip: k; distances are told apart from -k to k - 1, P has 2k rows. All layers share P (section 3.1)."""

    clip: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip < 1:
            raise ValueError(f"clip: got {self.clip}, expected 1 or more")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "DisentangledAttention":
        p = self.of_all_layers(layer, lambda: _embeddings(2 * self.clip, d_model))
        return DisentangledAttention(d_model, heads, self, p)


@dataclass(frozen=True, kw_only=True)
class Biased(Positioned):
    """Factory. kind: of the bias by distance. All layers share T5's table (Raffel et al. 2020, section 2.1)."""

    kind: Kind
    buckets: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind: got {self.kind!r}, expected alibi or t5")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "BiasedAttention":
        bias = self.of_all_layers(
            layer, lambda: ScoreBias(self.kind, heads, bidirectional=not self.causal, buckets=self.buckets)
        )
        return BiasedAttention(d_model, heads, self, bias)


class PositionedAttention(FullAttention, ABC):
    """softmax(scale * q k^T + bias) v, where the bias knows the distance. In `step` the one query stands at the last key."""

    @abstractmethod
    def score_bias(self, q: Tensor, k: Tensor) -> Tensor | core.RelativeBias:
        """Of q (B, H, Lq, head_dim) and k (B, kv_heads, Lk, head_dim), of which the last stand at the same position:
        (B, H, Lq, Lk), or one by distance alone."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: core.Mask) -> Tensor:
        return core.attention(
            q, k, v, mask=mask, bias=self.score_bias(q, k), backend=self.backend, scale=self.scale, dropout_p=self.dropout_p
        )  # fmt: skip


class BiasedAttention(PositionedAttention):
    """Scores with ALiBi's or T5's bias."""

    def __init__(self, d_model: int, heads: int, of: Biased, bias: ScoreBias) -> None:
        super().__init__(d_model, heads, of)
        self.by_distance = bias

    def score_bias(self, q: Tensor, k: Tensor) -> core.RelativeBias:
        return self.by_distance()


class ShawAttention(PositionedAttention):
    """Shaw et al. 2018, sections 3.1 and 3.2, with d_z = head_dim:

        e_ij = x_i W^Q (x_j W^K + a_ij^K)^T / sqrt(d_z)      (4)
        z_i = sum_j alpha_ij (x_j W^V + a_ij^V)              (3), alpha_i the softmax of e_i
        a_ij^K = w^K_clip(j - i, k), and a_ij^V so

    a_k, a_v: w^K and w^V of distances -k to k, (2k + 1, head_dim), which all heads share (section 3.3). As there (5), e_ij is
    taken apart, so that no (T, T, head_dim) is made: q meets each of the 2k + 1 rows once, and (T, T) scores are picked from
    these; of z, weights are summed by distance before they meet a_v.
    """

    def __init__(self, d_model: int, heads: int, of: Shaw) -> None:
        super().__init__(d_model, heads, of)
        self.clip = of.clip
        self.a_k = _embeddings(2 * of.clip + 1, self.head_dim)
        self.a_v = _embeddings(2 * of.clip + 1, self.head_dim) if of.values else None

    def rows(self, q: Tensor, k: Tensor) -> Tensor:
        """clip(j - i, k) + k, (Lq, Lk)."""
        return _distance(q, k).clamp(-self.clip, self.clip) + self.clip

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor:
        return _picked(q @ self.a_k.mT * self.scale, self.rows(q, k))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: core.Mask) -> Tensor:
        if self.a_v is None:
            return super().attend(q, k, v, mask)
        found = core.attention(
            q, k, v, mask=mask, bias=self.score_bias(q, k), backend=self.backend, scale=self.scale, dropout_p=self.dropout_p,
            return_weights=True,
        )  # fmt: skip
        assert isinstance(found, core.Attended) and found.weights is not None
        weights = found.weights
        by_distance = weights.new_zeros(*weights.shape[:3], len(self.a_v))
        by_distance = by_distance.scatter_add(-1, self.rows(q, k).expand_as(weights), weights)
        return found.output + by_distance.to(q.dtype) @ self.a_v.to(q.dtype)


class DisentangledAttention(PositionedAttention):
    """He et al. 2021, section 3.1: content is asked for content and for position, and position for content,

        A_ij = Q^c_i K^c_j^T + Q^c_i K^r_delta(i,j)^T + K^c_j Q^r_delta(j,i)^T      weights: softmax(A / sqrt(3 d))    (4)
        delta(i, j) = 0 for i - j <= -k, 2k - 1 for i - j >= k, else i - j + k                                        (3)
        K^r = P W_k,r        Q^r = P W_q,r

    with d = head_dim and P (2k, d_model). W_k,r and W_q,r have no bias.
    """

    def __init__(self, d_model: int, heads: int, of: Disentangled, p: nn.Parameter) -> None:
        super().__init__(d_model, heads, of)
        self.clip, self.p = of.clip, p
        self.scale = (3 * self.head_dim) ** -0.5
        self.w_kr = projection(d_model, self.kv_heads * self.head_dim, bias=False)
        self.w_qr = projection(d_model, heads * self.head_dim, bias=False)

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor:
        k_r, q_r = (w(self.p).unflatten(-1, (self.kv_heads, -1, self.head_dim)) for w in (self.w_kr, self.w_qr))
        k_r, q_r = k_r.permute(1, 2, 3, 0), q_r.permute(1, 2, 3, 0)  # (kv_heads, 1 or group, head_dim, 2k)
        distance = _distance(q, k)
        asked = _picked(q.unflatten(1, (self.kv_heads, -1)) @ k_r, self.delta(-distance))
        asking = _picked(k.unsqueeze(2) @ q_r, self.delta(distance).mT).mT  # a row of each key, then of each query
        return (asked + asking).flatten(1, 2) * self.scale

    def delta(self, distance: Tensor) -> Tensor:
        """Of i - j."""
        return (distance + self.clip).clamp(0, 2 * self.clip - 1)


def _embeddings(count: int, size: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(count, size), std=0.02))


def _distance(q: Tensor, k: Tensor) -> Tensor:
    """j - i, int64 (Lq, Lk); the last query stands at the last key."""
    lq, lk = q.shape[2], k.shape[2]
    return torch.arange(lk, device=q.device) - torch.arange(lk - lq, lk, device=q.device)[:, None]


def _picked(scores: Tensor, rows: Tensor) -> Tensor:
    """Entry i, j is scores[..., i, rows[i, j]]. scores: (..., L, rows); rows: int64 (L, T). Returns (..., L, T) in fp32
    (fp64): of one entry the gradient is a sum over all pairs that picked it, too long for 16 bits."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(wide).gather(-1, rows.expand(*scores.shape[:-2], *rows.shape))
