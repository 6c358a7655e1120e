"""Data sets of the hub that are stored as Parquet (scripts no longer run there), for instance WMT14.

What is there can change. The hash of all rows is recorded in the cache when they are first read, and in every
prepared copy; rows that differ later are refused.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub

from data.fetch import NETWORK_SECONDS, OFFLINE, Download, FetchError, check_space, megabytes
from data.pairs import SPLITS, Counts, Pair, count, counted_overlap, in_share, note_lengths
from data.sources.base import Context
from data.text import is_blank


@dataclass(frozen=True)
class Hub:
    """Rows `{"translation": {language: text}}` of the data set `path`, in its configuration `config`.

    `splits`: our names to theirs. `share` of the training rows is kept, chosen by hash.
    """

    path: str
    config: str
    splits: Mapping[str, str]
    share: float
    licence: str
    domain: str

    def folder(self, context: Context) -> Path:
        return context.cache / "hub"

    def record(self, context: Context) -> Path:
        """Where the hash of each split lies that was read first."""
        return self.folder(context) / f"{self.path.replace('/', '-')}-{self.config}.json"

    def recorded(self, context: Context) -> dict[str, str]:
        record = self.record(context)
        return json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}

    def downloads(self, context: Context) -> list[Download]:
        if self.splits.keys() <= self.recorded(context).keys():
            return []
        return [Download(f"{self.path} ({self.config}) from the hub, the whole of it", None, None, None)]

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return dict(self.recorded(context))

    @contextmanager
    def asking(self, context: Context) -> Iterator[None]:
        """Whatever goes wrong at the hub, say what was wanted, where it would have gone and what else there is."""
        try:
            yield
        except Exception as error:
            raise FetchError(
                f"could not get {self.path} ({self.config}) from the hub into {self.folder(context)}: {error}. "
                f"{OFFLINE} data=bible_enfr needs no hub, only pip."
            ) from error

    def announce(self, context: Context) -> None:
        """Say how much will be downloaded, and find out whether it can be: `load_dataset` would try for half a minute.

        Raises FetchError if the hub can't be reached, or if the disk is too small for the download, its copy as Arrow
        files, and ours.
        """
        with self.asking(context):
            info = huggingface_hub.HfApi().dataset_info(self.path, files_metadata=True, timeout=NETWORK_SECONDS)
        files = [file for file in info.siblings or [] if file.rfilename.startswith(f"{self.config}/")]
        size = sum(file.size or 0 for file in files)
        folder = self.folder(context)
        folder.mkdir(parents=True, exist_ok=True)
        check_space(folder, 3 * size, f"{self.path} ({self.config})")
        print(f"Downloading {self.path} ({self.config}), {megabytes(size)}, to {folder}", flush=True)

    def load(self, split: str, context: Context) -> datasets.Dataset:
        with self.asking(context):
            folder = str(self.folder(context))
            data = datasets.load_dataset(self.path, self.config, split=self.splits[split], cache_dir=folder)
        assert isinstance(data, datasets.Dataset)
        return data

    def read(self, split: str, context: Context, counts: Counts) -> Iterator[Pair]:
        digest = hashlib.sha256()
        for number, row in enumerate(self.load(split, context)):
            assert isinstance(row, dict)
            try:
                source, target = (
                    row["translation"][language] for language in (context.source_lang, context.target_lang)
                )
            except KeyError as error:
                raise ValueError(f"{self.path}: got a row {row}, expected translation.{error.args[0]}") from None
            digest.update(json.dumps(row["translation"], sort_keys=True).encode())
            count(counts, split, "read")
            name = f"{split} {number + 1}"
            if split == "train" and not in_share(name, self.share):
                count(counts, split, "outside source.share")
            elif split == "train" and (is_blank(source) or is_blank(target)):
                count(counts, split, "with a blank side")
            else:
                yield Pair(str(number + 1), name, source, target)
        self.check(split, digest.hexdigest(), context)

    def check(self, split: str, sha256: str, context: Context) -> None:
        """Record the hash of a split, or compare it with the one recorded. Raises FetchError if it differs."""
        record = self.record(context)
        known = self.recorded(context)
        if known.get(split, sha256) != sha256 and not context.allow_newer:
            raise FetchError(
                f"{self.path} ({self.config}), {self.splits[split]}: got sha256 {sha256}, expected {known[split]} "
                f"as first read ({record}). data.allow_newer=true accepts the new content."
            )
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(known | {split: sha256}, indent=2) + "\n", encoding="utf-8")

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        if self.downloads(context):
            self.announce(context)
        names = [split for split in SPLITS if split in self.splits and split != "train"]
        held_out = {split: list(self.read(split, context, counts)) for split in names}
        note_lengths(held_out, counts)
        return {"train": counted_overlap(self.read("train", context, counts), held_out, counts), **held_out}
