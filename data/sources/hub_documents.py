"""Labelled documents of the hub that are stored as Parquet, for instance IMDB: read as `data.sources.hub` reads pairs."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data.fetch import Download
from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.hints import hinting
from data.sources.hub import Hub
from data.sources.long import Document


@dataclass(frozen=True)
class HubDocuments:
    """Rows with a `text` and a number `label` of the data set `path`, in its configuration `config`; the bytes of the text.

    `splits`: our names to theirs. `classes`: what the labels stand for. `test_documents`, `test_bytes`: about the size of
    test. Every document is a cluster of its own.
    """

    path: str
    config: str
    splits: Mapping[str, str]
    classes: Sequence[str]
    licence: str
    domain: str
    test_documents: int
    test_bytes: int
    text: str = "text"
    label: str = "label"
    symbols = 256
    paired = False

    @property
    def hub(self) -> Hub:
        return Hub(self.path, self.config, self.splits, 1.0, self.licence, self.domain)

    @property
    def size_of_test(self) -> tuple[int, int]:
        return self.test_documents, self.test_bytes

    def downloads(self, context: Context) -> list[Download]:
        return self.hub.downloads(context)

    def identity(self, context: Context) -> dict[str, Any]:
        return self.hub.identity(context)

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.hub.provenance(context)

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        with hinting("toy_documents", "newsgroups"):
            if self.hub.downloads(context):
                self.hub.announce(context)
            return {split: list(self.read(split, context, counts)) for split in self.splits}

    def read(self, split: str, context: Context, counts: Counts) -> Iterator[Document]:
        """Raises ValueError for a row of another form."""
        digest = hashlib.sha256()
        for number, row in enumerate(self.hub.load(split, context), start=1):
            assert isinstance(row, dict)
            if not all(isinstance(row.get(key), kind) for key, kind in ((self.text, str), (self.label, int))):
                raise ValueError(f"{self.path}: got a row {row}, expected text {self.text} and number {self.label}")
            digest.update(json.dumps([row[self.text], row[self.label]]).encode())
            count(counts, split, "read")
            yield Document(f"{split} {number}", f"{split} {number}", row[self.text].encode(), row[self.label])
        self.hub.check(split, digest.hexdigest(), context)
