"""Rows that model text or classify documents, run through the same code as every other row."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.lit.text import Classifier, LanguageModel, MaskedLanguageModel
from common.report.measures import Measure
from common.report.results import read_run
from data.stream import Item
from data.token_batch import LabelBatch, TokenBatch
from reproductions.compose import Job, job
from reproductions.items import scored_items
from reproductions.launcher import Board, finished, launch, unfinished, work
from reproductions.translate import load

VOCABULARY = 8
BASE = ("scale=smoke", "logger=csv", "checkpoint.every=5", "data.source.train=20")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def made(row: str, runs: Path, cache: Path, *overrides: str) -> Job:
    given = (f"experiment=longformer_bigbird/{row}", *BASE, f"paths.runs={runs}", f"data.cache={cache}")
    return job((*given, *overrides), None)


def records(job: Job, split: str = "test") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.folder / "items" / f"{split}.jsonl").read_text().splitlines()]


def result(job: Job) -> dict[str, Any]:
    return json.loads((job.folder / "result.json").read_text())


class Fixed(nn.Module):
    """Logits that depend on the token alone: log of a table's rows."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table.log())

    def forward(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.table[tokens]


class OfFirst(Fixed):
    """Of the first token of each document."""

    def forward(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.table[tokens[:, 0]]


def module_of(kind: type, model: nn.Module) -> Any:
    return kind(
        model, optimizer=torch.optim.SGD, schedule=lambda *_: 1.0, total_updates=1, clip_norm=1.0, dev_items=9, seed=1
    )


def data_of(batches: Sequence[Any], names: Sequence[str]) -> Any:
    def eval_batches(split: str) -> Iterator[Any]:
        return iter(batches)

    def item_of(split: str, batch: Any) -> Tensor:
        counts = batch.scored.sum(1) if isinstance(batch, TokenBatch) else torch.ones_like(batch.label)
        return batch.index.repeat_interleave(counts)

    items = [Item(n, n[0], len(n)) for n in names]
    return SimpleNamespace(eval_batches=eval_batches, items=lambda split: items, item_of=item_of)


@pytest.mark.parametrize("kind", [LanguageModel, MaskedLanguageModel])
def test_each_item_has_the_bits_of_its_own_scored_symbols(kind: type) -> None:
    """After symbol 5 the model gives 1/2 to symbol 6 and 1/14 to the seven others; the second batch comes in another order
    than the items, and what is not scored counts nowhere."""
    table = torch.full((VOCABULARY, VOCABULARY), 1 / VOCABULARY)
    table[5] = 1 / 14
    table[5, 6] = 1 / 2
    of = lambda rows: torch.tensor(rows)
    first = TokenBatch.of(
        of([[5, 4, 0]]), of([[6, 7, 0]]), of([[True, True, False]]), of([[True, True, False]]), of([1])
    )
    second = TokenBatch.of(
        of([[5, 5, 5], [4, 4, 4]]),
        of([[6, 4, 6], [4, 4, 4]]),
        of([[True, True, False], [False, False, True]]),
        torch.ones(2, 3, dtype=torch.bool),
        of([2, 0]),
    )
    module, data = module_of(kind, Fixed(table)), data_of([first, second], ["a", "bb", "ccc"])
    found = scored_items(module, data, "test")
    assert [scored_items(module, data, "test", count) for count in (1, 2)] == [found[:1], found[:2]]
    bits = [record["nll"] / math.log(2) for record in found]
    assert bits == pytest.approx([3.0, 1 + 3, 1 + math.log2(14)], rel=1e-6)
    assert [record["targets"] for record in found] == [1, 2, 2]
    assert [record["hits"] for record in found][1:] == [1, 1]
    assert [(record["id"], record["cluster"], record["length"]) for record in found][2] == ("ccc", "c", 3)


def test_a_document_is_one_target() -> None:
    table = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    batch = LabelBatch.of(torch.tensor([[1, 1], [0, 1]]), torch.tensor([2, 1]), index=torch.tensor([1, 0]))
    found = scored_items(module_of(Classifier, OfFirst(table)), data_of([batch], ["x", "y"]), "test")
    assert [r["nll"] for r in found] == pytest.approx([-math.log(0.2), -math.log(0.8)])
    assert [(r["hits"], r["targets"]) for r in found] == [(0, 1), (1, 1)]


@pytest.fixture(scope="module")
def language_model(runs: Path, cache: Path) -> Job:
    trained = made("lm_longformer", runs, cache, "recipe.tokens.two=6000")
    assert work(trained) == 0
    return trained


def test_recorded_scores_are_those_of_the_items(language_model: Job) -> None:
    found, metrics = records(language_model), result(language_model)["metrics"]
    bits = sum(r["nll"] for r in found) / math.log(2) / sum(r["targets"] for r in found)
    assert metrics["test/bits"]["value"] == pytest.approx(bits)
    assert metrics["test/accuracy"]["value"] == pytest.approx(
        100 * sum(r["hits"] for r in found) / sum(r["targets"] for r in found)
    )
    folder = language_model.folder
    run = read_run(folder, "longformer_bigbird", "smoke", lambda config: result(language_model)["source_hash"])
    items = run.items(Measure("bits", "test"))
    assert items is not None
    assert items.statistics["bits"].sum(0)[0] / items.statistics["bits"].sum(0)[1] == pytest.approx(bits)


def test_a_finished_row_of_text_is_not_trained_again(language_model: Job) -> None:
    assert finished(language_model)


def test_translate_refuses_a_language_model(language_model: Job) -> None:
    with pytest.raises(ValueError, match=r"NextSymbol, expected a translation model"):
        load(language_model.folder)


@pytest.fixture(scope="module")
def short(runs: Path, cache: Path) -> Job:
    trained = made("mlm_short", runs, cache, "recipe.targets.ten=1500")
    assert work(trained) == 0
    return trained


def renamed(short: Job, row: str, runs: Path, cache: Path, *overrides: str) -> Job:
    return made(row, runs, cache, f"warm_start.row='{short.config['row']}'", *overrides)


def test_a_row_without_updates_is_the_other_rows_model(short: Job, runs: Path, cache: Path) -> None:
    """Windows over all of the same length are full attention: then nothing is different, not even a score."""
    same = ("model.attention.window=16", "data.length=16", "data.batch=32")
    row = renamed(short, "mlm_copied", runs, cache, *same)
    assert not finished(row) and work(row) == 0 and finished(row)
    assert [r["nll"] for r in records(row)] == pytest.approx([r["nll"] for r in records(short)], rel=1e-5)
    assert result(row)["train"]["updates"] == 0 and set(result(row)["members"]) == {short.config["row"]}


def test_other_weights_to_start_from_make_a_row_unfinished(short: Job, runs: Path, cache: Path) -> None:
    row = renamed(short, "mlm_copied", runs, cache)
    assert work(row) == 0 and finished(row)
    file = short.folder / "tested.ckpt"
    kept = file.read_bytes()
    try:
        file.write_bytes(kept + b" ")
        assert not finished(row)
    finally:
        file.write_bytes(kept)


def test_a_row_is_run_again_with_the_one_that_it_starts_from(short: Job, runs: Path, cache: Path) -> None:
    row = renamed(short, "mlm_copied", runs, cache)
    assert work(row) == 0 and unfinished([row, short]) == []
    again = Job(short.overrides, short.config | {"fresh": True}, short.ablation)
    assert unfinished([row, again]) == [row, again]


def test_a_killed_row_goes_on_only_from_what_it_started_from(short: Job, runs: Path, cache: Path) -> None:
    row = renamed(short, "mlm_copied", runs, cache)
    assert work(row) == 0
    identity = json.loads((row.folder / "identity.json").read_text())
    assert identity[short.config["row"]] == hashlib.sha256((short.folder / "tested.ckpt").read_bytes()).hexdigest()


def test_a_row_waits_for_the_one_that_it_starts_from(short: Job, runs: Path, cache: Path) -> None:
    row = renamed(short, "mlm_copied_2k", runs, cache)
    board = Board([row, short], None, 2)
    assert board.ready([row, short], []) is short
    assert board.ready([row], []) is row


def test_a_row_whose_start_is_missing_says_so(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = made("mlm_copied", tmp_path, cache)
    assert work(row) == 1
    assert "mlm_short-s1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("decode=beam",), "decode: got settings, expected none"),
        (("budget.updates=0", "budget.target_tokens=null"), "budget.updates: got 0"),
        (("ensemble=[lm_window]",), "only translation models are tested together"),
        (("task.splits=[test]", "model.attention.windw=3"), "windw"),
    ],
)
def test_settings_of_another_task_are_errors(
    tmp_path: Path, cache: Path, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        made("lm_window", tmp_path, cache, *overrides)


def test_a_split_that_is_not_there_is_an_error_before_training(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = made("lm_window", tmp_path, cache, "task.splits=[test_long]")
    assert work(row) == 1
    assert "task.splits: got test_long, expected of train, dev, test" in capsys.readouterr().err
    assert not os.path.exists(row.folder / "curves.csv")


@pytest.mark.parametrize(("row", "longest"), [("doc_longformer", 64), ("mlm_longformer", 64)])
def test_a_table_of_positions_that_is_too_short_is_an_error_before_training(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], row: str, longest: int
) -> None:
    made_row = made(row, tmp_path, cache, "model.max_length=20")
    assert work(made_row) == 1
    assert f"model.max_length: got 20, expected {longest} or more" in capsys.readouterr().err
    assert not (made_row.folder / "curves.csv").exists()


def test_documents_and_their_estimate(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = made("doc_longformer", tmp_path, cache, "recipe.documents=200")
    assert launch([row], None) == 0
    assert "1 jobs" in capsys.readouterr().out
    found = records(row)
    assert {r["targets"] for r in found} == {1} and result(row)["train"]["target_tokens"] >= 200
    accuracy = 100 * sum(r["hits"] for r in found) / len(found)
    assert result(row)["metrics"]["test/accuracy"]["value"] == pytest.approx(accuracy)
