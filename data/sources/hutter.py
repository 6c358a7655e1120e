"""enwik8 and text8: the first 100,000,000 bytes of a dump of the English Wikipedia of 2006, raw, and cleaned to 27 letters.

Split as everywhere: the first 90 million bytes, five million, and the last five million.
"""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data.fetch import FetchError
from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.long import Text
from data.sources.raw import Raw
from data.sources.wikipedia import TITLE

SIZES = {"train": 90_000_000, "dev": 5_000_000, "test": 5_000_000}
BLOCK = 100_000
"""Bytes that are resampled together where there are no pages."""
PAGE_START = b"  <page>\n"


def read_member(file: Path, member: str) -> bytes:
    """Raises FetchError where the archive or its size is not as it should be."""
    try:
        with zipfile.ZipFile(file) as archive:
            content = archive.read(member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{file}: cannot read {member} from it ({error})") from None
    if len(content) != sum(SIZES.values()):
        raise FetchError(f"{file}: got {len(content)} bytes of {member}, expected {sum(SIZES.values())}")
    return content


def blocks(split: str, content: bytes) -> Iterator[Text]:
    """Pieces of BLOCK bytes."""
    for start in range(0, len(content), BLOCK):
        name = f"{split} {start // BLOCK + 1}"
        yield Text(name, name, content[start : start + BLOCK])


def pages(split: str, content: bytes) -> Iterator[Text]:
    """The pages of a split and what stands before the first: of the dump's head, or of a page that began before."""
    start, number = 0, 0
    while start < len(content):
        end = content.find(PAGE_START, start + 1)
        end = len(content) if end < 0 else end
        title = TITLE.search(content, start, min(end, start + 1000))
        name = f"{split} {number} {title[1].decode('utf-8', 'replace') if title else '(before)'}"
        yield Text(name, name, content[start:end])
        start, number = end, number + 1


@dataclass(frozen=True)
class Text8(Raw):
    key = "text8"
    url = "http://mattmahoney.net/dc/text8.zip"
    download_bytes = 31_344_016
    unpacked_bytes = 100_000_000
    generated, packaged = "toy_bytes", "wikipedia_bytes"
    licence = "CC BY-SA, the authors of Wikipedia"
    domain = "English Wikipedia of 2006, 26 letters and spaces alone"
    size_of_test = 50, SIZES["test"]

    def check(self, file: Path) -> None:
        read_member(file, self.key)

    def cut(self, split: str, content: bytes) -> Iterable[Text]:
        return blocks(split, content)

    def texts(self, context: Context, counts: Counts) -> dict[str, Iterable[Text]]:
        self.fetch(context)
        content = read_member(self.file(context), self.key)
        splits: dict[str, Iterable[Text]] = {}
        start = 0
        for split, size in SIZES.items():
            found = list(self.cut(split, content[start : start + size]))
            count(counts, split, "read", len(found))
            splits[split], start = found, start + size
        return splits


@dataclass(frozen=True)
class Enwik8(Text8):
    key = "enwik8"
    url = "http://mattmahoney.net/dc/enwik8.zip"
    download_bytes = 36_445_475
    domain = "English Wikipedia of 2006, raw XML"
    size_of_test = 500, SIZES["test"]

    def cut(self, split: str, content: bytes) -> Iterable[Text]:
        return pages(split, content)
