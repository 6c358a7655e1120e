"""Heads and windows that a text chooses for itself, within a budget: self-attention with the interface of the layers of long
texts (`common.nn.sparse`). Heads: Zhang et al. 2022, mixture of attention heads (arXiv 2210.05144), with the outputs of the
chosen ones added and not weighted, so that a budget of all heads is full attention."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common import attention as core
from common.attention.cache import Remembered
from common.nn.sparse.full import Full, FullAttention
from common.nn.sparse.layer import among, without_padding

How = Literal["learned", "random"]
Per = Literal["token", "sequence"]


@dataclass(frozen=True, kw_only=True)
class Gated(Full):
    """What the factories here share. budget: k of the heads are chosen, exactly, for each token or text. gate: learned, or
    random: drawn by `seed` and the layer's number and never trained, the control of equal cost: the choice still depends on
    the text, but nothing has learned it."""

    budget: int
    gate: How = "learned"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gate not in get_args(How):
            raise ValueError(f"gate: got {self.gate!r}, expected learned or random")

    def gate_of(self, d_model: int, heads: int, layer: int) -> "Gate":
        return Gate(d_model, heads, self.budget, None if self.gate == "learned" else (self.seed << 16) + layer)


@dataclass(frozen=True, kw_only=True)
class GatedHeads(Gated):
    """Factory. per: token: its query reads with `budget` of its heads; sequence: all tokens of a text with the same ones,
    chosen by the mean of its real tokens, which is not causal."""

    per: Per = "token"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per not in get_args(Per):
            raise ValueError(f"per: got {self.per!r}, expected token or sequence")
        if self.budget < 1:
            raise ValueError(f"budget: got {self.budget}, expected 1 head or more")
        if self.causal and self.per == "sequence":
            raise ValueError(
                "per: got 'sequence', expected 'token' of a causal layer: the whole text would choose the heads of its beginning"
            )

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "GatedHeadsAttention":
        return GatedHeadsAttention(d_model, heads, self, layer)


@dataclass(frozen=True, kw_only=True)
class GatedWindows(Gated):
    """Factory. Of each token `budget` heads see the `long` tokens before it, the other heads the `short` ones; itself it
    always sees."""

    short: int
    long: int
    causal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.short < self.long:
            raise ValueError(f"short, long: got {self.short}, {self.long}, expected 0 or more, and more than that")
        if self.budget < 0:
            raise ValueError(f"budget: got {self.budget}, expected 0 heads or more")
        if not self.causal:
            raise ValueError("causal: got False, expected True: the windows are of what stands before a token")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "GatedWindowsAttention":
        return GatedWindowsAttention(d_model, heads, self, layer)


class Gate(nn.Module):
    """Chooses the k largest of W x. Their values are 1, those of the others 0; backwards a chosen one passes the gradient of
    its softmax over all heads (straight-through: Bengio et al. 2013), so that no head that is not chosen needs to be computed,
    and still the weights of its choice move. Where k is 0 or all nothing is chosen, and the gradient is 0. Scores are fp32 at
    least, also under autocast."""

    weight: Tensor

    def __init__(self, d_model: int, heads: int, k: int, seed: int | None) -> None:
        """seed: of weights that stay as they are drawn; None: they are trained. Raises ValueError for more than all heads."""
        super().__init__()
        if k > heads:
            raise ValueError(f"budget: got {k}, expected at most {heads}, the heads there are")
        self.k, self.learned = k, seed is None
        if seed is None:
            self.weight = nn.Parameter(torch.empty(heads, d_model).normal_(std=d_model**-0.5))
        else:
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.empty(heads, d_model, device="cpu").normal_(std=d_model**-0.5, generator=generator)
            self.register_buffer("weight", drawn)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, H, T, 1), k ones in each token's column of heads."""
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            scores = x.to(wide) @ self.weight.to(wide).mT
        chosen = torch.zeros_like(scores).scatter(-1, scores.topk(self.k).indices, 1.0)
        if self.learned:
            soft = scores.softmax(-1) * (0 < self.k < len(self.weight))
            chosen = chosen * (1 + (soft - soft.detach()))  # 1 to the last bit
        return chosen.mT.unsqueeze(-1)


class GatedAttention(FullAttention):
    """This program computes every head and window and multiplies with the gate; `multiply_adds` counts what one needs that
    skips what is multiplied with 0. is_global and stage change nothing."""

    def __init__(self, d_model: int, heads: int, of: Gated, layer: int) -> None:
        super().__init__(d_model, heads, of)
        self.budget, self.d_model = of.budget, d_model
        self.gate = of.gate_of(d_model, heads, layer)

    @abstractmethod
    def seen(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, gate: Tensor) -> Tensor:
        """What each head hands on, (B, H, Lq, head_dim). gate: (B, H, Lq or 1, 1)."""

    @abstractmethod
    def multiply_adds(self, keys: int) -> int:
        """Of one token with `keys` tokens up to its own: gate, projections, scores and weighted values."""

    @property
    def remembered(self) -> int | None:
        """Positions that `step` keeps at most."""
        return None

    def gates(self, x: Tensor, real: Tensor | None) -> Tensor:
        return self.gate(x)

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        return self.merge(self.seen(*self.project(x), real, self.gates(x, real)))

    def step(self, x: Tensor, memory: Remembered | None) -> tuple[Tensor, Remembered]:
        """Keys and values pass no gradient on: this is for decoding."""
        if not isinstance(self.mask, core.Causal):
            return super().step(x, memory)
        q, after = self.following(x, memory, self.remembered)
        return self.merge(self.seen(q, after.keys, after.values, None, self.gates(x, None))), after


class GatedHeadsAttention(GatedAttention):
    """sum over the chosen heads h of W_o^h head_h(x): those of no gate pass nothing on, forwards or backwards."""

    def __init__(self, d_model: int, heads: int, of: GatedHeads, layer: int) -> None:
        super().__init__(d_model, heads, of, layer)
        self.per: Per = of.per

    def gates(self, x: Tensor, real: Tensor | None) -> Tensor:
        if self.per == "token":
            return self.gate(x)
        count = x.shape[1] if real is None else real.sum(1).clamp(min=1)[:, None, None]
        return self.gate(x.sum(1, keepdim=True) / count)

    def seen(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, gate: Tensor) -> Tensor:
        found = self.attend(q, k, v, among(self.mask, real))
        return found * gate.to(found.dtype)

    def multiply_adds(self, keys: int) -> int:
        """With d = d_model, s = head_dim and g of H key heads: d H + 2 d k s + 2 d g s + 2 k s keys. Per sequence the gate is
        a text's and not counted, and keys are needed of the chosen heads alone: min(g, k), where these share as few as can be."""
        inner, whole = self.budget * self.head_dim, self.per == "sequence"
        of_keys = min(self.kv_heads, self.budget) if whole else self.kv_heads
        gate = 0 if whole else self.d_model * self.heads
        return gate + 2 * self.d_model * (inner + of_keys * self.head_dim) + 2 * inner * keys


class GatedWindowsAttention(GatedAttention):
    """g far + (1 - g) near of each head, its outputs with the long window and with the short one."""

    def __init__(self, d_model: int, heads: int, of: GatedWindows, layer: int) -> None:
        super().__init__(d_model, heads, of, layer)
        self.short, self.long = of.short, of.long

    @property
    def remembered(self) -> int:
        return self.long + 1

    def seen(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, gate: Tensor) -> Tensor:
        near, far = (self.attend(q, k, v, among(core.Window(size, 0), real)) for size in (self.short, self.long))
        gate = gate.to(far.dtype)
        return gate * far + (1 - gate) * near

    def multiply_adds(self, keys: int) -> int:
        """With d = d_model, s = head_dim and g of H key heads: d H + 2 d (H + g) s + 2 s (k min(keys, long + 1) + (H - k)
        min(keys, short + 1))."""
        rows = self.heads + self.kv_heads
        far, near = (min(keys, size + 1) for size in (self.long, self.short))
        pairs = self.budget * far + (self.heads - self.budget) * near
        return self.d_model * (self.heads + 2 * rows * self.head_dim) + 2 * self.head_dim * pairs
