"""Caches with one run of slots for each sequence."""

import torch
from torch import Tensor

from common.attention.cache.interface import Cache
from common.attention.cache.positions import Positions
from common.attention.cache.storage import CacheShape

SMALLEST = 16
"""Slots that a growing cache begins with."""


class Contiguous(Cache):
    """planes: (B, H_kv, capacity, width)."""

    def __init__(self, shape: CacheShape, sequences: int, capacity: int, device: torch.device | str) -> None:
        super().__init__(shape, sequences, device, (sequences, capacity))

    @property
    def capacity(self) -> int:
        """Slots of each sequence."""
        return self.planes[0].shape[2]

    def _used(self) -> int:
        """Slots that some sequence has a token in, and those before."""
        return max(self.lengths)

    def _write(self, sequences: Tensor, places: Tensor, tokens: list[Tensor]) -> None:
        for plane, part in zip(self.planes, tokens, strict=True):
            plane[sequences, :, places] = part

    def _write_block(self, start: int, parts: list[Tensor]) -> None:
        for plane, part in zip(self.planes, parts, strict=True):
            plane.narrow(2, start, part.shape[2]).copy_(part)

    def _read(self) -> list[Tensor]:
        return [plane.narrow(2, 0, self._used()) for plane in self.planes]

    def _keep(self, index: list[int]) -> None:
        if index == list(range(self.sequences)):
            return  # as often in a beam search
        self._refill(self.capacity, torch.tensor(index, device=self.device))
        self.held = [self.held[n] for n in index]

    def _refill(self, capacity: int, index: Tensor | None = None) -> None:
        """New planes, of sequences in the order of index, with what is in the old ones; of slots not used no copy is made."""
        used = self._used()
        for n, fresh in enumerate(self._new_planes(self.sequences if index is None else len(index), capacity)):
            old = self.planes[n].narrow(2, 0, used)
            fresh.narrow(2, 0, used).copy_(old if index is None else old.index_select(0, index))
            self.planes[n] = fresh

    def _cut(self, sequence: int, length: int) -> None:
        pass  # what stands behind the length isn't read

    def _move(self, sequence: int, places: list[int], to: int) -> None:
        for plane in self.planes:
            plane[sequence, :, to : to + len(places)] = plane[sequence][:, places]


class GrowingCache(Contiguous):
    """As many slots as needed: the least power of two that holds the longest sequence, and 16 at least, so that appending
    token by token copies a token less than twice on average. It never shrinks. A view that was read stays as it is for as
    long as tokens are only appended. Forks are copies."""

    def __init__(self, shape: CacheShape, *, sequences: int, device: torch.device | str = "cpu") -> None:
        """sequences: B. Raises ValueError for fewer than one."""
        super().__init__(shape, sequences, 0, device)

    def _make_room(self, counts: list[int]) -> None:
        needed = max(length + count for length, count in zip(self.lengths, counts, strict=True))
        if needed > self.capacity:
            self._refill(max(SMALLEST, 1 << (needed - 1).bit_length()))


class StaticCache(Contiguous):
    """A fixed number of slots for each sequence, allocated at once. Forks are copies."""

    def __init__(self, shape: CacheShape, *, sequences: int, capacity: int, device: torch.device | str = "cpu") -> None:
        """sequences: B; capacity: tokens of each sequence. Raises ValueError for fewer than one of either."""
        if capacity < 1:
            raise ValueError(f"capacity: got {capacity}, expected 1 or more tokens")
        super().__init__(shape, sequences, capacity, device)

    def _make_room(self, counts: list[int]) -> None:
        for n, (length, count) in enumerate(zip(self.lengths, counts, strict=True)):
            if length + count > self.capacity:
                raise ValueError(
                    f"append: got {count} tokens on top of {length} of sequence {n}, expected at most {self.capacity} in all"
                )


class SlidingCache(Contiguous):
    """The last `window` positions of each sequence: what Window(window - 1, 0) lets the last of them see. For a chunk of
    several queries the earlier ones see more: they are to attend to what was read before, and to the chunk.

    Position p stands in slot p % window, so that slots are in no order; `positions` say which is where. Rolling back is
    refused to sequences that something has slid out of, as it would be missing. Forks are copies.
    """

    def __init__(self, shape: CacheShape, *, sequences: int, window: int, device: torch.device | str = "cpu") -> None:
        """sequences: B; window: positions of each sequence, the query's own counted. Raises ValueError for fewer than one of
        either."""
        if window < 1:
            raise ValueError(f"window: got {window}, expected 1 or more positions")
        super().__init__(shape, sequences, window, device)

    def append(self, keys: Tensor, values: Tensor, *, real: Tensor | None = None) -> None:
        super().append(keys, values, real=real)
        self.held = [held.since(held.seen - self.capacity) for held in self.held]

    def _make_room(self, counts: list[int]) -> None:
        pass  # what is oldest makes it

    def _can_roll_back(self, held: Positions) -> int:
        return held.seen if held.seen <= self.capacity else 0

    def _used(self) -> int:
        return min(self.capacity, max(held.seen for held in self.held))

    def _start(self, held: Positions) -> int:
        return held.seen

    def _slots_of(self, numbers: Tensor) -> Tensor:
        return numbers % self.capacity

    def _write(self, sequences: Tensor, places: Tensor, tokens: list[Tensor]) -> None:
        last = places.new_zeros(self.sequences).scatter_reduce(0, sequences, places, "amax")
        stay = places > last[sequences] - self.capacity
        super()._write(sequences[stay], places[stay] % self.capacity, [part[stay] for part in tokens])

    def _write_block(self, start: int, parts: list[Tensor]) -> None:
        end = start + parts[0].shape[2]
        slots = torch.arange(max(start, end - self.capacity), end, device=self.device) % self.capacity
        for plane, part in zip(self.planes, parts, strict=True):
            plane.index_copy_(2, slots, part[:, :, part.shape[2] - len(slots) :])

    def _move(self, sequence: int, places: list[int], to: int) -> None:
        pass  # a position's slot is its own
