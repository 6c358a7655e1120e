"""Text files of your own: two parallel files a split, or one file with a tab between source and target."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from data.fetch import Download
from data.pairs import SPLITS, Counts, Pair, count, counted_overlap, note_lengths
from data.sources.base import Context
from data.text import is_blank, read_lines
from data.tokenize import unescape_once


def read_parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line i of one file with line i of the other. Raises ValueError if one is longer, naming both with lengths."""
    for number, (a, b) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if a is None or b is None:
            lines = {path: sum(1 for _ in read_lines(path)) for path in (source, target)}
            raise ValueError(
                f"{source} has {lines[source]} lines and {target} has {lines[target]}, expected as many: line {number} "
                "has no partner. Only LF and CRLF end a line here."
            )
        yield a, b


def read_tsv(path: Path) -> Iterator[tuple[str, str]]:
    """Source, tab, target on each line; a line without anything is a blank pair. Raises ValueError naming the line."""
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if is_blank(line):
            fields = ["", ""]
        if len(fields) != 2:
            raise ValueError(
                f"{path}, line {number}: got {len(fields) - 1} tabs, expected one, between source and target"
            )
        yield fields[0], fields[1]


@lru_cache(maxsize=64)
def file_hash(path: Path, size: int, changed: int) -> str:
    """sha256 of a file; its size and time of change only tell whether a hash that is known still holds."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Files:
    """`splits`: for train, dev, test (and dev_long, test_long) either [source file, target file] or one TSV file.

    Raw text, in UTF-8; `escaped` for text in which `&apos;`, `&#91;` and the like stand for the characters. Training
    pairs with a blank side are left out and counted. Dev and test are taken as they are, blank lines too, so that the
    outputs line up with the files; the id of a pair is its line number.
    """

    splits: Mapping[str, str | Sequence[str]]
    escaped: bool = False
    licence = "yours"
    domain = "yours"

    def __post_init__(self) -> None:
        unknown, missing = set(self.splits) - set(SPLITS), {"train", "dev", "test"} - set(self.splits)
        if unknown or missing:
            raise ValueError(
                f"source.splits: got {list(self.splits)}, expected train, dev, test and maybe {SPLITS[2::2]}"
            )

    def paths(self, split: str) -> list[Path]:
        given = self.splits[split]
        paths = [Path(given)] if isinstance(given, str) else [Path(path) for path in given]
        if len(paths) not in (1, 2):
            raise ValueError(f"source.splits.{split}: got {len(paths)} files, expected one TSV file or two text files")
        for path in paths:
            if not path.is_file():
                raise ValueError(f"source.splits.{split}: there is no file {path.absolute()}")
        return paths

    def downloads(self, context: Context) -> list[Download]:
        return []

    def identity(self, context: Context) -> dict[str, Any]:
        return {
            split: [file_hash(path, path.stat().st_size, path.stat().st_mtime_ns) for path in self.paths(split)]
            for split in self.splits
        }

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.identity(context)

    def read(self, split: str, counts: Counts) -> Iterator[Pair]:
        paths = self.paths(split)
        lines = read_tsv(paths[0]) if len(paths) == 1 else read_parallel(*paths)
        for number, sides in enumerate(lines, start=1):
            source, target = map(unescape_once, sides) if self.escaped else sides
            count(counts, split, "read")
            if split == "train" and (is_blank(source) or is_blank(target)):
                count(counts, split, "with a blank side")
            else:
                yield Pair(str(number), f"{split} {number}", source, target)

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        held_out = {
            split: list(self.read(split, counts)) for split in SPLITS if split in self.splits and split != "train"
        }
        note_lengths(held_out, counts)
        return {"train": counted_overlap(self.read("train", counts), held_out, counts), **held_out}
