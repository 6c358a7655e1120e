"""Pages of the English Wikipedia as raw XML, in enwik8's own format, out of a package that pip fetches anywhere.

The package `gensim` carries the first 206 pages of a dump of 2016, 6.1 MB. A page is a document.
"""

import bz2
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from data.fetch import FetchError
from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.long import Text, by_bytes
from data.sources.packaged import Packaged

PAGE = re.compile(rb" *<page>\n.*? *</page>\n", re.DOTALL)
TITLE = re.compile(rb"<title>(.*?)</title>")


def read_pages(xml: bytes) -> list[Text]:
    """The pages of a dump in their order, with their tags; what stands before the first and after the last is left out.

    Raises ValueError where there is none, or one without a title.
    """
    pages = []
    for number, match in enumerate(PAGE.finditer(xml), start=1):
        title = TITLE.search(match[0])
        if not title:
            raise ValueError(f"got page {number} without a title, expected <title>...</title> in each")
        name = title[1].decode("utf-8")
        pages.append(Text(name, name, match[0]))
    if not pages:
        raise ValueError("got no <page>...</page>, expected a dump of MediaWiki")
    return pages


@dataclass(frozen=True)
class Wikipedia(Packaged):
    """90, 5 and 5 per cent of the bytes, in the order of the dump, cut at borders of pages."""

    members = ("wikipedia",)
    generated = "toy_bytes"
    prepared_bytes = 6_100_000
    size_of_test = 6, 278_661

    def check(self, folder: Path) -> None:
        read_pages(self.dump(folder))

    def dump(self, folder: Path) -> bytes:
        """Raises FetchError where the file is no bzip2 archive."""
        try:
            return bz2.decompress((folder / self.members[0]).read_bytes())
        except (OSError, ValueError) as error:
            raise FetchError(f"{folder / self.members[0]}: got {error}, expected a bzip2 archive") from None

    def texts(self, context: Context, counts: Counts) -> dict[str, Iterable[Text]]:
        self.fetch(context)
        splits = {split: list(pages) for split, pages in by_bytes(read_pages(self.dump(self.folder(context)))).items()}
        for split, pages in splits.items():
            count(counts, split, "read", len(pages))
        return dict(splits)
