"""Masks: which query may attend to which key. True = may attend.

A mask is a small value with one dense meaning, `dense`; `&` and `|` combine masks. Positions are 0-based. Where there are
fewer queries than keys the last query stands at the last key (bottom-right alignment): query i of Lq has position
i + Lk - Lq among the keys. What backends read is not the dense form but `common.attention.blocks.lower`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

EMPTY, PARTIAL, FULL = 0, 1, 2


class Mask(ABC):
    """`groups` says for how many batch entries and heads it differs: (1, 1), (B, 1), (1, H) or (B, H)."""

    groups: tuple[int, int] = (1, 1)
    shift_invariant: bool = False
    """Whether only the distance from a query's position to a key counts, so that equal distances look alike."""

    @abstractmethod
    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        """Elementwise, for a mask of one group. i (query indices) and j (key indices): int64 of shapes that broadcast."""

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        """EMPTY, PARTIAL or FULL for the block of queries i0 to i1 and keys j0 to j1 (both ends included), int8.

        PARTIAL says "look at each": always right, only slower. The bounds broadcast.
        """
        return torch.full(torch.broadcast_shapes(i0.shape, j0.shape), PARTIAL, dtype=torch.int8)

    def at(self, batch: int, head: int) -> "Mask":
        """The mask of one batch entry and head, with groups (1, 1)."""
        return self

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        """Raises ValueError where the mask does not fit these shapes."""
        for name, mine, size in zip(("batch", "heads"), self.groups, (batch, heads), strict=True):
            if mine not in (1, size):
                raise ValueError(f"mask {self}: got {mine} for {name}, expected 1 or {size}")

    def dense(self, lq: int, lk: int, device: torch.device | str = "cpu") -> Tensor:
        """The whole of it: bool (Lq, Lk), or (B, H, Lq, Lk) with B and H as in `groups` where those are not (1, 1)."""
        i, j = torch.arange(lq, device=device)[:, None], torch.arange(lk, device=device)
        batch, heads = self.groups
        parts = [self.at(b, h).allowed(i, j, lq, lk).expand(lq, lk) for b in range(batch) for h in range(heads)]
        if not parts:
            return torch.zeros(batch, heads, lq, lk, dtype=torch.bool, device=device)
        return parts[0] if self.groups == (1, 1) else torch.stack(parts).unflatten(0, self.groups)

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other)


@dataclass(frozen=True)
class Full(Mask):
    """Every query sees every key."""

    shift_invariant = True

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return torch.ones_like(i + j, dtype=torch.bool)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        return torch.full(torch.broadcast_shapes(i0.shape, j0.shape), FULL, dtype=torch.int8)


@dataclass(frozen=True)
class Window(Mask):
    """`left` keys before and `right` keys after the query's own position, which is not counted and always seen.

    None: no limit on that side. Beltagy et al. 2020, section 3.1: a window of w has w/2 on each side.
    """

    left: int | None
    right: int | None
    shift_invariant = True

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            size = getattr(self, name)
            if size is not None and size < 0:
                raise ValueError(f"Window {name}: got {size}, expected 0 or more keys, or None for no limit")

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        distance = j - (i + lk - lq)
        keep = torch.ones_like(distance, dtype=torch.bool)
        if self.left is not None:
            keep &= distance >= -self.left
        if self.right is not None:
            keep &= distance <= self.right
        return keep

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        nearest, farthest = j0 - (i1 + lk - lq), j1 - (i0 + lk - lq)  # all distances of the block lie between
        full, empty = torch.ones_like(nearest, dtype=torch.bool), torch.zeros_like(nearest, dtype=torch.bool)
        if self.left is not None:
            full, empty = full & (nearest >= -self.left), empty | (farthest < -self.left)
        if self.right is not None:
            full, empty = full & (farthest <= self.right), empty | (nearest > self.right)
        return status_of(full, empty)


@dataclass(frozen=True)
class Causal(Window):
    """No key after the query's own position: Window(None, 0)."""

    left: None = None
    right: int = 0


@dataclass(frozen=True)
class Dilated(Mask):
    """As Window, but the keys of each side lie `dilation` apart (Beltagy et al. 2020, section 3.1, figure 2c)."""

    left: int
    right: int
    dilation: int
    shift_invariant = True

    def __post_init__(self) -> None:
        if min(self.left, self.right) < 0 or self.dilation < 1:
            raise ValueError(f"{self}: expected left and right of 0 or more and a dilation of 1 or more")

    @property
    def reach(self) -> Window:
        """The window that it lies in."""
        return Window(self.left * self.dilation, self.right * self.dilation)

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return self.reach.allowed(i, j, lq, lk) & ((j - (i + lk - lq)) % self.dilation == 0)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        status = self.reach.status(i0, i1, j0, j1, lq, lk)
        return status if self.dilation == 1 else status.clamp(max=PARTIAL)


@dataclass(frozen=True)
class Global(Mask):
    """These positions see all and are seen by all (Beltagy et al. 2020, section 3.1; Zaheer et al. 2020, section 2)."""

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", tuple(self.positions))  # a list has no hash, and masks are keys
        if any(position < 0 for position in self.positions):
            raise ValueError(f"Global positions: got {self.positions}, expected 0 or more")

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        chosen = torch.tensor(self.positions, device=i.device, dtype=i.dtype)
        return torch.isin(i + lk - lq, chosen) | torch.isin(j, chosen)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        off = lk - lq
        rows, columns = self._inside(i0 + off, i1 + off), self._inside(j0, j1)
        full = (rows == i1 - i0 + 1) | (columns == j1 - j0 + 1)
        return status_of(full, (rows == 0) & (columns == 0))

    def _inside(self, first: Tensor, last: Tensor) -> Tensor:
        """How many of the positions lie in each range."""
        chosen = torch.tensor(sorted(set(self.positions)), dtype=first.dtype)
        return torch.searchsorted(chosen, last.contiguous(), right=True) - torch.searchsorted(
            chosen, first.contiguous()
        )


@dataclass(frozen=True)
class And(Mask):
    """What both allow."""

    a: Mask
    b: Mask

    @property
    def groups(self) -> tuple[int, int]:  # type: ignore[override]
        return _groups(self.a, self.b)

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        return self.a.shift_invariant and self.b.shift_invariant

    def at(self, batch: int, head: int) -> Mask:
        return type(self)(self.a.at(batch, head), self.b.at(batch, head))

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        self.a.check(batch, heads, lq, lk)
        self.b.check(batch, heads, lq, lk)

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return self.a.allowed(i, j, lq, lk) & self.b.allowed(i, j, lq, lk)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        return torch.minimum(self.a.status(i0, i1, j0, j1, lq, lk), self.b.status(i0, i1, j0, j1, lq, lk))


@dataclass(frozen=True)
class Or(And):
    """What either allows."""

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return self.a.allowed(i, j, lq, lk) | self.b.allowed(i, j, lq, lk)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        return torch.maximum(self.a.status(i0, i1, j0, j1, lq, lk), self.b.status(i0, i1, j0, j1, lq, lk))


def status_of(full: Tensor, empty: Tensor) -> Tensor:
    """FULL, EMPTY or else PARTIAL, int8."""
    return torch.where(full, FULL, torch.where(empty, EMPTY, PARTIAL)).to(torch.int8)


def _groups(a: Mask, b: Mask) -> tuple[int, int]:
    for name, mine, other in zip(("batch", "heads"), a.groups, b.groups, strict=True):
        if mine != other and 1 not in (mine, other):
            raise ValueError(f"masks of different {name}: got {mine} ({a}) and {other} ({b})")
    return max(a.groups[0], b.groups[0]), max(a.groups[1], b.groups[1])
