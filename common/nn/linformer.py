"""Linformer: keys and values are projected along the length to a fixed number of rows (Wang et al. 2020, section 4)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from common.attention import Full, Mask
from common.attention.by_content import real_keys
from common.nn.sparse.layer import Layer, Settings, refuse_global, without_padding

Sharing = Literal["none", "headwise", "key_value", "layerwise"]
SHARINGS = ("none", "headwise", "key_value", "layerwise")
Projection = Literal["linear", "convolution", "pooling"]
PROJECTIONS = ("linear", "convolution", "pooling")


@dataclass(frozen=True, kw_only=True)
class Linformer(Settings):
    """Factory. rank: rows that keys and values become, k in the paper. max_length: the longest sequence, n.

    sharing: of the matrices E (keys) and F (values): none: each head has its own; headwise: one E and one F for all heads of
    a layer; key_value: E = F besides; layerwise: one E for all layers too, those that one factory makes from layer 0 on.
    projection: linear: E and F; convolution: along the length, kernel and stride max_length / rank, one for each dimension of
    a head's keys, shared as E and F are; pooling: means of as many tokens, without weights.
    """

    rank: int
    max_length: int
    sharing: Sharing = "none"
    projection: Projection = "linear"
    causal: bool = False
    _shared: dict[str, nn.Module] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        if self.causal:
            raise ValueError(
                "causal: got True, expected False: each row of E mixes keys of the whole sequence, so that a query would see "
                "what follows it"
            )
        for name, known in (("sharing", SHARINGS), ("projection", PROJECTIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {', '.join(known)}")
        if not 1 <= self.rank <= self.max_length:
            raise ValueError(f"rank: got {self.rank}, expected 1 to {self.max_length}, the longest length")
        if self.projection != "linear" and self.max_length % self.rank:
            raise ValueError(
                f"rank: got {self.rank}, expected a divisor of {self.max_length}, as {self.projection} takes {self.max_length} "
                "/ rank tokens at a time"
            )

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "LinformerAttention":
        return LinformerAttention(d_model, heads, self, self._projections(heads, layer))

    def _projections(self, heads: int, layer: int) -> nn.ModuleList:
        """Of keys and of values; the same module twice where they share it."""
        if self.sharing == "layerwise":
            if layer == 0:
                self._shared["both"] = self._projection(1)
            if not self._shared:
                raise ValueError(f"layer: got {layer} first, expected 0: its projection is that of the layers after it")
            return nn.ModuleList([self._shared["both"]] * 2)
        made = [self._projection(heads if self.sharing == "none" else 1) for _ in range(2)]
        return nn.ModuleList(made[:1] * 2 if self.sharing == "key_value" else made)

    def _projection(self, heads: int) -> nn.Module:
        if self.projection == "linear":
            return Rows(heads, self.rank, self.max_length)
        return Strides(heads, self.max_length // self.rank, weighted=self.projection == "convolution")


class Rows(nn.Module):
    """E X of each head, E (H or 1, k, n) drawn from N(0, 1/k) (theorem 2)."""

    def __init__(self, heads: int, rank: int, max_length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, rank, max_length) * rank**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, T, d), zeros at padding -> (B, H, k, d)."""
        return self.weight[..., : x.shape[2]] @ x


class Strides(nn.Module):
    """Sums or weighted sums of `size` tokens at a time, the last of which may be fewer, over their number: with weights they
    start as means."""

    def __init__(self, heads: int, size: int, *, weighted: bool) -> None:
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.ones(heads, size)) if weighted else None

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        """(B, H, T, d), zeros at padding -> (B, H, ceil(T / size), d). count: (B, ceil(T / size)) real tokens in each."""
        x = nn.functional.pad(x, (0, 0, 0, -x.shape[2] % self.size)).unflatten(2, (-1, self.size))
        if self.weight is not None:
            x = x * self.weight[:, None, :, None]
        return x.sum(3) / count.clamp(min=1)[:, None, :, None]


class LinformerAttention(Layer):
    """Each query sees all rows of the projected keys. Padding stands on the right and is zeros to the projection: what it
    holds, and how much there is, changes nothing. Stages change nothing."""

    def __init__(self, d_model: int, heads: int, of: Linformer, projections: nn.ModuleList) -> None:
        super().__init__(d_model, heads, of)
        self.max_length, self.of_keys_and_values = of.max_length, projections

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        """Raises ValueError for a sequence longer than max_length."""
        refuse_global(is_global, "Linformer")
        if x.shape[1] > self.max_length:
            raise ValueError(
                f"x: got {x.shape[1]} tokens, expected at most max_length {self.max_length}: there is no column of E for more"
            )
        q, k, v = self.project(without_padding(x, real))
        if real is not None:  # biases of the projections have made something of zeros
            k, v = (tensor.masked_fill(~real[:, None, :, None], 0.0) for tensor in (k, v))
        projection_of_k, projection_of_v = self.of_keys_and_values
        mask: Mask = Full()
        if isinstance(projection_of_k, Strides):
            count = self._count(x, real, projection_of_k.size)
            k, v = projection_of_k(k, count), projection_of_v(v, count)
            if real is not None:
                mask = real_keys(count > 0)  # a stride of padding alone is none
        else:
            k, v = projection_of_k(k), projection_of_v(v)
        return self.merge(self.attend(q, k.to(q.dtype), v.to(q.dtype), mask))

    @staticmethod
    def _count(x: Tensor, real: Tensor | None, size: int) -> Tensor:
        """(B, strides) of real tokens."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if real is None else real
        return nn.functional.pad(real, (0, -real.shape[1] % size)).unflatten(1, (-1, size)).sum(2)
