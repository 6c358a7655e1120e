"""Do two chapters of the Bible, in different English translations, render the same one? Long pairs of bytes.

The shape of the retrieval task of the Long Range Arena (Tay et al. 2020, section 2.2.3): each document is read by itself,
and what was made of both is compared. Text and splits are those of `data.sources.bible`, by whole chapter: no chapter of
test is in train, in any translation.

Chapters are put together in twos of about equal length, of the same book where it has two left, and each stands for the
other: every chapter is in as many negatives as positives. The longer side of a pair is cut to the length of the shorter,
or lengths alone would tell 7 of 10 pairs of test.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from data.fetch import Download
from data.pairs import Counts, count, split_of, stable_hash
from data.sources.base import Context
from data.sources.bible import Bible
from data.sources.hints import hinting
from data.sources.long import Document
from data.sources.verses import TRANSLATIONS, Verses, chapter_of, read_verses

Chapters = dict[str, str]
"""Chapter, such as `GEN 1`, to its text."""


def chapters_of(verses: Verses) -> Chapters:
    """The chapters of a translation in order: verses with a space between, without their numbers."""
    found: dict[str, list[str]] = {}
    for ref in sorted(verses):
        found.setdefault(chapter_of(ref), []).append(verses[ref])
    return {chapter: " ".join(texts) for chapter, texts in found.items()}


def partners(lengths: Mapping[str, int], counts: Counts, split: str) -> dict[str, str]:
    """Each chapter's partner, of about its length and if possible of its book; who is whose partner is the other's too.

    With an odd number of chapters the last one left takes the one nearest to it in length.
    """
    books: dict[str, list[str]] = {}
    for chapter in sorted(lengths, key=lambda chapter: (lengths[chapter], chapter)):
        books.setdefault(chapter.split()[0], []).append(chapter)
    twos: dict[str, str] = {}
    left: list[str] = []
    for chapters in books.values():
        left += _put_together(chapters, twos)
    count(counts, split, "chapters without a partner in their book", len(left))
    last = _put_together(sorted(left, key=lambda chapter: (lengths[chapter], chapter)), twos)
    for chapter in last:
        others = [other for other in lengths if other != chapter]
        twos[chapter] = min(others, key=lambda other: (abs(lengths[other] - lengths[chapter]), other))
    return twos


def _put_together(chapters: Sequence[str], twos: dict[str, str]) -> list[str]:
    """Neighbours become partners; returns the one that is left over, if there is."""
    for a, b in zip(chapters[::2], chapters[1::2], strict=False):
        twos[a], twos[b] = b, a
    return list(chapters[len(chapters) // 2 * 2 :])


@dataclass(frozen=True)
class Matching:
    """`english`: two or more translations, by their names in `verses.py`; every two of them make pairs.

    Label 1: the same chapter. A pair is reported by the length of its documents in bytes; its cluster is the chapter that
    it is made for.
    """

    english: Sequence[str]
    symbols = 256
    classes = ("another chapter", "the same chapter")
    paired = True

    def __post_init__(self) -> None:
        known = [name for name, entry in TRANSLATIONS.items() if entry.language == "en"]
        if len(set(self.english)) < 2 or len(set(self.english)) < len(self.english) or set(self.english) - set(known):
            raise ValueError(
                f"source.english: got {list(self.english)}, expected two or more different ones of {known}"
            )

    @property
    def bible(self) -> Bible:
        """Where the translations come from, with all free ones, whatever is beside them."""
        return Bible(self.english, ["segond"])

    @property
    def licence(self) -> str:
        titles = "; ".join(TRANSLATIONS[name].title for name in self.english)
        return f"{self.bible.member.licence}: {titles}"

    @property
    def domain(self) -> str:
        return self.bible.domain

    @property
    def size_of_test(self) -> tuple[int, int]:
        n = len(self.english)
        return 140 * n * (n - 1), 2 * 140 * n * (n - 1) * 3_400

    def fetch(self, context: Context) -> dict[str, Any]:
        with hinting("toy_pairs"):
            return self.bible.fetch(context)

    def downloads(self, context: Context) -> list[Download]:
        return self.bible.downloads(context)

    def identity(self, context: Context) -> dict[str, Any]:
        return {"sha256": self.fetch(context)["sha256"] if context.allow_newer else self.bible.member.sha256}

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        self.fetch(context)
        folder = self.bible.folder(context)
        versions = {name: chapters_of(read_verses(folder / f"{name}.tsv", name)) for name in self.english}
        shared = [chapter for chapter in versions[self.english[0]] if all(chapter in v for v in versions.values())]
        splits: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
        for chapter in shared:
            splits[split_of(chapter)].append(chapter)
        return {split: pairs_of(chapters, versions, split, counts) for split, chapters in splits.items()}


def pairs_of(chapters: Sequence[str], versions: Mapping[str, Chapters], split: str, counts: Counts) -> list[Document]:
    """Each chapter in every two translations: once beside itself, and once beside its partner."""
    lengths = {chapter: sum(len(version[chapter]) for version in versions.values()) for chapter in chapters}
    partner = partners(lengths, counts, split)
    pairs = []
    for chapter in chapters:
        cluster = min(chapter, partner[chapter])  # two chapters meet in each other's pairs
        for a, b in combinations(versions, 2):
            for label, other in ((1, chapter), (0, partner[chapter])):
                name = f"{chapter} {a} {other} {b}"
                sides = versions[a][chapter].encode(), versions[b][other].encode()
                length = min(map(len, sides))
                count(counts, split, "bytes cut", sum(map(len, sides)) - 2 * length)
                sides = sides[0][:length], sides[1][:length]
                if stable_hash(f"matching/{name}") % 2:
                    sides = sides[1], sides[0]
                pairs.append(Document(name, cluster, sides[0], label, sides[1]))
    count(counts, split, "read", len(pairs))
    return pairs
