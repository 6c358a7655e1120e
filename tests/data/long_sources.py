"""Sources of long texts and documents that the test lists; `key` stands for them in the settings. None needs a network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.documents import DocumentData
from data.fetch import Download
from data.language_modeling import ByteData
from data.pairs import Counts
from data.sources.base import Context
from data.sources.long import Document, Text

LISTED: dict[str, Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Given:
    key: str
    licence = "none"
    domain = "test"
    size_of_test = 3, 30

    def downloads(self, context: Context) -> list[Download]:
        return []

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return {"from": "a test"}


@dataclass(frozen=True)
class GivenTexts(Given):
    def texts(self, context: Context, counts: Counts) -> dict[str, Iterable[Text]]:
        return dict(LISTED[self.key])


@dataclass(frozen=True)
class GivenDocuments(Given):
    symbols: int = 256
    classes: Sequence[str] = ("no", "yes")
    paired: bool = False

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        return dict(LISTED[self.key])


def text_source(key: str, **splits: Sequence[bytes]) -> GivenTexts:
    """Document i of a split is called `split i`, and so is its cluster."""
    LISTED[key] = {
        split: [Text(f"{split} {i}", f"{split} {i}", text) for i, text in enumerate(texts)]
        for split, texts in splits.items()
    }
    return GivenTexts(key)


def byte_data(source: Any, cache: Path, **changes: Any) -> ByteData:
    """Prepared; causal, sequences of 8 in twos, evaluation by 6 of which 2 are scored."""
    settings: dict[str, Any] = {"objective": "causal", "length": 8, "batch": 2, "eval_length": 6, "eval_step": 2}
    settings |= {"name": "small", "mask_rate": 0.15, "seed": 1, "cache": str(cache)}
    data = ByteData(source=source, **settings | changes)
    data.prepare()
    return data


def document_data(source: Any, cache: Path, **changes: Any) -> DocumentData:
    """Prepared; at most 6 ids, batches of 4 documents in pools of 3."""
    batch = {"unit": "documents", "size": 4}
    settings: dict[str, Any] = {"name": "small", "max_length": 6, "batch": batch, "pool_batches": 3, "seed": 1}
    settings |= {"cache": str(cache)}
    data = DocumentData(source=source, **settings | changes)
    data.prepare()
    return data
