"""The hub's data sets, with `datasets` told to hand out rows of our own; the hub itself is never asked."""

import shutil
import time
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest

from data.fetch import FetchError, read_manifest
from data.prepare import load, prepare
from data.sources.hub import Hub

HUB = Hub("org/set", "fr-en", {"train": "train", "dev": "validation", "test": "test"}, 1.0, "research", "news")


def rows(n, mark=""):
    return [{"translation": {"en": f"the word {i}{mark}", "fr": f"le mot {i}"}} for i in range(n)]


@pytest.fixture
def hub(monkeypatch):
    """Rows by their split; what was asked for is noted."""
    content = {"train": rows(50, " t"), "validation": rows(2, " v"), "test": [*rows(3), *rows(1, " t")]}
    asked = []

    def load_dataset(path, config, *, split, cache_dir):
        asked.append((path, config, split))
        return datasets.Dataset.from_list(content[split])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    sizes = {"fr-en/a.parquet": 70_000_000, "fr-en/b.parquet": 5_000_000, "de-en/a.parquet": 900_000_000}
    files = [SimpleNamespace(rfilename=name, size=size) for name, size in sizes.items()]
    info = SimpleNamespace(siblings=files)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: info)
    content["asked"] = asked
    return content


def test_splits_are_taken_in_the_direction_asked_for(hub, context):
    folder = prepare("wmt", HUB, context)
    splits = load(folder)
    assert {split: len(data) for split, data in splits.items()} == {"train": 50, "dev": 2, "test": 4}
    assert (splits["dev"][1]["source"], splits["dev"][1]["target"]) == ("the word 1 v", "le mot 1")
    assert set(hub["asked"]) == {("org/set", "fr-en", split) for split in ("train", "validation", "test")}
    manifest = read_manifest(folder)
    assert manifest["counts"]["test"]["source also in train (kept)"] == 1
    assert set(manifest["provenance"]) == {"train", "dev", "test"}
    assert all(len(sha256) == 64 for sha256 in manifest["provenance"].values())


def test_the_size_is_said_before_the_download(hub, context, capsys, monkeypatch):
    """That of the one configuration that is read; three times as much must be free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 225_000_000))
    prepare("wmt", HUB, context)
    assert f"Downloading org/set (fr-en), 75 MB, to {context.cache / 'hub'}" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 224_000_000))
    with pytest.raises(FetchError, match=r"org/set \(fr-en\) needs 225 MB of disk, .* has 224 MB free"):
        HUB.pairs(type(context)(context.cache / "other", "en", "fr"), {})


def test_prepared_data_needs_no_hub(hub, context, monkeypatch):
    prepare("wmt", HUB, context)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("asked the hub"))
    assert len(load(prepare("wmt", HUB, context))["train"]) == 50


def test_content_that_changed_is_refused(hub, context):
    prepare("wmt", HUB, context)
    hub["test"][0]["translation"]["en"] = "changed"
    again = replace(HUB, share=0.5)
    with pytest.raises(FetchError, match=r"org/set \(fr-en\), test: got sha256 .*, expected .*data\.allow_newer=true"):
        prepare("wmt", again, context)
    newer = type(context)(context.cache, "en", "fr", allow_newer=True)
    assert load(prepare("wmt", again, newer))["test"][0]["source"] == "changed"


def test_a_share_of_train_is_counted(hub, context):
    half = replace(HUB, share=0.5)
    manifest = read_manifest(prepare("wmt", half, context))["counts"]
    assert manifest["train"]["kept"] + manifest["train"]["outside source.share"] == manifest["train"]["read"] == 50
    assert 10 < manifest["train"]["kept"] < 40
    assert manifest["test"]["kept"] == 4


def test_blank_sides_go_from_train_alone(hub, context):
    for split in ("train", "test"):
        hub[split][0]["translation"]["fr"] = "\u00a0"
    counts = read_manifest(prepare("wmt", HUB, context))["counts"]
    assert counts["train"]["with a blank side"] == 1
    assert (counts["train"]["kept"], counts["test"]["kept"]) == (49, 4)


def test_offline_is_said_within_seconds(context, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("would try for half a minute"))
    started = time.monotonic()
    with pytest.raises(FetchError) as error:
        prepare("wmt", HUB, context)
    assert time.monotonic() - started < 5
    for part in ("org/set (fr-en)", str(context.cache / "hub"), "offline", "data=toy_reverse", "data=bible_enfr"):
        assert part in str(error.value)


def test_a_hub_that_does_not_answer_is_given_up(context, monkeypatch):
    seen = {}

    def info(*_, timeout, **__):
        seen["timeout"] = timeout
        raise ConnectionError("timed out")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    with pytest.raises(FetchError, match="timed out"):
        HUB.pairs(context, {})
    assert seen["timeout"] <= 10


def test_a_language_the_set_has_not_is_named(hub, context):
    with pytest.raises(ValueError, match=r"org/set: got a row .*, expected translation\.de"):
        prepare("wmt", HUB, type(context)(context.cache, "en", "de"))
