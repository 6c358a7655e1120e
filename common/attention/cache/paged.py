"""A cache in pages of one pool (Kwon et al. 2023, section 4)."""

import torch
from torch import Tensor

from common.attention.cache.interface import Cache
from common.attention.cache.pages import Pages
from common.attention.cache.storage import CacheShape


class PagedCache(Cache):
    """A pool of pages that all sequences draw from: each takes what it needs, rounded up to whole pages.

    planes: (pages, H_kv, page_size, width); `pages.tables` say which pages hold a sequence, in order. Fork and reorder copy
    no page: sequences share pages until one of them writes. Evicting tokens moves those behind them. Reading gathers all
    pages into new tensors.
    """

    def __init__(
        self,
        shape: CacheShape,
        *,
        sequences: int,
        pages: int,
        page_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """sequences: B at first; pages: of the pool; page_size: tokens of a page. Raises ValueError for fewer than one."""
        if pages < 1 or page_size < 1:
            raise ValueError(f"pages and page_size: got {pages} and {page_size}, expected 1 or more of each")
        super().__init__(shape, sequences, device, (pages, page_size))
        self.pages = Pages(pages, page_size, sequences)

    def table(self) -> Tensor:
        """int64 (B, most pages of a sequence): page n holds tokens n * page_size and on; 0 where there are no more."""
        most = max(map(len, self.pages.tables))
        rows = [table + [0] * (most - len(table)) for table in self.pages.tables]
        return torch.tensor(rows, dtype=torch.int64, device=self.device).view(self.sequences, most)

    def _make_room(self, counts: list[int]) -> None:
        self._reserve(self.lengths, counts)

    def _write(self, sequences: Tensor, places: Tensor, tokens: list[Tensor]) -> None:
        if not len(places):
            return  # there may be no page at all
        pages = self.table()[sequences, places // self.pages.size]
        for plane, part in zip(self.planes, tokens, strict=True):
            plane[pages, :, places % self.pages.size] = part

    def _read(self) -> list[Tensor]:
        table, longest = self.table(), max(self.lengths)
        # Gathered with the heads in front, so that the pages of a head lie one after the other and need no second copy.
        by_head = [plane.transpose(0, 1)[:, table].flatten(2, 3) for plane in self.planes]
        return [plane.transpose(0, 1)[:, :, :longest] for plane in by_head]

    def _keep(self, index: list[int]) -> None:
        self.pages.keep(index)
        self.held = [self.held[n] for n in index]

    def _cut(self, sequence: int, length: int) -> None:
        self.pages.cut(sequence, length)

    def _move(self, sequence: int, places: list[int], to: int) -> None:
        pages, end = self.pages, to + len(places)
        needed = pages.needed(end) - pages.needed(to) + (bool(places) and pages.shared(sequence, to))
        if needed > (most := len(pages.free) + pages.own(sequence, to)):
            raise ValueError(f"evict: got tokens to move to {needed} more pages, expected at most {most}, as are free")
        table = torch.tensor(pages.tables[sequence], dtype=torch.int64, device=self.device)
        at = torch.tensor(places, dtype=torch.int64, device=self.device)
        tokens = [plane[table[at // pages.size], :, at % pages.size] for plane in self.planes]
        pages.cut(sequence, to)
        self._reserve([to] * self.sequences, [len(places) * (n == sequence) for n in range(self.sequences)])
        whose = torch.full_like(at, sequence)
        self._write(whose, torch.arange(to, end, device=self.device), tokens)

    def _reserve(self, lengths: list[int], counts: list[int]) -> None:
        """Pages for so many more tokens, and copies of those that are shared and written to."""
        copied = self.pages.reserve(lengths, counts)
        if copied:
            to, source = (torch.tensor(list(pages), device=self.device) for pages in (copied.keys(), copied.values()))
            for plane in self.planes:
                plane[to] = plane[source]
