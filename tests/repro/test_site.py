"""The site: built from what is stored, complete, closed in itself, readable without a mouse and on a phone."""

import re
import shutil
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from common.report.render.markdown import markdown
from common.report.render.site import rendered
from reproductions import archive, site
from reproductions.provenance import source_hash
from reproductions.report import ROOT, make_report
from tests.common.report.fake_runs import FakeRuns
from tests.common.report.test_report_browser import BROWSER, PROBE, chromium

Pages = dict[str, ElementTree.Element]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder, source_hash)
    return folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> Pages:
    return {file.name: ElementTree.fromstring(file.read_text(encoding="utf-8")) for file in folder.glob("*.html")}


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_each_package_has_a_page_and_its_verdicts_on_the_first(pages: Pages) -> None:
    index = pages["index.html"]
    for results in (ROOT / "reproductions").glob("*/RESULTS.md"):
        assert f"{results.parent.name}.html" in pages
        lines = re.findall(
            r"^\| [✓↗✗?–○] ([a-z ]+?)(?: \(one \w+\))? \|", results.read_text(encoding="utf-8"), re.MULTILINE
        )
        section = next(s for s in index.iter("section") if s.find(f"h2[@id='{results.parent.name}']") is not None)
        badges = [span.attrib["class"] for span in section.iter("span")]
        assert lines and badges == [f"badge {verdict.replace(' ', '-')}" for verdict in lines]


def test_nothing_is_loaded_from_elsewhere(pages: Pages) -> None:
    for page in pages.values():
        for element in page.iter():
            assert element.tag not in ("script", "link", "img", "iframe", "object", "embed", "base", "image", "use")
            assert not [
                name for name in element.attrib if name.startswith("on") or name in ("src", "srcset", "data", "style")
            ]


def test_links_lead_somewhere(pages: Pages) -> None:
    ids = {name: [e.attrib["id"] for e in page.iter() if "id" in e.attrib] for name, page in pages.items()}
    assert all(len(set(of_page)) == len(of_page) for of_page in ids.values())
    reached = {"index.html"}
    for name, page in pages.items():
        for link in page.iter("a"):
            address, _, place = link.attrib["href"].partition("#")
            if address.startswith("https:"):
                continue
            assert (address or name) in pages and (not place or place in ids[address or name]), link.attrib["href"]
            reached.add(address or name)
    assert reached == set(pages)


def test_a_reader_finds_the_way_without_eyes_or_mouse(pages: Pages) -> None:
    """As axe asks: a language, a title, one first heading and no level left out, headers with a scope, labelled regions that
    can be scrolled from the keyboard, links with words."""
    for name, page in pages.items():
        assert page.attrib["lang"] == "en" and words(page.findall("head/title")[0]), name
        levels = [int(e.tag[1]) for e in page.iter() if re.fullmatch("h[1-6]", e.tag)]
        assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels)), name
        assert all("scope" in th.attrib or not words(th) for th in page.iter("th")), name
        frames = [div for div in page.iter("div") if div.attrib.get("class") == "scroll"]
        labels = [div.attrib["aria-label"] for div in frames]
        assert all(div.attrib["tabindex"] == "0" and div.attrib["role"] == "region" for div in frames), name
        assert len(set(labels)) == len(labels), name
        assert sum(len(list(div.iter("table"))) for div in frames) == len(list(page.iter("table"))), name
        assert all(words(link) for link in page.iter("a")), name


def test_links_to_files_that_are_not_on_the_site_are_text() -> None:
    shown = rendered(
        "# A\n\n[one](RESULTS.md) [two](exact/a.py) [three](https://arxiv.org)", "A", {"RESULTS.md": "a.html"}
    )
    assert '<a href="a.html">one</a> two <a href="https://arxiv.org">three</a>' in shown


def test_where_runs_are_stored_the_figures_are_drawn(tmp_path: Path) -> None:
    paper = tmp_path / "reproductions" / "bahdanau"
    paper.mkdir(parents=True)
    for name in ("published.yaml", "claims.yaml"):
        shutil.copy(ROOT / "reproductions" / "bahdanau" / name, paper)
    runs = FakeRuns(tmp_path / "runs", sizes={"test": 40, "test_long": 80}, seeds=(1,)).build()
    report = make_report("bahdanau", "small", runs, source_hash, tmp_path)
    (paper / "RESULTS.md").write_text(markdown(report), encoding="utf-8")
    site.build(tmp_path / "without", source_hash, tmp_path)
    archive.pack(report.results, archive.archive_file(tmp_path, "bahdanau", "small"))
    site.build(tmp_path / "with", source_hash, tmp_path)
    drawn = [
        (tmp_path / kind / "bahdanau.html").read_text(encoding="utf-8").count("<svg") for kind in ("without", "with")
    ]
    assert drawn[0] == 0 and drawn[1] > 5


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index", "field_guide", "field_guide-map", "luong"])
def test_nothing_sticks_out(folder: Path, tmp_path: Path, name: str, width: int) -> None:
    shutil.copy(folder / f"{name}.html", tmp_path / "report.html")
    (tmp_path / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    ran = chromium(tmp_path, "--dump-dom", "--window-size=1400,1000", f"file://{tmp_path}/probe.html")
    found = re.search(r"probe (\d+) (\d+) \[(.*?)\]", ran.stdout)
    assert found, ran.stderr
    assert found[3] == "" and int(found[1]) <= int(found[2])
    assert "CONSOLE" not in ran.stderr, ran.stderr


def test_a_wrong_argument_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert site.main(["site"]) == 2
    assert "expected out=FOLDER" in capsys.readouterr().err
