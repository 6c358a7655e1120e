"""Longformer's self-attention: windows, dilated on some heads, and global tokens (Beltagy et al. 2020, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from common.attention import Dilated, Full, Mask, Window
from common.attention.heads import Heads
from common.attention.interleaved import interleaved
from common.nn.feedforward import projection
from common.nn.sparse.global_tokens import GlobalTokens
from common.nn.sparse.layer import Layer, Relative, among, without_padding
from common.nn.sparse.loop import loop
from common.nn.sparse.schedule import Growth, dilations, windows

GlobalAttention = Literal["off", "shared", "separate"]


@dataclass(frozen=True, kw_only=True)
class Windowed(Relative):
    """Factory.

    window: keys on each side in the lowest layer, top_window: in the highest, as many unless given, growth: how from the one
    to the other (`schedule.windows`); the paper's w is twice that where it is not causal. dilation: of each layer, or of all,
    1: none, on `dilated_heads` heads, the last or the first ones. global_attention: of tokens chosen with each call; off: a
    call may choose none; shared: by the projections of the window; separate: by projections of their own. implementation: of the window,
    `backend`, or the paper's loop; global tokens' own rows are the backend's.
    """

    window: int
    top_window: int | None = None
    growth: Growth = "linear"
    causal: bool = False
    dilation: int | Sequence[int] = 1
    dilated_heads: int = 0
    dilated: Literal["last", "first"] = "last"
    global_attention: GlobalAttention = "off"
    implementation: Literal["backend", "loop"] = "backend"

    extra_tokens = 0

    def __post_init__(self) -> None:
        known = {
            "dilated": ("last", "first"),
            "global_attention": ("off", "shared", "separate"),
            "implementation": ("backend", "loop"),
        }
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {', '.join(values)}")
        if self.causal and self.global_attention != "off":
            raise ValueError(
                f"global_attention: got {self.global_attention!r}, expected 'off' of a causal layer: no token sees all there"
            )

    @property
    def uses_global(self) -> bool:
        return self.global_attention != "off"

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "WindowedAttention":
        width = windows(self.window, self.top_window, self.growth, layers)[layer]
        return WindowedAttention(d_model, heads, self, width, dilations(self.dilation, layers)[layer])


class WindowedAttention(Layer):
    """One layer. Its window is doubled once for each stage of training (section 4.1).

    All tokens see the global ones within the same softmax as their window. A global token's own row is attention to all
    tokens, with queries, keys and values of the global projections, which start as copies of the others (section 3.1).
    """

    def __init__(self, d_model: int, heads: int, of: Windowed, window: int, dilation: int) -> None:
        super().__init__(d_model, heads, of)
        if not 0 <= of.dilated_heads <= heads or (dilation > 1 and not of.dilated_heads):
            raise ValueError(
                f"dilated_heads: got {of.dilated_heads} with a dilation of {dilation}, expected at most {heads}, and some "
                "where there is a dilation"
            )
        self.window, self.causal, self.by_loop = window, of.causal, of.implementation == "loop"
        many = of.dilated_heads if dilation > 1 else 0
        self.dilation = [1] * (heads - many) + [dilation] * many
        if of.dilated == "first":
            self.dilation.reverse()
        self.uses_global, self.separate = of.uses_global, of.global_attention == "separate"
        if self.separate:
            inner = heads * self.head_dim
            self.w_q_global, self.w_k_global, self.w_v_global = (
                projection(d_model, inner, bias=of.linear_bias) for _ in range(3)
            )
            self.copy_to_global()

    @torch.no_grad()
    def copy_to_global(self) -> None:
        """The global projections as copies of those of the window, where they are separate; also after loading these."""
        if self.separate:
            for mine, other in zip(self._global_projections(), (self.w_q, self.w_k, self.w_v), strict=True):
                mine.load_state_dict(other.state_dict())

    def sides(self, stage: int) -> tuple[int, int]:
        """Keys to the left and to the right."""
        width = self.window * 2**stage
        return width, 0 if self.causal else width

    def mask(self, stage: int = 0) -> Mask:
        """What each head sees, but for global tokens and padding."""
        left, right = self.sides(stage)
        return Heads(tuple(Window(left, right) if d == 1 else Dilated(left, right, d) for d in self.dilation))

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        if is_global is not None and not self.uses_global:
            raise ValueError("is_global: got global tokens, expected None, as global_attention is 'off'")
        x = without_padding(x, real)
        chosen, (q, k, v) = GlobalTokens.of(is_global, real, *x.shape[:2]), self.project(x)
        if chosen is None:
            return self.merge(self._windows(q, k, v, real, 0, stage))
        keep = chosen.keep(real)
        seen = self._windows(q, chosen.ahead(k), chosen.ahead(v), keep, chosen.slots, stage)
        return self.merge(chosen.put(seen, self._global_rows(x, chosen, real)))

    def _windows(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, first: int, stage: int) -> Tensor:
        """Heads of the same dilation at a time. Arguments as of `interleaved`."""
        left, right = self.sides(stage)
        found, start = [], 0
        for dilation in dict.fromkeys(self.dilation):
            heads = slice(start, start := start + self.dilation.count(dilation))
            some = q[:, heads], k[:, heads], v[:, heads]
            if self.by_loop:
                out = loop(
                    *some, left=left, right=right, dilation=dilation, keep=keep, first=first, scale=self.scale,
                    dropout_p=self.dropout_p,
                )  # fmt: skip
            else:
                out = interleaved(
                    *some, left=left, right=right, dilation=dilation, keep=keep, first=first, scale=self.scale,
                    dropout_p=self.dropout_p, backend=self.backend,
                )  # fmt: skip
            found.append(out)
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def _global_rows(self, x: Tensor, chosen: GlobalTokens, real: Tensor | None) -> Tensor:
        """(B, H, most, head_dim) of the global tokens."""
        w_q, w_k, w_v = self._global_projections()
        q = self.query(chosen.rows(x), w_q, chosen.index)
        k, v = self.key(x, w_k, torch.arange(x.shape[1], device=x.device)), self.split(w_v(x))
        return self.attend(q, k, v, among(Full(), real))

    def _global_projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        if self.separate:
            return self.w_q_global, self.w_k_global, self.w_v_global
        return self.w_q, self.w_k, self.w_v
