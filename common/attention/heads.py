"""Masks that differ from head to head."""

from dataclasses import dataclass

from torch import Tensor

from common.attention.masks import Mask


@dataclass(frozen=True)
class Heads(Mask):
    """Head h sees what masks[h] allows (Beltagy et al. 2020, section 3.1: dilation on some heads); one mask: all heads.

    The masks may differ by batch entry, but not by head themselves. Equal tuples are equal values.
    """

    masks: tuple[Mask, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "masks", tuple(self.masks))  # a list of them would have no hash
        if not self.masks or any(mask.groups[1] != 1 for mask in self.masks):
            got = [mask.groups[1] for mask in self.masks]
            raise ValueError(f"Heads: got masks of {got} heads, expected one or more, each the same for all heads")
        batches = {mask.groups[0] for mask in self.masks} - {1}
        if len(batches) > 1:
            raise ValueError(f"Heads: got masks of different batch: {sorted(batches)}")

    @property
    def groups(self) -> tuple[int, int]:  # type: ignore[override]
        return max(mask.groups[0] for mask in self.masks), len(self.masks)

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        return all(mask.shift_invariant for mask in self.masks)

    def at(self, batch: int, head: int) -> Mask:
        return self.masks[head if len(self.masks) > 1 else 0].at(batch, 0)

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        super().check(batch, heads, lq, lk)
        for mask in self.masks:
            mask.check(batch, heads, lq, lk)

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        assert self.groups == (1, 1)
        return self.masks[0].allowed(i, j, lq, lk)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        assert self.groups == (1, 1)
        return self.masks[0].status(i0, i1, j0, j1, lq, lk)
