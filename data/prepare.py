"""Prepare a source once: pairs are tokenised and stored as Arrow files with a manifest, then only loaded."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from tqdm import tqdm

from data.arrow import fields_of, load_splits, named_folder, store
from data.code import code_hash
from data.fetch import new_folder, write_manifest
from data.gold import Links, links_of, write_links
from data.pairs import SPLITS, Aligned, Counts, Example, Pair, count, describe
from data.sources.base import Context, Source
from data.tokenize import tokenize

COLUMNS = ("id", "cluster", "source", "target", "source_tokens", "target_tokens")
TEXT = datasets.Value("string")
FEATURES = datasets.Features(dict.fromkeys(COLUMNS[:4], TEXT) | dict.fromkeys(COLUMNS[4:], datasets.List(TEXT)))


def cache_folder(cache: str | Path | None = None) -> Path:
    """`cache`, or $ATTN_DATA, or `attention-reproductions` in the user's cache folder."""
    if chosen := cache or os.environ.get("ATTN_DATA"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "attention-reproductions"


def settings_of(source: Source, context: Context) -> dict[str, Any]:
    """All that the prepared rows depend on, the code that makes them included, as plain values."""
    return fields_of(source) | {
        "identity": source.identity(context),
        "languages": [context.source_lang, context.target_lang],
        "code": code_hash([__name__, type(source).__module__]),
        "sacremoses": version("sacremoses"),
    }


def prepared_folder(name: str, source: Source, context: Context) -> Path:
    return named_folder(context.cache, name, settings_of(source, context))


def prepare(name: str, source: Source, context: Context) -> Path:
    """The folder of the prepared data; built if it is not there yet.

    A second process waits for the first. The content, and `checksum` in the manifest, depend on the settings alone.
    """
    folder = prepared_folder(name, source, context)
    with new_folder(folder) as content:
        if content is not None:
            counts: Counts = {}
            digest = hashlib.sha256()
            datasets.disable_progress_bars()
            pairs = source.pairs(context, counts)
            links: Links = {}
            for split in SPLITS:
                if split in pairs or not split.endswith("_long"):
                    rows = _rows(pairs.get(split, ()), split, context, counts, digest, links)
                    first = next(rows, None)
                    if first is None:
                        raise ValueError(f"{name}: got no pair for {split}, expected some; counts: {describe(counts)}")
                    store(chain([first], rows), content / split, content.parent / "build", FEATURES)
            if links:
                digest.update(write_links(content, links, counts))
            write_manifest(
                content,
                {"name": name, "settings": settings_of(source, context), "checksum": digest.hexdigest()}
                | {"provenance": source.provenance(context), "counts": counts}
                | {"licence": source.licence, "domain": source.domain}
                | {"versions": {package: version(package) for package in ("datasets", "pyarrow", "sacremoses")}},
            )
    return folder


def _rows(
    pairs: Iterable[Pair], split: str, context: Context, counts: Counts, digest: "hashlib._Hash", links: Links
) -> Iterator[dict[str, Any]]:
    """Tokenise what comes without tokens; texts that repeat (one translation beside several) are tokenised once.

    Links made by hand go to `links`, in the order of the rows.
    """
    tokens = lru_cache(maxsize=1 << 18)(tokenize)
    for pair in tqdm(pairs, desc=f"Tokenising {split}", unit=" pairs", unit_scale=True, disable=None):
        row = {column: getattr(pair, column) for column in COLUMNS[:4]}
        if isinstance(pair, Example):
            row |= {"source_tokens": pair.source_tokens, "target_tokens": pair.target_tokens}
        else:
            row["source_tokens"] = tokens(pair.source, context.source_lang)
            row["target_tokens"] = tokens(pair.target, context.target_lang)
        if isinstance(pair, Aligned):
            links.setdefault(split, []).append(links_of(pair))
        digest.update(json.dumps([split, *(row[column] for column in COLUMNS)]).encode())
        count(counts, split, "kept")
        yield row


def load(folder: Path) -> dict[str, datasets.Dataset]:
    """The splits of a prepared folder, memory-mapped."""
    return load_splits(folder, [split for split in SPLITS if (folder / split).is_dir()])
