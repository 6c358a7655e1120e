"""What all caches do."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from common.attention.cache.positions import Positions
from common.attention.cache.storage import CacheShape


class Cached(NamedTuple):
    """keys (B, H_kv, L, D_k), values (B, H_kv, L, D_v); real: bool (B, L), True = a token that is held; positions: int64
    (B, L), the number of each, 0 where none is. What stands where none is means nothing: a mask is to hide it."""

    keys: Tensor
    values: Tensor
    real: Tensor
    positions: Tensor


class Cache(ABC):
    """Keys and values of B sequences of different lengths, for decoding: no gradient flows through a cache.

    Positions of a sequence are numbered from 0 and count its real tokens alone: padding, on whatever side, is not kept.
    Tokens keep their numbers when others are evicted. What can't be done is refused with a ValueError (got, expected), and
    then nothing has changed.
    """

    planes: list[Tensor]
    """What is allocated, one tensor for each of `CacheShape.planes`, (., H_kv, slots, width): for kernels that read it as
    it is stored."""

    def __init__(self, shape: CacheShape, sequences: int, device: torch.device | str, size: tuple[int, int]) -> None:
        """size: of the planes, how many times how many slots."""
        if sequences < 1:
            raise ValueError(f"sequences: got {sequences}, expected 1 or more")
        self.shape, self.held = shape, [Positions()] * sequences
        self.device = torch.empty(0, device=device).device  # with its number
        self.planes = list(self._new_planes(*size))

    @property
    def sequences(self) -> int:
        """B."""
        return len(self.held)

    @property
    def lengths(self) -> list[int]:
        """How many tokens of each sequence are held."""
        return [held.length for held in self.held]

    @property
    def bytes(self) -> int:
        """Allocated, whether filled or not."""
        return sum(plane.numel() * plane.element_size() for plane in self.planes)

    def following(self, time: int, real: Tensor | None = None) -> Tensor:
        """The positions that the next `time` tokens will have, int64 (B, time), for rotary keys and the like.

        real: as in `append`; at padding stands the number of the last real token before it, or of what would follow.
        """
        self._check_real(real, time)
        seen = torch.tensor([held.seen for held in self.held], device=self.device)[:, None]
        if real is None:
            return seen + torch.arange(time, device=self.device)
        return seen + (real.cumsum(1) - 1).clamp(min=0)

    def append(self, keys: Tensor, values: Tensor, *, real: Tensor | None = None) -> None:
        """One or many tokens a sequence. keys (B, H_kv, T, D_k), values (B, H_kv, T, D_v); real: bool (B, T), False =
        padding, which is left out (all of a sequence may be), None: there is none.

        Raises ValueError for other shapes, dtypes and devices, and, before anything is written, where there is no room.
        """
        time = self._check_tokens(keys, values)
        self._check_real(real, time)
        counts = [time] * self.sequences if real is None else real.sum(1).tolist()
        self._make_room(counts)
        parts = self.shape.encode(keys.detach(), values.detach())
        if real is None and self._alike:
            self._write_block(self._start(self.held[0]), parts)
            self.held = [self.held[0].grown(time)] * self.sequences
        else:
            self._write_real([self._start(held) for held in self.held], parts, real)
            self.held = [held.grown(count) for held, count in zip(self.held, counts, strict=True)]

    def keys_values(self) -> tuple[Tensor, Tensor]:
        """Of all that is held: as views, which later operations may change, where they are contiguous and stored as given;
        new tensors otherwise."""
        return self.shape.decode(self._read())

    def read(self) -> Cached:
        """All that is held, keys and values as `keys_values` gives them."""
        keys, values = self.keys_values()
        slots = keys.shape[2]
        alike = self._alike
        real = torch.zeros(1 if alike else self.sequences, slots, dtype=torch.bool)
        positions = torch.zeros(real.shape, dtype=torch.int64)
        for n, held in enumerate(self.held[: len(real)]):
            numbers = held.numbers()
            at = self._slots_of(numbers)
            real[n, at], positions[n, at] = True, numbers
        size = self.sequences, slots
        return Cached(keys, values, real.to(self.device).expand(size), positions.to(self.device).expand(size))

    def fork(self, copies: int) -> None:
        """Each sequence becomes `copies` of it, side by side: the beams of a sentence."""
        if copies < 1:
            raise ValueError(f"fork: got {copies} copies, expected 1 or more")
        self._keep([n for n in range(self.sequences) for _ in range(copies)])

    def reorder(self, index: Sequence[int] | Tensor) -> None:
        """Sequence n becomes what sequence index[n] was; index may name one often or not at all, and be of any length."""
        chosen = _integers(index)
        if not chosen or not all(0 <= n < self.sequences for n in chosen):
            raise ValueError(f"reorder: got {chosen}, expected one or more from 0 to {self.sequences - 1}")
        self._keep(chosen)

    def roll_back(self, count: int | Sequence[int] | Tensor) -> None:
        """Drops the last `count` tokens, rejected ones for example, of all sequences or (B numbers) of each. The next token
        has the number of the first one dropped."""
        counts = [count] * self.sequences if isinstance(count, int) else _integers(count)
        most = [self._can_roll_back(held) for held in self.held]
        if len(counts) != len(most) or not all(0 <= n <= limit for n, limit in zip(counts, most, strict=True)):
            raise ValueError(
                f"roll_back: got {counts}, expected from 0 to {most} tokens, before which all that was there still is"
            )
        for n, dropped in enumerate(counts):
            self.held[n] = self.held[n].rolled_back(dropped)
            self._cut(n, self.held[n].length)

    def evict(self, sequence: int, positions: Iterable[int] | Tensor | None = None) -> None:
        """Drops tokens of one sequence by their positions; None: all of it, and its next token is number 0 again."""
        if not 0 <= sequence < self.sequences:
            raise ValueError(f"evict: got sequence {sequence}, expected from 0 to {self.sequences - 1}")
        held = self.held[sequence]
        if positions is None:
            self._cut(sequence, 0)
            self.held[sequence] = Positions()
            return
        dropped = set(_integers(positions))
        if missing := held.missing(dropped):
            raise ValueError(f"evict: got positions {missing}, expected some of those held: {held.numbers().tolist()}")
        kept = held.places_without(dropped)
        moved = [place for n, place in enumerate(kept) if place != n]
        self._move(sequence, moved, len(kept) - len(moved))
        self.held[sequence] = held.without(dropped)

    @property
    def _alike(self) -> bool:
        """Whether all sequences hold the same positions. As a rule they share the object, which costs no comparison."""
        first = self.held[0]
        return all(held is first or held == first for held in self.held)

    @abstractmethod
    def _make_room(self, counts: list[int]) -> None:
        """For so many more tokens of each sequence; ValueError where there can be none."""

    @abstractmethod
    def _write(self, sequences: Tensor, places: Tensor, tokens: list[Tensor]) -> None:
        """sequences, places: int64 (N,), place n of a sequence being that of the n-th token held; tokens: (N, H, width) of
        each plane."""

    @abstractmethod
    def _read(self) -> list[Tensor]:
        """Of each plane (B, H, L, width)."""

    @abstractmethod
    def _keep(self, index: list[int]) -> None:
        """See `reorder`."""

    @abstractmethod
    def _cut(self, sequence: int, length: int) -> None:
        """Only the first `length` tokens held are kept."""

    @abstractmethod
    def _move(self, sequence: int, places: list[int], to: int) -> None:
        """The tokens at these places now stand at `to` and on, and none behind them."""

    def _write_block(self, start: int, parts: list[Tensor]) -> None:
        """`parts` of each plane (B, H, T, width) from the same place on, for all sequences."""
        self._write_real([start] * self.sequences, parts, None)

    def _write_real(self, starts: list[int], parts: list[Tensor], real: Tensor | None) -> None:
        if real is None:
            real = torch.ones(self.sequences, parts[0].shape[2], dtype=torch.bool, device=self.device)
        sequences, columns = real.nonzero(as_tuple=True)
        places = torch.tensor(starts, device=self.device)[:, None] + real.cumsum(1) - 1
        self._write(sequences, places[sequences, columns], [part[sequences, :, columns] for part in parts])

    def _start(self, held: Positions) -> int:
        """The place of the next token."""
        return held.length

    def _slots_of(self, numbers: Tensor) -> Tensor:
        """Where in what is read the positions held stand."""
        return torch.arange(len(numbers))

    def _can_roll_back(self, held: Positions) -> int:
        """By how many tokens at most."""
        return held.seen

    def _new_planes(self, count: int, slots: int) -> Iterator[Tensor]:
        """One after the other, so that who replaces old ones need not have all of both at once."""
        for width, dtype in self.shape.planes:
            yield torch.zeros(count, self.shape.kv_heads, slots, width, dtype=dtype, device=self.device)

    def _check_tokens(self, keys: Tensor, values: Tensor) -> int:
        time = keys.shape[2] if keys.ndim == 4 else 0
        for name, tensor, width in (("keys", keys, self.shape.key_dim), ("values", values, self.shape.value_dim)):
            expected = self.sequences, self.shape.kv_heads, time, width
            if tensor.shape != expected or tensor.dtype != self.shape.dtype or tensor.device != self.device:
                raise ValueError(
                    f"{name}: got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, expected {self.shape.dtype} "
                    f"(B, H_kv, T, D) = {expected} on {self.device}, T the same for both"
                )
        return time

    def _check_real(self, real: Tensor | None, time: int) -> None:
        expected = self.sequences, time
        if real is not None and (real.dtype != torch.bool or real.shape != expected or real.device != self.device):
            raise ValueError(
                f"real: got {real.dtype} {tuple(real.shape)} on {real.device}, expected bool {expected} on {self.device}"
            )


def _integers(numbers: Iterable[int] | Tensor) -> list[int]:
    return numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)
