"""Tokens that see all and are seen by all (Beltagy et al. 2020, section 3.1), others and as many as each sample wants."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

SLOTS = 128
"""Room for them is made in such steps: whole blocks of every backend, and few different shapes. Empty slots are masked."""


@dataclass(frozen=True, eq=False)
class GlobalTokens:
    """Where they stand. chosen: bool (B, T); index: int64 (B, most), the positions of each sample's in ascending order, then
    any others; used: bool (B, most), whether a slot of index holds one."""

    chosen: Tensor
    index: Tensor
    used: Tensor

    @classmethod
    def of(cls, is_global: Tensor | None, real: Tensor | None, batch: int, time: int) -> Self | None:
        """Padding is never global. None where no sample has any."""
        if is_global is None:
            return None
        if is_global.dtype != torch.bool or is_global.shape != (batch, time):
            raise ValueError(
                f"is_global: got {is_global.dtype} {tuple(is_global.shape)}, expected bool {(batch, time)}"
            )
        chosen = is_global if real is None else is_global & real
        count = chosen.sum(1)
        most = int(count.max())
        if not most:
            return None
        index = (~chosen).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
        return cls(chosen, index, torch.arange(most, device=count.device) < count[:, None])

    @property
    def slots(self) -> int:
        """Keys that `ahead` puts in front."""
        return -(-self.index.shape[1] // SLOTS) * SLOTS

    def rows(self, x: Tensor) -> Tensor:
        """(B, T, .) -> (B, most, .), what stands at their positions, zeros in empty slots."""
        found = x.gather(1, self.index[..., None].expand(-1, -1, x.shape[2]))
        return found.masked_fill(~self.used[..., None], 0.0)

    def ahead(self, x: Tensor) -> Tensor:
        """(B, H, T, .) -> (B, H, slots + T, .): copies of the global ones in front."""
        batch, heads, _, size = x.shape
        found = x.gather(2, self.index[:, None, :, None].expand(batch, heads, -1, size))
        found = found.masked_fill(~self.used[:, None, :, None], 0.0)
        return torch.cat((pad(found, (0, 0, 0, self.slots - found.shape[2])), x), 2)

    def keep(self, real: Tensor | None) -> Tensor:
        """bool (B, slots + T): which keys of `ahead` count. A global token does so in front, not in its place again."""
        rest = ~self.chosen if real is None else real & ~self.chosen
        return torch.cat((pad(self.used, (0, self.slots - self.used.shape[1])), rest), 1)

    def put(self, x: Tensor, rows: Tensor) -> Tensor:
        """x (B, H, T, .) with rows (B, H, most, .) at their positions."""
        sample, position = self.chosen.nonzero(as_tuple=True)
        slot = (self.chosen.cumsum(1) - 1)[sample, position]
        values = rows.transpose(1, 2)[sample, slot]
        return x.transpose(1, 2).index_put((sample, position), values.to(x.dtype)).transpose(1, 2)
