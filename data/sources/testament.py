"""The Greek New Testament word by word beside an English translation, aligned by hand: reads the files of the package.

Tokens are those that the links name. Punctuation is none of them: the Greek files have none, and the annotators set that
of the English text apart. Everything is lower-cased, as is usual where words are aligned.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.pairs import Link
from data.sources.verses import Ref
from data.text import read_lines

Place = tuple[str, int]
"""A verse, as eight digits of book, chapter and verse, and a word in it, from 0."""


@dataclass(frozen=True)
class Word:
    id: str
    verse: str
    form: str
    lemma: str = ""


@dataclass(frozen=True)
class AlignedVerse:
    """Words of both sides; `sure` and `possible` links between them, as places (Greek, English) from 0.

    A record of the package joins any number of words of each side: all its pairs are possible links, and that of a record
    of one word with one is sure. `left_out` counts pairs of records that this verse can't have, by reason.
    """

    ref: Ref
    forms: list[str]
    lemmas: list[str]
    english: list[str]
    sure: set[Link] = field(default_factory=set)
    possible: set[Link] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)


def read_words(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Rows of a word list as name -> text of a column. Raises ValueError where a column is missing or an id repeats."""
    rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(rows, [])
    if missing := set(columns.values()) - set(header):
        raise ValueError(f"{path}: got columns {header}, expected {sorted(missing)} among them")
    place = {name: header.index(column) for name, column in columns.items()}
    seen: set[str] = set()
    for row in rows:
        named = {name: row[i] for name, i in place.items()}
        if named["id"] in seen:
            raise ValueError(f"{path}: got word {named['id']} twice, expected it once")
        seen.add(named["id"])
        yield named


def read_greek(path: Path) -> list[Word]:
    """Words of the Greek text; their ids are n + book, chapter, verse, word."""
    rows = read_words(path, {"id": "id", "form": "text", "lemma": "lemma"})
    return [Word(r["id"], r["id"][1:9], r["form"].lower(), r["lemma"].lower()) for r in rows]


def read_english(path: Path) -> list[Word]:
    """Words of the English text without punctuation. A word belongs to the Greek verse that it translates."""
    rows = read_words(path, {"id": "id", "verse": "source_verse", "form": "text", "punctuation": "exclude"})
    return [Word(r["id"], r["verse"], r["form"].lower()) for r in rows if not r["punctuation"]]


def places(words: Sequence[Word]) -> tuple[dict[str, Place], dict[str, list[Word]]]:
    """Where each word is, by its id, and the words of each verse."""
    by_id: dict[str, Place] = {}
    by_verse: dict[str, list[Word]] = {}
    for word in words:
        verse = by_verse.setdefault(word.verse, [])
        by_id[word.id] = word.verse, len(verse)
        verse.append(word)
    return by_id, by_verse


def read_testament(greek: Path, english: Path, links: Path) -> list[AlignedVerse]:
    """The verses of the Greek text in order, with their links; one that the translation lacks has no English word."""
    greek_places, greek_verses = places(read_greek(greek))
    english_places, english_verses = places(read_english(english))
    verses = {
        key: AlignedVerse(
            (int(key[:2]), int(key[2:5]), int(key[5:])),
            [word.form for word in words],
            [word.lemma for word in words],
            [word.form for word in english_verses.get(key, [])],
        )
        for key, words in greek_verses.items()
    }
    for record in read_records(links):
        add_links(record["source"], record["target"], greek_places, english_places, verses)
    return list(verses.values())


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of the alignment. Raises ValueError where the file is of another form."""
    records = json.loads(path.read_bytes()).get("records")
    if not isinstance(records, list) or not all(r.keys() >= {"source", "target"} for r in records):
        raise ValueError(f"{path}: got no list of records with source and target, expected one")
    return records


def add_links(
    source: Sequence[str],
    target: Sequence[str],
    greek: Mapping[str, Place],
    english: Mapping[str, Place],
    verses: Mapping[str, AlignedVerse],
) -> None:
    """Add the links of a record to the verse of its Greek words; one that the verse can't have is counted there."""
    sure = len(source) == len(target) == 1
    for a in source:
        verse = verses.get(greek[a][0] if a in greek else a[1:9])
        if verse is None:
            raise ValueError(f"got a link of word {a}, expected one of a verse of the Greek text")
        for b in target:
            if a not in greek or b not in english:
                verse.left_out["gold links of words that are not there"] += 1
            elif greek[a][0] != english[b][0]:
                verse.left_out["gold links into another verse"] += 1
            else:
                link = greek[a][1], english[b][1]
                verse.possible.add(link)
                if sure:
                    verse.sure.add(link)
