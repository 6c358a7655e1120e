import errno
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from data.fetch import FetchError, read_manifest
from data.pairs import Pair
from data.prepare import cache_folder, load, prepare, prepared_folder
from data.sources.base import Context
from data.sources.toy import Toy

TOY = Toy(words=9, shortest=2, longest=4, longest_long=6, train=20, dev=3, test=4, test_long=2)
ROOT = Path(__file__).parents[2]


def pairs(n, split):
    return [Pair(f"{i}", f"{split} {i}", f"It's word {i}.", f"C'est l'œuvre {i}.") for i in range(n)]


def leftovers(cache):
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


def test_rows_are_stored_with_their_tokens_and_mapped_from_disk(listed, context):
    source = listed({"train": pairs(3, "train"), "dev": pairs(1, "dev"), "test": pairs(2, "test")})
    splits = load(prepare("small", source, context))
    assert {split: len(data) for split, data in splits.items()} == {"train": 3, "dev": 1, "test": 2}
    assert splits["test"][1] == {
        "id": "1",
        "cluster": "test 1",
        "source": "It's word 1.",
        "target": "C'est l'œuvre 1.",
        "source_tokens": ["It", "'s", "word", "1", "."],
        "target_tokens": ["C'", "est", "l'", "œuvre", "1", "."],
    }
    assert all(data.cache_files for data in splits.values())  # none is held in memory


def test_the_manifest_says_what_it_is(listed, context):
    source = listed({"train": pairs(3, "train"), "dev": pairs(1, "dev"), "test": pairs(2, "test")})
    manifest = read_manifest(prepare("small", source, context))
    assert manifest["counts"] == {"train": {"kept": 3}, "dev": {"kept": 1}, "test": {"kept": 2}}
    assert manifest["provenance"] == {"from": "a test"}
    assert manifest["settings"]["languages"] == ["en", "fr"]
    assert manifest["versions"]["datasets"] == datasets.__version__
    assert (manifest["licence"], manifest["domain"], len(manifest["checksum"])) == ("none", "test", 64)


def test_prepared_once(listed, context, monkeypatch):
    source = listed({"train": pairs(1, "train"), "dev": pairs(1, "dev"), "test": pairs(1, "test")})
    folder = prepare("small", source, context)
    monkeypatch.setattr(type(source), "pairs", lambda *_: pytest.fail("prepared again"))
    assert prepare("small", source, context) == folder


def test_an_interrupted_preparation_leaves_nothing_behind(listed, context):
    def broken():
        yield from pairs(2, "test")
        raise ValueError("line 3 is broken")

    held_out = {"dev": pairs(1, "dev")}
    with pytest.raises(ValueError, match="line 3 is broken"):
        prepare("small", listed({"train": pairs(5, "train"), **held_out, "test": broken()}), context)
    assert leftovers(context.cache) == []
    source = listed({"train": pairs(5, "train"), **held_out, "test": pairs(2, "test")})
    assert len(load(prepare("small", source, context))["test"]) == 2


def test_what_a_killed_process_left_is_deleted(listed, context):
    source = listed({"train": pairs(1, "train"), "dev": pairs(1, "dev"), "test": pairs(1, "test")})
    folder = prepared_folder("small", source, context)
    stale = context.cache / f".tmp-{folder.name}-abc" / "content" / "train"
    stale.mkdir(parents=True)
    prepare("small", source, context)
    assert leftovers(context.cache) == [folder.name]


def test_a_second_process_waits_for_the_first(listed, context):
    """Both ask at once; the pairs are read once, and both get the finished folder."""
    reading, go_on = threading.Event(), threading.Event()
    reads = []

    def slow():
        reads.append(1)
        reading.set()
        assert go_on.wait(20)
        yield from pairs(2, "train")

    source = listed({"train": slow(), "dev": pairs(1, "dev"), "test": pairs(1, "test")})
    sizes = []
    workers = [
        threading.Thread(target=lambda: sizes.append(len(load(prepare("small", source, context))["train"])))
        for _ in range(2)
    ]
    workers[0].start()
    assert reading.wait(20)
    workers[1].start()
    workers[1].join(0.3)
    assert workers[1].is_alive() and sizes == []
    go_on.set()
    for worker in workers:
        worker.join(30)
    assert (sizes, len(reads)) == ([2, 2], 1)


def test_the_same_content_in_another_process_and_place(tmp_path):
    """Another hash seed and cache folder: same checksum, same folder name."""
    here = prepare("toy", TOY, Context(tmp_path / "a", "en", "fr"))
    code = (
        "import pathlib, sys; from data.prepare import prepare; from data.sources.base import Context\n"
        "from data.sources.toy import Toy\n"
        f"folder = prepare('toy', {TOY!r}, Context(pathlib.Path(sys.argv[1]), 'en', 'fr'))\n"
        "print(folder)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "b")],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    there = Path(done.stdout.strip().splitlines()[-1])
    assert there.name == here.name
    assert read_manifest(there)["checksum"] == read_manifest(here)["checksum"]


@pytest.mark.parametrize("change", ["languages", "field", "code", "identity"])
def test_other_settings_are_another_folder(context, monkeypatch, change):
    before = prepared_folder("toy", TOY, context)
    if change == "languages":
        context = Context(context.cache, "fr", "en")
    elif change == "field":
        assert prepared_folder("toy", replace(TOY, seed=1), context) != before
        return
    elif change == "code":
        monkeypatch.setattr("data.prepare.code_hash", lambda _: "x")
    else:
        monkeypatch.setattr(Toy, "identity", lambda *_: {"sha256": "x"})
    assert prepared_folder("toy", TOY, context) != before


def test_an_empty_split_is_an_error(listed, context):
    source = listed({"train": pairs(1, "train"), "dev": [], "test": pairs(1, "test")})
    with pytest.raises(ValueError, match="no pair for dev"):
        prepare("small", source, context)
    assert leftovers(context.cache) == []
    with pytest.raises(ValueError, match="no pair for test"):
        prepare("small", listed({"train": pairs(1, "train"), "dev": pairs(1, "dev")}), context)


def test_a_folder_that_lost_rows_is_refused(listed, context):
    source = listed({"train": pairs(3, "train"), "dev": pairs(1, "dev"), "test": pairs(1, "test")})
    folder = prepare("small", source, context)
    manifest = read_manifest(folder)
    manifest["counts"]["train"]["kept"] = 4
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"got 3 rows, expected 4\. Delete .*small-"):
        load(folder)


def test_where_data_lies(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "attention-reproductions"
    monkeypatch.setenv("ATTN_DATA", str(tmp_path / "attn"))
    assert cache_folder() == tmp_path / "attn"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("ATTN_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "attention-reproductions"


def test_a_disk_that_fills_up_is_named_and_nothing_half_written_stays(listed, context, monkeypatch):
    source = listed({"train": pairs(1, "train"), "dev": pairs(1, "dev"), "test": pairs(1, "test")})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(datasets.Dataset, "save_to_disk", full)
    with pytest.raises(FetchError, match=r"no space left on the disk of .* while small-.* ATTN_DATA"):
        prepare("small", source, context)
    assert leftovers(context.cache) == []
