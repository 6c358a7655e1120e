"""Masks that hold data: which blocks, which keys are real, which sequence a position belongs to."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from common.attention.masks import Mask, status_of


@dataclass(frozen=True)
class Random(Mask):
    """Each block of `block` queries sees `count` blocks of keys drawn without replacement, the same for a seed always.

    Zaheer et al. 2020, section 2 and appendix D. Where there are fewer blocks than `count`, all of them.
    """

    count: int
    block: int
    seed: int

    def __post_init__(self) -> None:
        if self.count < 0 or self.block < 1:
            raise ValueError(f"{self}: expected a count of 0 or more and a block of 1 or more")

    def table(self, lq: int, lk: int) -> Tensor:
        """bool (query blocks, key blocks)."""
        rows, columns = -(-lq // self.block), -(-lk // self.block)
        draw = torch.rand(rows, columns, generator=torch.Generator().manual_seed(self.seed))
        return draw.argsort(1).argsort(1) < self.count

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return Blocks(self.table(lq, lk), self.block).allowed(i, j, lq, lk)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        return Blocks(self.table(lq, lk), self.block).status(i0, i1, j0, j1, lq, lk)


@dataclass(frozen=True, eq=False)
class Blocks(Mask):
    """Blocks of `block` queries and `block` keys that are seen as a whole.

    table: bool (query blocks, key blocks), or (B or 1, H or 1, query blocks, key blocks). Blocks count from index 0 on
    both sides; the last ones may be cut off by the lengths.
    """

    table: Tensor
    block: int

    def __post_init__(self) -> None:
        if self.table.dtype != torch.bool or self.table.ndim not in (2, 4) or self.block < 1:
            raise ValueError(
                f"Blocks: got a table of {self.table.dtype} with shape {tuple(self.table.shape)} and block {self.block}, "
                "expected bool (query blocks, key blocks) or (B, H, query blocks, key blocks) and a block of 1 or more"
            )

    @property
    def groups(self) -> tuple[int, int]:  # type: ignore[override]
        return (1, 1) if self.table.ndim == 2 else (self.table.shape[0], self.table.shape[1])

    def at(self, batch: int, head: int) -> Mask:
        if self.table.ndim == 2:
            return self
        b, h = (0 if size == 1 else place for place, size in zip((batch, head), self.groups, strict=True))
        return Blocks(self.table[b, h], self.block)

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        super().check(batch, heads, lq, lk)
        needed = -(-lq // self.block), -(-lk // self.block)
        if tuple(self.table.shape[-2:]) != needed:
            raise ValueError(
                f"Blocks of {self.block}: got a table of {tuple(self.table.shape[-2:])} blocks, expected {needed} for "
                f"{lq} queries and {lk} keys"
            )

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        table = self.table.to(i.device)
        return table[(i // self.block).clamp(max=table.shape[0] - 1), (j // self.block).clamp(max=table.shape[1] - 1)]

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        ends = (i0 // self.block, i1 // self.block + 1, j0 // self.block, j1 // self.block + 1)
        rows, columns = self.table.shape
        a, b = (end.clamp(max=rows) for end in ends[:2])
        c, d = (end.clamp(max=columns) for end in ends[2:])
        sums = torch.nn.functional.pad(self.table.cpu().long().cumsum(0).cumsum(1), (1, 0, 1, 0))
        inside = sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]
        return status_of(inside == (b - a) * (d - c), inside == 0)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Keys that are real. keep: bool (B, Lk), True = a real key, wherever the padding lies."""

    keep: Tensor

    def __post_init__(self) -> None:
        if self.keep.dtype != torch.bool or self.keep.ndim != 2:
            raise ValueError(
                f"Padding: got {self.keep.dtype} with shape {tuple(self.keep.shape)}, expected bool (batch, keys), "
                "True = a real key"
            )

    @classmethod
    def lengths(cls, lengths: Tensor, lk: int) -> Self:
        """The first lengths[b] of lk keys are real. lengths: integers (B,), from 0 to lk."""
        if lengths.ndim != 1 or lengths.is_floating_point() or bool(((lengths < 0) | (lengths > lk)).any()):
            raise ValueError(f"Padding lengths: got {lengths}, expected integers (batch,) from 0 to {lk}")
        return cls(torch.arange(lk, device=lengths.device) < lengths[:, None])

    @property
    def groups(self) -> tuple[int, int]:  # type: ignore[override]
        return self.keep.shape[0], 1

    def at(self, batch: int, head: int) -> Mask:
        return Padding(self.keep[batch : batch + 1]) if len(self.keep) > 1 else self

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        super().check(batch, heads, lq, lk)
        if self.keep.shape[1] != lk:
            raise ValueError(f"Padding: got a mask of {self.keep.shape[1]} keys, expected {lk}")

    def dense(self, lq: int, lk: int, device: torch.device | str = "cpu") -> Tensor:
        keep = self.keep.to(device)[:, None, None].expand(-1, 1, lq, lk)  # at once: the inherited one goes row by row
        return keep[0, 0] if self.groups == (1, 1) else keep

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return self.keep[0].to(j.device)[j.clamp(max=lk - 1)] & (i >= 0)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        real = torch.nn.functional.pad(self.keep[0].cpu().long().cumsum(0), (1, 0))
        inside = real[(j1 + 1).clamp(max=lk)] - real[j0.clamp(max=lk)] + torch.zeros_like(i0)
        return status_of(inside == j1 - j0 + 1, inside == 0)


@dataclass(frozen=True, eq=False)
class Packed(Mask):
    """Several sequences in one row: a query sees the keys of its own segment.

    queries: integers (B, Lq), keys: (B, Lk), the segment of each position; a negative one is padding and sees nothing,
    nor is it seen. keys None: those of the queries.
    """

    queries: Tensor
    keys: Tensor | None = None

    def __post_init__(self) -> None:
        for name, side in (("queries", self.queries), ("keys", self.of_keys)):
            if side.ndim != 2 or side.is_floating_point() or side.dtype == torch.bool:
                raise ValueError(
                    f"Packed {name}: got {side.dtype} with shape {tuple(side.shape)}, expected integers (batch, time)"
                )
        if len({len(self.queries), len(self.of_keys)} - {1}) > 1:
            raise ValueError(
                f"Packed: got a batch of {len(self.queries)} for queries and {len(self.of_keys)} for keys, expected the same"
            )

    @classmethod
    def lengths(cls, lengths: Tensor) -> Self:
        """Sequences one behind the other in one row. lengths: integers (sequences,)."""
        return cls(torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)[None])

    @property
    def of_keys(self) -> Tensor:
        return self.queries if self.keys is None else self.keys

    @property
    def groups(self) -> tuple[int, int]:  # type: ignore[override]
        return max(len(self.queries), len(self.of_keys)), 1

    def at(self, batch: int, head: int) -> Mask:
        return Packed(*(side[batch : batch + 1] if len(side) > 1 else side for side in (self.queries, self.of_keys)))

    def check(self, batch: int, heads: int, lq: int, lk: int) -> None:
        super().check(batch, heads, lq, lk)
        got = self.queries.shape[1], self.of_keys.shape[1]
        if got != (lq, lk):
            raise ValueError(f"Packed: got segments of {got[0]} queries and {got[1]} keys, expected {lq} and {lk}")

    def dense(self, lq: int, lk: int, device: torch.device | str = "cpu") -> Tensor:
        """As of all masks, at once: `at` goes sequence by sequence, of which there may be many."""
        rows, columns = self.queries.to(device)[:, :, None], self.of_keys.to(device)[:, None]
        seen = (rows == columns) & (rows >= 0)
        return seen[0] if len(seen) == 1 else seen[:, None]

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        rows = self.queries[0].to(i.device)[i.clamp(max=lq - 1)]
        columns = self.of_keys[0].to(j.device)[j.clamp(max=lk - 1)]
        return (rows == columns) & (rows >= 0)

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        lows, highs = zip(
            *(_extremes(side[0].cpu(), a, b) for side, a, b in ((self.queries, i0, i1), (self.of_keys, j0, j1))),
            strict=True,
        )
        apart = (lows[0] > highs[1]) | (lows[1] > highs[0]) | (highs[0] < 0) | (highs[1] < 0)
        one = (lows[0] == highs[0]) & (lows[1] == highs[1]) & (lows[0] == lows[1]) & (lows[0] >= 0)
        return status_of(one, apart)


def _extremes(segments: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest segment in each range; the ranges are those of equal blocks, the last one cut off."""
    lows, highs = torch.empty_like(first), torch.empty_like(first)
    for place, (a, b) in enumerate(zip(first.flatten().tolist(), last.flatten().tolist(), strict=True)):
        part = segments[a : b + 1]
        lows.view(-1)[place], highs.view(-1)[place] = part.min(), part.max()
    return lows, highs
