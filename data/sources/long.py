"""What a source of long sequences offers: texts of bytes, or documents of symbols with labels.

`Context` is that of all sources; its languages are empty here, see `place`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from data.fetch import Download
from data.pairs import Counts, count
from data.sources.base import Context

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Text:
    """One document of a long text. `cluster` is the unit of resampling, most often the document itself."""

    id: str
    cluster: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A labelled document; `text` holds one symbol a byte, numbered from 0. `label` counts in the source's `classes`.

    `other`: the second document of a pair. `length`: what results are reported by; None: number of symbols, of the
    longer one of a pair.
    """

    id: str
    cluster: str
    text: bytes
    label: int
    other: bytes | None = None
    length: int | None = None


class LongSource(Protocol):
    """A frozen dataclass whose fields are its settings; plain values only, they become part of the data's identity."""

    @property
    def licence(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def size_of_test(self) -> tuple[int, int]:
        """About how many documents (pairs) test has, and symbols, of both sides: what time estimates go by."""
        ...

    def downloads(self, context: Context) -> list[Download]:
        """What reading would have to fetch now; nothing if it is in the cache already."""
        ...

    def identity(self, context: Context) -> dict[str, Any]:
        """What identifies the content that will be read, for instance a hash. Known beforehand where it is pinned."""
        ...

    def provenance(self, context: Context) -> dict[str, Any]:
        """What was read, to be recorded; called after reading."""
        ...


class Generated:
    """What sources that make their content up have in common: nothing is fetched, their settings say all."""

    licence = "generated, no licence needed"

    def downloads(self, context: Context) -> list[Download]:
        return []

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return {}


def numbered(train: int, dev: int, test: int, counts: Counts, make: Callable[[str], Made]) -> dict[str, Iterable[Made]]:
    """So many made-up documents a split, each from its name, `train 1` and so on."""
    sizes = {"train": train, "dev": dev, "test": test}
    for split, n in sizes.items():
        count(counts, split, "read", n)
    return {split: [make(f"{split} {i + 1}") for i in range(n)] for split, n in sizes.items()}


class TextSource(LongSource, Protocol):
    def texts(self, context: Context, counts: Counts) -> dict[str, Iterable[Text]]:
        """The documents of train, dev and test in their order, fetched if need be; `counts` takes what was left out."""
        ...


class DocumentSource(LongSource, Protocol):
    @property
    def symbols(self) -> int:
        """Size of the alphabet, at most 256."""
        ...

    @property
    def classes(self) -> Sequence[str]:
        """What the labels stand for."""
        ...

    @property
    def paired(self) -> bool:
        """Whether a label is of two documents."""
        ...

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        """The documents of train and test, and of dev where the source has one, fetched if need be; `counts` takes
        what was left out and why."""
        ...


class SequenceSource(DocumentSource, Protocol):
    """Documents whose symbols are predicted one after the other."""

    @property
    def longest(self) -> int:
        """Symbols of the longest document."""
        ...

    def scored(self, symbols: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which symbols of a document, (T,), are to be predicted; a function of the document alone."""
        ...


class Pictures:
    """What sources of pictures have in common, where these are generated: every pixel is predicted."""

    def scored(self, symbols: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.ones(len(symbols), dtype=bool)


def place(cache: Path, allow_newer: bool) -> Context:
    """Where raw data is kept, for a source without languages."""
    return Context(cache, "", "", allow_newer)


def by_bytes(documents: Sequence[Text], shares: Sequence[float] = (0.9, 0.05, 0.05)) -> dict[str, Iterable[Text]]:
    """train, dev and test in the order of the text, cut at borders of documents: a document belongs where its middle
    lies. Raises ValueError if a split stays empty."""
    total = sum(len(document.text) for document in documents)
    splits: dict[str, list[Text]] = {"train": [], "dev": [], "test": []}
    before = 0
    for document in documents:
        middle = (before + len(document.text) / 2) / total
        split = "train" if middle < shares[0] else "dev" if middle < shares[0] + shares[1] else "test"
        splits[split].append(document)
        before += len(document.text)
    if empty := [split for split, found in splits.items() if not found]:
        raise ValueError(f"got {len(documents)} documents of {total} bytes, none of which falls into {empty}")
    return dict(splits)
