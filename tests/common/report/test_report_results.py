"""Runs on disk: seeds grouped into rows, ablations apart, failed, stale and broken runs each told."""

import json
from pathlib import Path

import pytest

from common.report.measures import Field, Measure
from common.report.results import load_results
from tests.common.report.planted import Sentence, corpus, plant, results


def test_seeds_are_grouped_into_rows_in_order(tmp_path: Path):
    for seed in (10, 2, 1):
        plant(tmp_path, "good", seed, corpus(lambda words: 20))
    row = results(tmp_path).rows["good"]
    assert [run.seed for run in row.runs] == [1, 2, 10]
    assert (row.label, row.base, row.stale, len(row.ok)) == ("GOOD", None, False, 3)


def test_ablations_are_kept_apart(tmp_path: Path):
    plant(tmp_path, "good", 1, corpus(lambda words: 20))
    plant(tmp_path, "good+model.hidden=8", 1, corpus(lambda words: 20), ablation=["model.hidden=8"])
    found = results(tmp_path)
    assert [row.id for row in found.papers] == ["good"]
    assert [(row.id, row.base) for row in found.ablations] == [("good+model.hidden=8", "good")]


def test_no_folder_gives_no_rows(tmp_path: Path):
    assert results(tmp_path).rows == {}


def test_a_folder_without_a_result_is_unfinished(tmp_path: Path):
    (plant(tmp_path, "good", 1, []) / "result.json").unlink()
    assert results(tmp_path).unfinished == ("good-s1",)


def test_a_failed_run_needs_no_more_than_its_error(tmp_path: Path):
    folder = plant(tmp_path, "good", 1, [])
    keys = ("paper", "row", "label", "seed", "scale")
    record = {key: value for key, value in json.loads((folder / "result.json").read_text()).items() if key in keys}
    (folder / "result.json").write_text(json.dumps(record | {"status": "failed", "error": "no memory"}))
    [run] = results(tmp_path).rows["good"].runs
    assert (run.ok, run.error, run.stale) == (False, "no memory", False)


def test_a_run_is_stale_when_the_code_of_its_config_has_another_hash(tmp_path: Path):
    for row, width in (("good", 8), ("poor", 16)):
        (plant(tmp_path, row, 1, []) / "config.yaml").write_text(f"model: {{width: {width}}}")
    found = load_results(
        tmp_path, "demo", "small", lambda config: "current" if config["model"]["width"] == 8 else "new"
    )
    assert [found.rows[row].stale for row in ("good", "poor")] == [False, True]


def test_fields_are_read_by_path(tmp_path: Path):
    plant(tmp_path, "good", 1, [], train={"seconds": 7200}, hardware={"cpu": "x"})
    [run] = results(tmp_path).runs
    assert run.number(Field("train.seconds", 1 / 3600)) == 2.0
    assert run.number(Field("train.hours")) is None
    assert run.number(Field("hardware.cpu")) is None
    assert run.field("hardware.cpu") == "x"


def test_the_training_limit_is_that_of_the_config(tmp_path: Path):
    folder = plant(tmp_path, "good", 1, [])
    [run] = results(tmp_path).runs
    assert run.max_words is None
    (folder / "config.yaml").write_text("data: {max_words: 30}")
    assert run.max_words == 30


def test_the_command_is_the_recorded_one_or_the_make_target(tmp_path: Path):
    plant(tmp_path, "good", 1, [], command="python -m reproductions.train seed=1")
    plant(tmp_path, "good+model.hidden=8", 2, [], ablation=["model.hidden=8"])
    commands = [run.command for run in results(tmp_path).runs]
    assert commands == [
        'make repro-demo SCALE=small ROW=good SEEDS=2 ARGS="model.hidden=8"',
        "python -m reproductions.train seed=1",
    ]


def test_sentences_become_arrays(tmp_path: Path):
    plant(tmp_path, "good", 1, [Sentence(0, 12, 20, -1.5), Sentence(3, 7, 30, -2.0)])
    [run] = results(tmp_path).runs
    items = run.items(Measure("log_likelihood"))
    assert items is not None
    assert items.clusters == ("chapter 0", "chapter 3")
    assert items.statistics["log_likelihood"].tolist() == [[-18.0, 12.0], [-14.0, 7.0]]
    assert items.statistics["bleu"].shape == (2, 10)
    assert items.source_tokens is not None and items.source_tokens.tolist() == [12, 7]
    assert run.items(Measure("bleu", split="test_long")) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": "other"}, "row, seed: got 'other-s1', expected 'good-s1' from the folder's path"),
        ({"scale": "paper"}, "scale: got 'paper', expected 'small' from the folder's path"),
        ({"paper": "else"}, "paper: got 'else', expected 'demo' from the folder's path"),
        ({"status": "xyz"}, "status: got 'xyz', expected one of failed, ok"),
        ({"seed": "1"}, "seed: expected a whole number, got str '1'"),
        ({"data_checksum": None}, "data_checksum: missing, expected text"),
        ({"source_hash": None}, "source_hash: missing, expected text"),
        ({"status": "failed"}, "error: missing, expected text"),
    ],
)
def test_a_broken_result_is_named(tmp_path: Path, change: dict, message: str):
    folder = plant(tmp_path, "good", 1, [])
    record = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(record | change))
    with pytest.raises(ValueError) as error:
        results(tmp_path)
    assert str(error.value) == f"{folder}/result.json: {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bleu": [1, 2]}, "line 2.bleu: expected 10 numbers, got 2"),
        ({"chrf": None}, "line 2.chrf: missing, expected a list"),
        ({"nll": "3"}, "line 2.nll: expected a number, got str '3'"),
        ({"id": "s0"}, "id 's0' occurs twice, expected one line per sentence"),
    ],
)
def test_a_broken_sentence_is_named(tmp_path: Path, change: dict, message: str):
    file = plant(tmp_path, "good", 1, corpus(lambda words: 20)) / "sentences" / "test.jsonl"
    lines = file.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    file.write_text("\n".join(lines))
    [run] = results(tmp_path).runs
    with pytest.raises(ValueError) as error:
        run.items(Measure("bleu"))
    assert str(error.value) == f"{file}: {message}"


def test_a_line_that_is_no_json_is_named(tmp_path: Path):
    file = plant(tmp_path, "good", 1, []) / "sentences" / "test.jsonl"
    file.write_text("{}x")
    [run] = results(tmp_path).runs
    with pytest.raises(ValueError, match=r"test\.jsonl: line 1: not valid JSON"):
        run.items(Measure("bleu"))


def test_an_alignment_must_fit_its_words(tmp_path: Path):
    folder = plant(tmp_path, "good", 1, [])
    drawn = {"id": "a", "source": ["x", "y"], "target": ["z"], "weights": [[0.5, 0.5]]}
    (folder / "alignments.json").write_text(json.dumps({"alignments": [drawn], "monotone": []}))
    [run] = results(tmp_path).runs
    assert run.alignments()[0].weights.shape == (1, 2)
    (folder / "alignments.json").write_text(json.dumps({"alignments": [drawn | {"source": ["x"]}], "monotone": []}))
    with pytest.raises(ValueError, match=r"alignments\[0\]\.weights: expected 1 x 1 \(target x source\), got \(1, 2\)"):
        run.alignments()


def test_curves_leave_blanks_out(tmp_path: Path):
    folder = plant(tmp_path, "good", 1, [])
    (folder / "curves.csv").write_text("update,target_tokens,train_nll,dev_nll\n50,100,3.5,\n100,200,3.0,4.0\n")
    [run] = results(tmp_path).runs
    assert run.curves()["train_nll"] == [(100.0, 3.5), (200.0, 3.0)]
    assert run.curves()["dev_nll"] == [(200.0, 4.0)]
