import subprocess
import sys

import pytest

from data.fetch import read_manifest
from data.sources.long import Document, Text, by_bytes, place
from data.store import carved, load, prepare_documents, prepare_texts, stored_folder
from tests.data.long_sources import LISTED, GivenDocuments, text_source


@pytest.fixture
def where(tmp_path):
    return place(tmp_path / "cache", False)


def documents(key, splits, **settings):
    LISTED[key] = splits
    return GivenDocuments(key, **settings)


def document(i, cluster="c", **fields):
    return Document(**{"id": f"{i}", "cluster": cluster, "text": b"\x01\x02", "label": i % 2} | fields)


def test_texts_are_stored_as_they_are(where):
    every = bytes(range(256))
    source = text_source("bytes", train=[every, b""], dev=[b"\x00"], test=[b"\xff\xfe"])
    stored = load(prepare_texts("t", source, where))
    assert stored["train"]["text"][:] == [every, b""]
    assert (stored["test"]["id"][0], stored["test"]["text"][0]) == ("test 0", b"\xff\xfe")
    assert read_manifest(stored_folder("t", source, where))["counts"]["train"] == {"bytes": 256, "kept": 2}


def test_prepared_once(where, monkeypatch):
    source = text_source("once", train=[b"a"], dev=[b"b"], test=[b"c"])
    folder = prepare_texts("t", source, where)
    monkeypatch.setattr(type(source), "texts", lambda *_: pytest.fail("read again"))
    assert prepare_texts("t", source, where) == folder


def test_the_content_is_the_same_wherever_it_is_prepared(tmp_path):
    source = text_source("twice", train=[b"a", b"b"], dev=[b"c"], test=[b"d"])
    folders = [prepare_texts("t", source, place(tmp_path / cache, False)) for cache in "ab"]
    assert folders[0].name == folders[1].name
    assert read_manifest(folders[0]) == read_manifest(folders[1])


def test_the_checksum_tells_documents_from_one_another(where):
    """The same bytes, cut elsewhere, in another split, or of another cluster."""
    one = [Text("1", "1", b"ab"), Text("2", "2", b"c")]
    others = [[Text("1", "1", b"a"), Text("2", "2", b"bc")], [Text("1", "1", b"ab"), Text("2", "1", b"c")], one]
    checksums = set()
    for i, train in enumerate(others):
        source = text_source(f"checksum {i}")
        LISTED[source.key] = {"train": train, "dev": one, "test": one}
        checksums.add(read_manifest(prepare_texts("t", source, where))["checksum"])
    assert len(checksums) == 3


def test_a_dev_set_is_taken_from_train_by_whole_clusters(where):
    train = [document(i, f"thread {i // 3}") for i in range(900)]
    stored = load(prepare_documents("d", documents("carve", {"train": train, "test": train[:1]}), where))
    clusters = {split: set(stored[split]["cluster"]) for split in ("train", "dev")}
    assert not clusters["train"] & clusters["dev"]
    assert len(stored["train"]) + len(stored["dev"]) == 900 and 50 < len(stored["dev"]) < 130
    assert len(stored["dev"]) % 3 == 0
    again = carved(train, {})
    assert [d.id for d in again["dev"]] == stored["dev"]["id"][:]


def test_a_dev_set_of_its_own_stays(where):
    splits = {split: [document(i) for i in range(n)] for split, n in (("train", 20), ("dev", 3), ("test", 2))}
    stored = load(prepare_documents("d", documents("own", splits), where))
    assert {split: len(data) for split, data in stored.items()} == {"train": 20, "dev": 3, "test": 2}


@pytest.mark.parametrize(
    "wrong",
    [{"label": 2}, {"label": -1}, {"text": b"\x05"}, {"other": b"\x01"}],
    ids=["label", "negative label", "symbol", "pair"],
)
def test_a_document_that_is_not_as_its_source_says_is_refused(where, wrong, request):
    good = [document(0)]
    splits = {"train": good, "dev": good, "test": [document(1, **wrong)]}
    with pytest.raises(ValueError, match="test 1: got label .*, expected a label below 2, symbols below 5"):
        prepare_documents("d", documents(request.node.nodeid, splits, symbols=5), where)
    assert not [path for path in where.cache.iterdir() if path.is_dir()]  # nothing that could be taken for data


def test_an_empty_split_is_named(where):
    with pytest.raises(ValueError, match="got no document for dev, expected some"):
        prepare_texts("t", text_source("empty", train=[b"a"], dev=[], test=[b"a"]), where)


def test_missing_rows_are_noticed(where):
    folder = prepare_texts("t", text_source("rows", train=[b"a"], dev=[b"b"], test=[b"c"]), where)
    manifest = (folder / "manifest.json").read_text(encoding="utf-8").replace('"kept": 1', '"kept": 2')
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(ValueError, match="got 1 rows, expected 2. Delete"):
        load(folder)


def test_splits_by_bytes_at_borders_of_documents():
    """Middles at 25, 60, 80, 92.5 and 97.5 of 100 bytes."""
    texts = [Text(str(i), str(i), b"x" * n) for i, n in enumerate((50, 20, 20, 5, 5))]
    splits = {split: [text.id for text in found] for split, found in by_bytes(texts).items()}
    assert splits == {"train": ["0", "1", "2"], "dev": ["3"], "test": ["4"]}
    with pytest.raises(ValueError, match=r"none of which falls into \['dev', 'test'\]"):
        by_bytes(texts[:1])


def test_the_folder_is_the_same_in_every_process(where):
    code = (
        "from pathlib import Path; from data.sources.needle import Needle; from data.sources.long import place;"
        "from data.store import stored_folder;"
        "print(stored_folder('n', Needle(16, 9, 9, 1, 5, 4, 4, 4), place(Path('x'), False)))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": "1", "PYTHONPATH": "."}, {"PYTHONHASHSEED": "2", "PYTHONPATH": "."})
    ]
    assert runs[0] == runs[1] != ""
