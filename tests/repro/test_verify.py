"""A finished run is what it says, or one line says what is not."""

import json
import shutil
from pathlib import Path

import pytest

from reproductions.compose import job
from reproductions.launcher import work
from reproductions.manifest import NAME, write_manifest
from reproductions.verify import main

TEXT = ("experiment=longformer_bigbird/lm_longformer", "scale=smoke", "logger=csv", "recipe.tokens.two=3000")
PAIRS = ("experiment=bahdanau/rnnsearch_50", "scale=smoke", "logger=csv", "model.hidden=8", "budget.target_tokens=500")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Path]:
    runs = tmp_path_factory.mktemp("runs")
    jobs = {
        name: job((*o, f"paths.runs={runs}", f"data.cache={cache}"), None)
        for name, o in (("text", TEXT), ("pairs", PAIRS))
    }
    assert not any(work(one) for one in jobs.values())
    return {name: one.folder for name, one in jobs.items()}


@pytest.fixture
def runs(made: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    return {name: Path(shutil.copytree(folder, tmp_path / name)) for name, folder in made.items()}


def said(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([f"run={folder}", *more])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_a_run_is_as_it_was_and_again_the_same(
    runs: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(runs[name], capsys, "again=true") == (0, f"{runs[name]}: as it was\n")


def test_a_changed_byte_of_any_file_is_seen(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for folder in runs.values():
        names = json.loads((folder / NAME).read_text())
        assert {"result.json", "config.yaml", "curves.csv", "tested.ckpt"} < set(names)
        assert any(name.startswith(("items/", "sentences/")) for name in names)
        for name in (*names, NAME):
            before = (folder / name).read_bytes()
            (folder / name).write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
            code, text = said(folder, capsys)
            assert code == 1 and (name == NAME or f"{folder / name} was changed since the run" in text), name
            (folder / name).write_bytes(before)
        (folder / "curves.csv").unlink()
        assert "curves.csv is gone" in said(folder, capsys)[1]


def edit(file: Path, old: str, new: str) -> None:
    """And leave no trace of it in the manifest."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    write_manifest(next(folder for folder in file.parents if (folder / NAME).exists()))


def test_scores_are_those_of_the_outputs(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads((runs["text"] / "items" / "test.jsonl").read_text().splitlines()[0])
    edit(runs["text"] / "items" / "test.jsonl", f'"nll": {line["nll"]}', f'"nll": {line["nll"] + 1}')
    code, text = said(runs["text"], capsys)
    assert code == 1 and "test/bits: result.json says" in text
    line = json.loads((runs["pairs"] / "sentences" / "test.jsonl").read_text().splitlines()[0])
    edit(runs["pairs"] / "sentences" / "test.jsonl", f'"hypothesis": "{line["hypothesis"]}', '"hypothesis": "another')
    code, text = said(runs["pairs"], capsys)
    assert code == 1 and "sentence test 1: got" in text


def test_configuration_sources_and_data_are_those_of_the_hashes(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    edit(runs["text"] / "config.yaml", "seed: 1\n", "seed: 2\n")
    assert "config.yaml: its hash is" in said(runs["text"], capsys)[1]
    for key, place in (("source_hash", "sources: the present ones"), ("data_checksum", ": checksum ")):
        edit(runs["pairs"] / "result.json", json.loads((runs["pairs"] / "result.json").read_text())[key], "0" * 64)
        assert place in said(runs["pairs"], capsys)[1]


def test_what_is_no_run_is_explained(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(tmp_path, capsys)
    assert code == 2 and "expected the folder of a finished run" in text
    (runs["text"] / NAME).unlink()
    code, text = said(runs["text"], capsys)
    assert code == 2 and "not one from an archive" in text
    assert main(["runs=x"]) == 2
