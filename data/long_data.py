"""What data modules of long sequences have in common: a source, the folder it is prepared in, what is said of it."""

from functools import cached_property
from pathlib import Path
from typing import Any

from data.batch import RowsT
from data.fetch import read_manifest
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

    def plan(self) -> str:
        downloads = self.source.downloads(self.context)
        # Which folder it is depends on the content if any release will do.
        unknown = downloads and self.context.allow_newer
        if not unknown and self.prepared:
            return f"{self.name}: prepared in {self.folder}"
        what = "; ".join(map(str, downloads)) or "nothing to download"
        return f"{self.name}: {what}; to be prepared in {self.context.cache}"

    @property
    def downloads(self) -> bool:
        return bool(self.source.downloads(self.context))

    @property
    def folder(self) -> Path:
        return stored_folder(self.name, self.source, self.context)

    @property
    def prepared(self) -> bool:
        return self.folder.exists()

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
