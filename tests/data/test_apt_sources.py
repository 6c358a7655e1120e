"""Debian's descriptions and LibreOffice's help, from made-up text; apt itself is never run."""

import subprocess

import pytest

from data import apt
from data.apt import apt_get, fetch_with_apt
from data.fetch import Download, FetchError
from data.pairs import split_of
from data.sources import debian, libreoffice
from data.sources.debian import Debian, paragraphs, project, read_translation
from data.sources.libreoffice import LibreOffice, read_page

INDEX = """\
Package: foo-dev
Description-md5: 0123456789abcdef
Description-{lang}: short text
 A first {lang} paragraph\u2028 over
 two lines of text.
 .
  * an item
  * another
 .
 The third {lang} one.

Package: bar
Description-md5: ffffffff00000000
Description-{lang}: short
 One {lang} paragraph only.{more}
"""


def test_descriptions_and_their_paragraphs(tmp_path):
    (tmp_path / "t").write_text(INDEX.format(lang="fr", more=""), encoding="utf-8")
    found = read_translation(tmp_path / "t")
    assert list(found) == ["0123456789abcdef", "ffffffff00000000"]
    package, lines = found["0123456789abcdef"]
    assert package == "foo-dev"
    assert paragraphs(lines) == ["A first fr paragraph over two lines of text.", None, "The third fr one."]


@pytest.mark.parametrize("package", ["libfoo-dev", "python3-foo", "foo2", "foo"])
def test_packages_of_a_project_are_one_document(package):
    assert project(package) == "foo"


def test_paragraphs_are_paired_by_description_and_place(tmp_path):
    texts = []
    for lang, more in (("en", ""), ("fr", "\n .\n Another.")):
        (tmp_path / lang).write_text(INDEX.format(lang=lang, more=more), encoding="utf-8")
        texts.append(read_translation(tmp_path / lang))
    counts = {}
    pairs = list(debian.align(texts[0], texts[1], counts))
    assert [(pair.id, pair.cluster, pair.source, pair.target) for _, pair in pairs] == [
        ("foo-dev 01234567:1", "foo", *(f"A first {lang} paragraph over two lines of text." for lang in ("en", "fr"))),
        ("foo-dev 01234567:3", "foo", "The third en one.", "The third fr one."),
    ]
    assert {split for split, _ in pairs} == {split_of("debian/foo")}
    assert sum(row.get("verbatim or empty", 0) for row in counts.values()) == 1
    assert sum(row.get("in descriptions with other numbers of paragraphs", 0) for row in counts.values()) == 1


PAGE = """<h1 id="hd_1">Saving</h1><p id="par_2" class="x">Choose <b>File</b> &amp;amp; <br/>Save.</p>
<p id="par_3" class="code">x = 1</p><p id="other">No id of ours.</p>"""


def test_paragraphs_of_a_help_page():
    assert list(read_page(PAGE)) == [("hd_1", "Saving"), ("par_2", "Choose File &amp; Save.")]


def test_help_paragraphs_are_paired_by_page_and_id():
    english = {
        ("p", "1"): "One short text",
        ("p", "2"): "Not yet translated text",
        ("q", "1"): "Missing over there now",
    }
    french = {("p", "1"): "Un texte court", ("p", "2"): "Not yet translated text", ("q", "2"): "Autre texte ici"}
    counts = {}
    ((split, pair),) = libreoffice.align(english, french, counts)
    assert (split, pair.id, pair.cluster) == (split_of("libreoffice/p"), "p 1", "p")
    assert (pair.source, pair.target) == ("One short text", "Un texte court")
    assert sum(row.get("not translated", 0) for row in counts.values()) == 1
    assert sum(row.get("missing in one language", 0) for row in counts.values()) == 1


@pytest.mark.parametrize("source", [Debian(), LibreOffice()])
def test_without_apt_the_error_says_what_else_to_use(source, context, monkeypatch):
    monkeypatch.setattr(apt.shutil, "which", lambda _: None)
    with pytest.raises(FetchError, match=r"needs apt-get and dpkg-deb .*use data=bible_enfr"):
        source.pairs(context, {})
    assert [path for path in context.cache.iterdir() if path.suffix != ".lock"] == []
    assert len(source.downloads(context)) == 1


@pytest.mark.parametrize(
    ("code", "stderr"),
    [(100, "E: Unable to locate package x"), (0, "W: Failed to fetch http://x Could not resolve 'x'")],
)
def test_apts_own_reason_is_shown(tmp_path, monkeypatch, code, stderr):
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, code, "", stderr))
    with pytest.raises(FetchError, match=stderr) as error:
        apt_get(tmp_path, "en", "update")
    assert "data=toy_reverse" in str(error.value)


def test_apt_keeps_to_its_own_folder_and_does_not_hang(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    apt_get(tmp_path, "en,fr", "update")
    (command,) = commands
    for option in (f"Dir::State::Lists={tmp_path}/lists", f"Dir::Cache={tmp_path}/cache", "Acquire::Languages=en,fr"):
        assert option in command
    assert "Acquire::Retries=0" in command and "Acquire::http::Timeout=10" in command


def test_the_hash_of_what_was_fetched_is_recorded(context, monkeypatch):
    monkeypatch.setattr(apt.shutil, "which", lambda _: "/usr/bin/it")

    def fill(root, folder):
        (root / "rubbish").write_text("x")
        (folder / "text").write_text("abc")

    manifest = fetch_with_apt(context.cache / "d", Download("made-up text", None, 1, 1), fill)
    # the standard's own example: SHA-256 of "abc"
    assert manifest["sha256"]["text"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sorted(path.name for path in (context.cache / "d").iterdir()) == ["manifest.json", "text"]
