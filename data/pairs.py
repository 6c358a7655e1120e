"""Sentence pairs and the rules that sources share: split by document, plausible lengths, no test text in train."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SPLITS = ("train", "dev", "dev_long", "test", "test_long")

Counts = dict[str, dict[str, int]]
"""split -> what happened -> how many pairs; the keys "read" and "kept" are always there, the others say why not."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence pair as its source gives it. `cluster` is the document: the unit of splitting and resampling."""

    id: str
    cluster: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Example(Pair):
    """A pair with its tokens, nothing truncated: a prepared one, or one whose source knows its tokens."""

    source_tokens: list[str]
    target_tokens: list[str]


Link = tuple[int, int]
"""Places of a source word and of a target word among the tokens, from 0."""


@dataclass(frozen=True, slots=True)
class Aligned(Example):
    """With word links made by hand: those that are sure, and all that are possible, the sure ones among them."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        n, m = len(self.source_tokens), len(self.target_tokens)
        outside = sorted((i, j) for i, j in self.possible if not (0 <= i < n and 0 <= j < m))
        if outside or not self.sure <= self.possible:
            raise ValueError(
                f"{self.id}: got links {outside} outside {n} x {m} words and {len(self.sure - self.possible)} sure links "
                "that are not possible, expected none"
            )


class Languages(Protocol):
    @property
    def source_lang(self) -> str: ...
    @property
    def target_lang(self) -> str: ...


def stable_hash(text: str) -> int:
    """A 64-bit hash that is the same on every machine (Python's own differs between processes)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def split_of(cluster: str) -> str:
    """train, dev or test for a whole document, by hash: 84, 4 and 12 per cent of the documents."""
    place = stable_hash(f"split/{cluster}") % 100
    return "train" if place >= 16 else "dev" if 6 <= place < 10 else "test"


def in_share(cluster: str, share: float) -> bool:
    """Whether a document belongs to the first `share` of the corpus; smaller shares lie inside larger ones."""
    return stable_hash(f"share/{cluster}") < share * 2**64


def word_count(text: str) -> int:
    return len(text.split())


def plausible(source: str, target: str, limit: int = 100) -> bool:
    """Neither side empty or over `limit` words (130 % of it for the target), lengths within a factor of about two.

    Lengths of short pairs (under 12 words in all) vary too much for the factor to mean anything.
    """
    a, b = word_count(source), word_count(target)
    if not (1 <= a <= limit and 1 <= b <= 1.3 * limit):
        return False
    return a + b < 12 or 0.45 <= (a + 2) / (b + 2) <= 2.2


def ngrams(text: str, n: int = 5) -> set[tuple[str, ...]]:
    """Lower-cased word n-grams; a text shorter than `n` words counts as one n-gram."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)} or {tuple(words)}


def without_quotes(
    held_out: Mapping[str, Sequence[Pair]], train: Iterable[Pair], counts: Counts, limit: float = 0.5
) -> dict[str, list[Pair]]:
    """The splits of `held_out` without pairs that share over `limit` of their source n-grams with train; counted.

    Only n-grams that a held-out pair has are looked for in train: all of train's would fill the memory.
    """
    wanted = {gram for pairs in held_out.values() for pair in pairs for gram in ngrams(pair.source)}
    seen = {gram for pair in train for gram in ngrams(pair.source) if gram in wanted}

    def overlap(pair: Pair) -> float:
        grams = ngrams(pair.source)
        return sum(gram in seen for gram in grams) / len(grams)

    kept = {split: [pair for pair in pairs if overlap(pair) <= limit] for split, pairs in held_out.items()}
    for split, pairs in held_out.items():
        count(counts, split, "quoting train", len(pairs) - len(kept[split]))
    return kept


def english_first(context: Languages) -> str:
    """The language beside English of a source whose pairs are made with English first."""
    if (context.source_lang == "en") == (context.target_lang == "en"):
        raise ValueError(f"got {context.source_lang} to {context.target_lang}, expected English on one side")
    return context.target_lang if context.source_lang == "en" else context.source_lang


def directed(pairs: Iterable[Pair], context: Languages) -> list[Pair]:
    """Pairs made with English first, in the direction asked for."""
    if context.source_lang == "en":
        return list(pairs)
    return [Pair(pair.id, pair.cluster, pair.target, pair.source) for pair in pairs]


def splits_without_quotes(
    pairs: Iterable[tuple[str, Pair]], context: Languages, counts: Counts
) -> dict[str, Iterable[Pair]]:
    """Gather pairs by their split: no pair twice, none in dev and test that quotes train."""
    found: dict[str, dict[tuple[str, str], Pair]] = {"train": {}, "dev": {}, "test": {}}
    for split, pair in pairs:
        if (pair.source, pair.target) in found[split]:
            count(counts, split, "duplicates")
        found[split].setdefault((pair.source, pair.target), pair)
    lists = {split: list(unique.values()) for split, unique in found.items()}
    train = lists.pop("train")
    splits = {"train": train} | without_quotes(lists, train, counts)
    return {split: directed(pairs, context) for split, pairs in splits.items()}


def note_lengths(held_out: Mapping[str, Sequence[Pair]], counts: Counts) -> None:
    """Count the pairs of a given test set whose lengths don't fit: a misaligned set shows here. They stay in it."""
    for split, pairs in held_out.items():
        bad = sum(not plausible(pair.source, pair.target, limit=10**9) for pair in pairs)
        count(counts, split, "implausible lengths (kept)", bad)


def counted_overlap(train: Iterable[Pair], held_out: Mapping[str, Sequence[Pair]], counts: Counts) -> Iterator[Pair]:
    """Pass train on and count the pairs of given dev and test sets whose source stands in it too. They stay there."""
    wanted = {split: Counter(pair.source for pair in pairs) for split, pairs in held_out.items()}
    for pair in train:
        for split, sources in wanted.items():
            count(counts, split, "source also in train (kept)", sources.pop(pair.source, 0))
        yield pair


def count(counts: Counts, split: str, what: str, n: int = 1) -> None:
    counts.setdefault(split, Counter())[what] = counts.get(split, {}).get(what, 0) + n


def describe(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Counts in one line, zeros left out: `train: 120 read, 20 duplicates, 100 kept, 30 over 50 words, 70 used; ...`."""
    return "; ".join(
        f"{split}: " + ", ".join(f"{number:,} {what}" for what, number in sorted(row.items(), key=_order) if number)
        for split, row in sorted(counts.items(), key=lambda item: SPLITS.index(item[0]))
    )


def _order(item: tuple[str, int]) -> tuple[int, str]:
    """What was read; what went; what is kept; of that, what is not trained on; what is."""
    what = item[0]
    at_loading = what == "outside train_share" or what.startswith("over ")
    return ({"read": 0, "kept": 2, "used": 4}.get(what, 3 if at_loading else 1), what)
