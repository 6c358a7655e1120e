"""What a source of sentence pairs offers to the code that prepares and stores them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from data.fetch import Download
from data.pairs import Counts, Pair


@dataclass(frozen=True)
class Context:
    """Where raw data is kept, which way to translate, and whether another release than the pinned one will do."""

    cache: Path
    source_lang: str
    target_lang: str
    allow_newer: bool = False


class Source(Protocol):
    """A frozen dataclass whose fields are its settings; plain values only, they become part of the data's identity."""

    @property
    def licence(self) -> str: ...
    @property
    def domain(self) -> str: ...
    def downloads(self, context: Context) -> list[Download]:
        """What `pairs` would have to fetch now; nothing if it is in the cache already."""
        ...

    def identity(self, context: Context) -> dict[str, Any]:
        """What identifies the content that will be read, for instance a hash. Known beforehand where it is pinned."""
        ...

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        """The pairs of each split (train, dev, test; dev_long and test_long where there are any), fetched if need be.

        `counts` takes what was read and left out and why; "kept" is counted by the caller.
        """
        ...

    def provenance(self, context: Context) -> dict[str, Any]:
        """What the pairs were made from, to be recorded; called after `pairs`."""
        ...
