"""LibreOffice's help pages, whose paragraphs carry the same id in every language; where apt is."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.apt import apt_get, fetch_with_apt
from data.fetch import Download, FetchError
from data.pairs import Counts, Pair, count, english_first, plausible, split_of, splits_without_quotes
from data.sources.base import Context
from data.text import read_lines
from data.tokenize import unescape_once

PARAGRAPH = re.compile(r'<(p|h[1-6]) id="((?:par|hd|tit)_?\w+)"([^>]*)>(.*?)</\1>', re.DOTALL)
PACKAGES = {"en": "en-us", "pt": "pt", "de": "de", "fr": "fr", "es": "es", "it": "it", "ru": "ru"}

DOWNLOAD = Download("LibreOffice's help in two languages with apt", None, 250_000_000, 12_000_000)

Paragraphs = dict[tuple[str, str], str]
"""(page, id of the paragraph) -> text."""


def read_page(text: str) -> Iterator[tuple[str, str]]:
    """Id and text of each paragraph that is not code, without its tags, escapes undone once."""
    for match in PARAGRAPH.finditer(text):
        _, name, attributes, inner = match.groups()
        if "code" not in attributes:
            plain = unescape_once(re.sub(r"<[^>]+>", "", re.sub(r"<br\s*/?>", " ", inner)))
            yield name, " ".join(plain.split())


def align(english: Paragraphs, other: Paragraphs, counts: Counts) -> Iterator[tuple[str, Pair]]:
    """Pairs with their split, English first. A page is a document."""
    for (page, name), a in sorted(english.items()):
        split = split_of(f"libreoffice/{page}")
        b = other.get((page, name), "")
        count(counts, split, "read")
        if not a or not b:
            count(counts, split, "missing in one language")
        elif a == b:
            count(counts, split, "not translated")
        elif len(a.split()) < 3 or not re.search("[A-Za-z]{3}", a) or not plausible(a, b):
            count(counts, split, "implausible lengths or no words")
        else:
            yield split, Pair(f"{page} {name}", page, a, b)


@dataclass(frozen=True)
class LibreOffice:
    """English and one other language."""

    licence = "MPL-2.0"
    domain = "help pages of an office suite"

    def folder(self, context: Context) -> Path:
        return context.cache / f"libreoffice-help-{english_first(context)}"

    def downloads(self, context: Context) -> list[Download]:
        return [] if self.folder(context).exists() else [DOWNLOAD]

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def fetch(self, context: Context) -> dict[str, Any]:
        other = english_first(context)
        if other not in PACKAGES:
            raise ValueError(f"libreoffice: got language {other!r}, expected one of {', '.join(PACKAGES)}")

        def fill(root: Path, folder: Path) -> None:
            apt_get(root, "none", "update")
            for language in ("en", other):
                package = f"libreoffice-help-{PACKAGES[language]}"
                apt_get(root, "none", "download", package)
                (archive,) = root.glob(f"{package}_*.deb")
                tree = root / language
                subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
                pages = sorted(tree.glob("usr/share/libreoffice/help/*/text/**/*.html"))
                if not pages:
                    raise FetchError(f"{archive.name}: no help pages in it; expected .../help/<language>/text/*.html")
                with open(folder / f"{language}.tsv", "w", encoding="utf-8", newline="\n") as file:
                    for page in pages:
                        name = str(page).partition("/text/")[2]
                        paragraphs = read_page(page.read_text(encoding="utf-8"))
                        file.writelines(f"{name}\t{paragraph}\t{text}\n" for paragraph, text in paragraphs)

        return fetch_with_apt(self.folder(context), DOWNLOAD, fill)

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        self.fetch(context)
        texts: list[Paragraphs] = []
        for language in ("en", english_first(context)):
            rows = (line.split("\t") for line in read_lines(self.folder(context) / f"{language}.tsv"))
            texts.append({(page, name): text for page, name, text in rows})
        return splits_without_quotes(align(texts[0], texts[1], counts), context, counts)
