"""Prepare a source of long sequences once: one row a document in Arrow files with a manifest, then only loaded."""

import hashlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import datasets

from data.arrow import fields_of, load_splits, named_folder, store
from data.code import code_hash
from data.fetch import new_folder, write_manifest
from data.pairs import Counts, count, describe, stable_hash
from data.sources.base import Context
from data.sources.long import Document, DocumentSource, LongSource, Text, TextSource

SPLITS = ("train", "dev", "test")
DEV_SHARE = 0.1
"""Of the training documents, where a source has no dev set of its own."""
TEXT, SYMBOLS, NUMBER = datasets.Value("string"), datasets.Value("large_binary"), datasets.Value("int64")
TEXTS = datasets.Features({"id": TEXT, "cluster": TEXT, "text": SYMBOLS})
DOCUMENTS = datasets.Features({**TEXTS, "other": SYMBOLS, "label": NUMBER, "length": NUMBER})

RowT = TypeVar("RowT", Text, Document)
Row = dict[str, Any]


def settings_of(source: LongSource, context: Context) -> dict[str, Any]:
    """All that the prepared rows depend on, the code that makes them included, as plain values."""
    return fields_of(source) | {
        "identity": source.identity(context),
        "code": code_hash([__name__, type(source).__module__]),
    }


def stored_folder(name: str, source: LongSource, context: Context) -> Path:
    return named_folder(context.cache, name, settings_of(source, context))


def prepare_texts(name: str, source: TextSource, context: Context) -> Path:
    """The folder of the prepared text; built if it is not there yet. `xz_bits_per_byte` of each split is in the
    manifest: what a strong general compressor makes of it (lzma, preset 9, extreme)."""

    def read(counts: Counts) -> dict[str, Iterator[Row]]:
        return {split: _text_rows(rows, split, counts) for split, rows in source.texts(context, counts).items()}

    return _prepare(name, source, context, TEXTS, read)


def prepare_documents(name: str, source: DocumentSource, context: Context) -> Path:
    """The folder of the prepared documents; built if it is not there yet. Where the source has no dev set, a tenth of
    train's clusters become one."""

    def read(counts: Counts) -> dict[str, Iterator[Row]]:
        splits = source.documents(context, counts)
        if "dev" not in splits:
            splits = splits | carved(list(splits["train"]), counts)
        return {split: _document_rows(rows, source, split, counts) for split, rows in splits.items()}

    return _prepare(name, source, context, DOCUMENTS, read)


def carved(train: Iterable[RowT], counts: Counts) -> dict[str, Iterable[RowT]]:
    """train and dev out of train, by whole clusters, chosen by hash."""
    splits: dict[str, list[RowT]] = {"train": [], "dev": []}
    for row in train:
        inside = stable_hash(f"dev/{row.cluster}") < DEV_SHARE * 2**64
        splits["dev" if inside else "train"].append(row)
    count(counts, "train", "set aside for dev", len(splits["dev"]))
    return dict(splits)


def _text_rows(texts: Iterable[Text], split: str, counts: Counts) -> Iterator[Row]:
    for text in texts:
        count(counts, split, "bytes", len(text.text))
        yield {"id": text.id, "cluster": text.cluster, "text": text.text}


def _document_rows(documents: Iterable[Document], source: DocumentSource, split: str, counts: Counts) -> Iterator[Row]:
    """Raises ValueError for a document that is not as its source says."""
    for document in documents:
        sides = [document.text] if document.other is None else [document.text, document.other]
        top = max(max(side, default=0) for side in sides)
        if not 0 <= document.label < len(source.classes) or top >= source.symbols or source.paired != (len(sides) == 2):
            raise ValueError(
                f"{split} {document.id}: got label {document.label}, symbols up to {top} and {len(sides)} documents, "
                f"expected a label below {len(source.classes)}, symbols below {source.symbols} and {1 + source.paired}"
            )
        count(counts, split, "empty", int(not document.text))
        length = max(map(len, sides)) if document.length is None else document.length
        row = {"id": document.id, "cluster": document.cluster, "text": document.text, "other": document.other}
        yield row | {"label": document.label, "length": length}


def _prepare(
    name: str,
    source: LongSource,
    context: Context,
    features: datasets.Features,
    read: Callable[[Counts], Mapping[str, Iterator[Row]]],
) -> Path:
    """A second process waits for the first. The content, and `checksum`, depend on the settings alone."""
    folder = stored_folder(name, source, context)
    with new_folder(folder) as content:
        if content is not None:
            counts: Counts = {}
            digest = hashlib.sha256()
            datasets.disable_progress_bars()
            rows = read(counts)
            bound = {}
            for split in SPLITS:
                seen = Seen(split, counts, digest, xz=features is TEXTS)
                kept = seen(rows[split])
                first = next(kept, None)
                if first is None:
                    raise ValueError(f"got no document for {split}, expected some; counts: {describe(counts)}")
                store(chain([first], kept), content / split, content.parent / "build", features)
                bound[split] = seen.xz_bits_per_byte
            write_manifest(
                content,
                {"name": name, "settings": settings_of(source, context), "checksum": digest.hexdigest()}
                | {"provenance": source.provenance(context), "counts": counts}
                | {"licence": source.licence, "domain": source.domain}
                | ({"xz_bits_per_byte": bound} if features is TEXTS else {})
                | {"versions": {package: version(package) for package in ("datasets", "pyarrow")}},
            )
    return folder


class Seen:
    """Rows of a split on their way: counted, hashed, and compressed if `xz`."""

    def __init__(self, split: str, counts: Counts, digest: "hashlib._Hash", xz: bool) -> None:
        self.split, self.counts, self.digest = split, counts, digest
        self.compressor = lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME) if xz else None
        self.bytes = self.compressed = 0

    def __call__(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            plain_row = {key: value.hex() if isinstance(value, bytes) else value for key, value in row.items()}
            self.digest.update(json.dumps([self.split, *plain_row.values()]).encode())
            count(self.counts, self.split, "kept")
            if self.compressor:
                self.bytes += len(row["text"])
                self.compressed += len(self.compressor.compress(row["text"]))
            yield row
        if self.compressor:
            self.compressed += len(self.compressor.flush())

    @property
    def xz_bits_per_byte(self) -> float:
        return 8 * self.compressed / max(1, self.bytes)


def load(folder: Path) -> dict[str, datasets.Dataset]:
    """The splits of a prepared folder, memory-mapped. Raises ValueError where rows are missing."""
    return load_splits(folder, SPLITS)
