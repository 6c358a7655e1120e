"""Layers of several kinds in turns, such as windows and state-space layers (Samba: Ren et al. 2024, arXiv 2406.07522), and
the window that writes a text token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from common import attention as core
from common.attention.cache import Remembered
from common.nn.sparse.full import Full, FullAttention
from common.nn.sparse.layer import Factory, SelfAttention


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """Factory. kinds: of the layers, in turns: layer i is of kind i mod n. Among the layers of one place in this list the
    lowest is number 0, so that schedules over the layers, and what layers share, go over these alone. In a configuration:

        attention: {_target_: common.nn.hybrid.Hybrid, _convert_: all, kinds: [{_target_: .., ..}, {_target_: .., ..}]}

    Raises ValueError for no kinds, and for kinds that differ in what a model asks of all its layers: whether they are causal,
    how many extra tokens stand in front, whether some tokens are global.
    """

    kinds: Sequence[Factory]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if not self.kinds:
            raise ValueError("kinds: got none, expected one or more kinds of layers")
        if wrapped := [type(kind).__name__ for kind in self.kinds if not callable(kind)]:
            raise ValueError(
                f"kinds: got {wrapped}, expected factories of layers; a configuration of them needs _convert_: all"
            )
        for name in ("causal", "extra_tokens", "uses_global"):
            found = [getattr(kind, name) for kind in self.kinds]
            if len(set(found)) > 1:
                raise ValueError(f"kinds: got {name} of {found}, expected the same of all")

    @property
    def backend(self) -> str:
        return self.kinds[0].backend

    @property
    def causal(self) -> bool:
        return self.kinds[0].causal

    @property
    def extra_tokens(self) -> int:
        return self.kinds[0].extra_tokens

    @property
    def uses_global(self) -> bool:
        return self.kinds[0].uses_global

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> SelfAttention:
        number, place = divmod(layer, len(self.kinds))
        same = len(range(place, layers, len(self.kinds)))
        return self.kinds[place](d_model, heads, number, same)


@dataclass(frozen=True, kw_only=True)
class Sliding(Full):
    """Factory. window: keys before the query's own, which is always seen, as `Windowed` counts them; `step`, which that one
    has not, keeps so many and its own. Everything else as `Full` has it."""

    window: int
    causal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 0:
            raise ValueError(f"window: got {self.window}, expected 0 or more keys")
        if not self.causal:
            raise ValueError("causal: got False, expected True: a window to both sides is common.nn.sparse.Windowed")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "SlidingAttention":
        return SlidingAttention(d_model, heads, self)


class SlidingAttention(FullAttention):
    """Every token sees itself and the `window` real ones before it."""

    counts_as_written_out = False
    """Its FLOPs are those of its blocks, as of the other sparse layers."""

    def __init__(self, d_model: int, heads: int, of: Sliding) -> None:
        super().__init__(d_model, heads, of)
        self.window, self.mask = of.window, core.Window(of.window, 0)

    def step(self, x: Tensor, memory: Remembered | None) -> tuple[Tensor, Remembered]:
        """Keys and values pass no gradient on: this is for decoding."""
        q, after = self.following(x, memory, self.window + 1)
        return self.merge(self.attend(q, after.keys, after.values, core.Full())), after
