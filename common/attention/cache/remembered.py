"""Keys and values of a text so far, as a value: one text goes on from it in several ways."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from common.attention.cache.contiguous import GrowingCache
from common.attention.cache.storage import CacheShape


@dataclass(frozen=True, eq=False)
class Remembered:
    """keys, values: (B, H_kv, T, .) of the last T of `seen` positions, views of a cache that those before and after are kept
    in. window: the most that is ever seen, a query's own position counted; None: all.

    Nothing that is done here changes what is remembered: where two texts go on from the same positions, the second gets a
    cache of its own. No gradient flows.
    """

    keys: Tensor
    values: Tensor
    seen: int
    window: int | None
    cache: GrowingCache
    held: int
    """How many positions the cache had when this was read; those behind belong to a text that went on from here."""

    @classmethod
    def nothing(cls, shape: CacheShape, sequences: int, device: torch.device, *, window: int | None = None) -> Self:
        """Of B sequences, none of whose positions was seen yet."""
        if window is not None and window < 1:
            raise ValueError(f"window: got {window}, expected 1 or more positions, or None for all")
        return cls._of(GrowingCache(shape, sequences=sequences, device=device), 0, window)

    def extended(self, keys: Tensor, values: Tensor) -> Self:
        """With those of the next positions, (B, H_kv, T, .)."""
        cache = self.cache
        # Half is dropped at a time, so that a token moves but once.
        full = self.window is not None and self.held >= 2 * self.window
        if full or cache.lengths[0] > self.held:
            cache = self._anew(self.keys, self.values)
        cache.append(keys, values)
        return self._of(cache, self.seen + keys.shape[2], self.window)

    def reordered(self, index: Tensor) -> Self:
        """Sequence n is what index[n] was; index: int64, of any length."""
        return self._of(
            self._anew(self.keys.index_select(0, index), self.values.index_select(0, index)), self.seen, self.window
        )

    def __len__(self) -> int:
        """B."""
        return len(self.keys)

    @property
    def bytes(self) -> int:
        """Of the T positions of all sequences, as the cache stores them."""
        return len(self) * self.keys.shape[2] * self.cache.shape.bytes_per_token

    def _anew(self, keys: Tensor, values: Tensor) -> GrowingCache:
        cache = GrowingCache(self.cache.shape, sequences=len(keys), device=keys.device)
        cache.append(keys, values)
        return cache

    @classmethod
    def _of(cls, cache: GrowingCache, seen: int, window: int | None) -> Self:
        keys, values = cache.keys_values()
        if window is not None and keys.shape[2] > window:
            keys, values = keys[:, :, -window:], values[:, :, -window:]
        return cls(keys, values, seen, window, cache, cache.lengths[0])
