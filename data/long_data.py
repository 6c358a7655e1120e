"""What data modules of long sequences have in common: a source, the folder it is prepared in, what is said of it."""

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from data.batch import RowsT
from data.fetch import Download, read_manifest
from data.prepare import cache_folder
from data.sources.long import LongSource, place
from data.store import SPLITS, stored_folder
from data.stream import StreamData


class LongData(StreamData[RowsT]):
    """`cache` is the folder of all data; None: $ATTN_DATA, or the user's cache folder."""

    def __init__(self, name: str, source: LongSource, seed: int, allow_newer: bool, cache: str | None) -> None:
        super().__init__()
        self.name, self.seed = name, seed
        self.source: LongSource = source
        self.context = place(cache_folder(cache), allow_newer)

    def to_fetch(self) -> list[Download]:
        return self.source.downloads(self.context)

    @property
    def folder(self) -> Path:
        return stored_folder(self.name, self.source, self.context)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Of the prepared folder."""
        return read_manifest(self.folder)

    @property
    def checksum(self) -> str:
        return self.manifest["checksum"]

    @property
    def splits(self) -> list[str]:
        return list(SPLITS)

    @abstractmethod
    def item_of(self, split: str, batch: RowsT) -> Tensor:
        """Of an evaluated batch: the place in `items` of each of its targets, (N,) int64, row by row."""
