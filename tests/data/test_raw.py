"""Files by their address and documents of the hub; what answers is the test itself."""

import io
import tarfile
import time
import urllib.request
import zipfile
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import datasets
import huggingface_hub
import numpy as np
import pytest

from data.fetch import FetchError, read_manifest
from data.sources import hutter
from data.sources.cifar import PIXELS, Cifar10
from data.sources.hub_documents import HubDocuments
from data.sources.hutter import Enwik8, Text8
from data.sources.long import place
from data.store import load, prepare_documents, prepare_texts

SIZES = {"train": 900, "dev": 50, "test": 50}
HEAD = b"<mediawiki>\n"
PAGES = [f"  <page>\n    <title>P{i}</title>\n".encode() + b"x" * 60 + b"\n  </page>\n" for i in range(20)]
CONTENT = (HEAD + b"".join(PAGES))[:1000]


@pytest.fixture
def where(tmp_path):
    return place(tmp_path / "cache", False)


@pytest.fixture
def net(monkeypatch):
    """Files by address."""
    files = {}

    def answer(url, timeout):
        assert timeout <= 10
        if url not in files:
            raise URLError("Name or service not known")
        return io.BytesIO(files[url])

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(hutter, "SIZES", SIZES)
    monkeypatch.setattr(hutter, "BLOCK", 20)
    return files


def zipped(name, content):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


def test_enwik8_is_split_by_bytes_and_its_pages_are_documents(net, where):
    net[Enwik8.url] = zipped("enwik8", CONTENT)
    folder = prepare_texts("e", Enwik8(), where)
    splits = load(folder)
    for split, start, end in (("train", 0, 900), ("dev", 900, 950), ("test", 950, 1000)):
        assert b"".join(splits[split]["text"][:]) == CONTENT[start:end]
    names = splits["train"]["id"][:]
    assert names[:3] == ["train 0 (before)", "train 1 P0", "train 2 P1"]
    assert splits["train"]["text"][1] == PAGES[0]
    assert splits["dev"]["id"][0] == "dev 0 (before)"  # the page goes on
    assert len(read_manifest(folder)["provenance"]["sha256"]) == 64


def test_text8_comes_in_blocks(net, where):
    net[Text8.url] = zipped("text8", CONTENT)
    splits = load(prepare_texts("t", Text8(), where))
    assert [len(text) for text in splits["dev"]["text"]] == [20, 20, 10]
    assert b"".join(splits["test"]["text"][:]) == CONTENT[950:]


@pytest.mark.parametrize(
    "content", [zipped("enwik8", CONTENT[:-1]), zipped("other", CONTENT), b"<html>not found</html>"]
)
def test_files_of_another_form_are_not_kept(net, where, content):
    net[Enwik8.url] = content
    with pytest.raises(FetchError, match="got 999 bytes of enwik8, expected 1000|cannot read enwik8 from it"):
        prepare_texts("e", Enwik8(), where)
    assert not Enwik8().folder(where).exists() and not Enwik8().record(where).exists()


def test_content_that_changed_is_refused(net, where):
    """Also where the file itself was deleted meanwhile: the record of its hash lies elsewhere."""
    source = Enwik8()
    net[Enwik8.url] = zipped("enwik8", CONTENT)
    source.fetch(where)
    (source.folder(where) / "file").unlink()
    (source.folder(where) / "manifest.json").unlink()
    source.folder(where).rmdir()
    net[Enwik8.url] = zipped("enwik8", CONTENT[::-1])
    with pytest.raises(FetchError, match=r"got sha256 .*, expected .* as first read .*data\.allow_newer=true"):
        source.fetch(where)
    source.fetch(place(where.cache, True))


def test_without_a_network_it_is_said_within_seconds(net, where, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("would try for half a minute"))
    cases: list[tuple[Any, Any, tuple[str, ...]]] = [
        (Enwik8(), prepare_texts, ("enwik8", "data=toy_bytes", "data=wikipedia_bytes")),
        (Cifar10(), prepare_documents, ("cifar-10-binary", "data=toy_documents", "data=digits")),
        (IMDB, prepare_documents, ("org/reviews", "data=toy_documents", "data=newsgroups")),
    ]
    for source, prepare, parts in cases:
        started = time.monotonic()
        with pytest.raises(FetchError) as error:
            prepare("x", source, where)
        assert time.monotonic() - started < 5
        assert all(part in str(error.value) for part in (*parts, str(where.cache))), str(error.value)
        assert "toy_reverse" not in str(error.value) and "bible_enfr" not in str(error.value)


def test_cifar_in_grey(net, where, monkeypatch):
    """0.299 red + 0.587 green + 0.114 blue, of planes one after the other."""
    monkeypatch.setattr("data.sources.cifar.DEV", 4)
    rng = np.random.default_rng(0)
    raw = {f"data_batch_{i}.bin": rng.integers(256, size=(4, 1 + 3 * PIXELS), dtype=np.uint8) for i in range(1, 6)}
    raw["test_batch.bin"] = rng.integers(256, size=(3, 1 + 3 * PIXELS), dtype=np.uint8)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, rows in raw.items():
            rows[:, 0] %= 10
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = rows.nbytes
            archive.addfile(member, io.BytesIO(rows.tobytes()))
    net[Cifar10.url] = made.getvalue()
    splits = load(prepare_documents("c", Cifar10(), where))
    assert {split: len(data) for split, data in splits.items()} == {"train": 16, "dev": 4, "test": 3}
    red, green, blue = (int(raw["data_batch_1.bin"][1, 1 + plane * PIXELS + 7]) for plane in range(3))
    assert splits["train"]["text"][1][7] == round(0.299 * red + 0.587 * green + 0.114 * blue)
    assert splits["dev"]["label"][:] == raw["data_batch_5.bin"][:, 0].tolist()
    assert len(splits["test"]["text"][0]) == 1024


IMDB = HubDocuments("org/reviews", "plain", {"train": "train", "test": "test"}, ["bad", "good"], "none", "films", 2, 20)


@pytest.fixture
def hub(monkeypatch):
    content = {
        "train": [{"text": f"film {i} é", "label": i % 2} for i in range(100)],
        "test": [{"text": "", "label": 1}, {"text": "fine", "label": 0}],
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, split, **__: datasets.Dataset.from_list(content[split]))
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename="plain/a.parquet", size=1000)])
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: info)
    return content


def test_documents_of_the_hub(hub, where):
    folder = prepare_documents("i", IMDB, where)
    splits = load(folder)
    assert (splits["test"]["text"][:], splits["test"]["label"][:]) == ([b"", b"fine"], [1, 0])
    assert len(splits["train"]) + len(splits["dev"]) == 100 and len(splits["dev"]) > 0
    assert splits["train"]["text"][0].decode().endswith("é")
    assert set(read_manifest(folder)["provenance"]) == {"train", "test"} and IMDB.downloads(where) == []


def test_documents_of_the_hub_that_changed_are_refused(hub, where):
    prepare_documents("i", IMDB, where)
    hub["test"][0]["label"] = 0
    with pytest.raises(FetchError, match=r"org/reviews \(plain\), test: got sha256"):
        prepare_documents("another name", IMDB, where)


def test_rows_of_the_hub_of_another_form_are_refused(hub, where):
    hub["train"] = [{"text": "a", "label": "good"}]
    with pytest.raises(ValueError, match="expected text text and number label"):
        prepare_documents("i", IMDB, where)
