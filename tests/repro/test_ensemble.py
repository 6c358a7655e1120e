"""Rows of finished rows: what they need, what they are made of, and unknown words replaced in their tests."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from reproductions.compose import Job
from reproductions.config import Decode
from reproductions.launcher import Board, finished, launch, work
from reproductions.translate import Translator, load

Maker = Callable[..., Job]
SMALL = ("data.source_vocab_size=10", "data.target_vocab_size=10", "decode.dictionary_pairs=100")


def records(job: Job, name: str) -> list[dict]:
    return [json.loads(line) for line in (job.folder / "sentences" / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def member(tiny: Maker, runs: Path) -> Job:
    job = tiny(*SMALL, "budget.target_tokens=20000", runs=runs)
    assert work(job) == 0
    return job


def together(tiny: Maker, runs: Path, *members: str, unknown: str = "replace") -> Job:
    quoted = ",".join(f"'{member}'" for member in members)
    return tiny(*SMALL, f"ensemble=[{quoted}]", f"decode.unknown={unknown}", runs=runs)


def test_replaced_words_stand_where_the_model_looked(member: Job) -> None:
    plain, replaced = records(member, "test"), records(member, "test.unk_replaced")
    metrics = json.loads((member.folder / "result.json").read_text())["metrics"]
    assert any("<unk>" in r["hypothesis_tok"].split() for r in plain)
    for before, after in zip(plain, replaced, strict=True):
        words = list(zip(before["hypothesis_tok"].split(), after["hypothesis_tok"].split(), strict=True))
        assert all(a == b or a == "<unk>" for a, b in words) and "<unk>" not in after["hypothesis_tok"].split()
    assert metrics["test.unk_replaced/bleu"]["value"] > metrics["test/bleu"]["value"]


def test_a_row_of_one_is_that_row_with_its_words_replaced(tiny: Maker, member: Job, runs: Path) -> None:
    row = together(tiny, runs, member.config["row"])
    assert not finished(row) and work(row) == 0 and finished(row)
    assert [r["hypothesis_tok"] for r in records(row, "test")] == [
        r["hypothesis_tok"] for r in records(member, "test.unk_replaced")
    ]
    assert [r["nll"] for r in records(row, "test")] == pytest.approx(
        [r["nll"] for r in records(member, "test")], rel=1e-4
    )
    assert not (row.folder / "sentences" / "test.unk_replaced.jsonl").exists()


def test_translate_takes_an_ensemble_and_replaces_as_it_was_tested(tiny: Maker, member: Job, runs: Path) -> None:
    row = together(tiny, runs, member.config["row"])
    assert work(row) == 0
    module, data, config = load(row.folder)
    stored = records(row, "test")
    found = Translator(module, data, Decode(**config["decode"]))([r["source"] for r in stored])
    assert [line.hypotheses[0].text for line in found] == [r["hypothesis"] for r in stored]
    result = json.loads((row.folder / "result.json").read_text())
    (row.folder / "result.json").write_text(json.dumps(result | {"members": {member.config["row"]: "0"}}))
    with pytest.raises(ValueError, match="was tested with other weights of rnnsearch_50"):
        load(row.folder)
    (row.folder / "result.json").write_text(json.dumps(result))


def test_other_weights_of_a_member_make_it_unfinished(tiny: Maker, member: Job, runs: Path) -> None:
    row = together(tiny, runs, member.config["row"])
    assert work(row) == 0 and finished(row)
    file = member.folder / "tested.ckpt"
    kept, weights = file.read_bytes(), torch.load(file, weights_only=False)
    next(iter(weights["state_dict"].values())).add_(1)
    torch.save(weights, file)
    assert not finished(row)
    file.write_bytes(kept)
    assert finished(row)


def test_a_member_that_is_not_there_is_named(tiny: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = together(tiny, tmp_path, "rnnsearch_50")
    assert work(row) == 1 and not finished(row)
    assert "rnnsearch_50-s1 has no config.yaml: expected the folder of a finished run" in capsys.readouterr().err


def test_members_go_first(tiny: Maker, tmp_path: Path) -> None:
    """Whatever the order of the list; a member that failed is no longer waited for."""
    member = tiny(*SMALL, runs=tmp_path)
    row = together(tiny, tmp_path, member.config["row"])
    board = Board([row, member], None, 2)
    assert board.ready([row, member], []) is member and board.ready([row], []) is row
    assert launch([row, member], None) == 0 and finished(row)


def test_a_finished_run_loads_as_it_was_tested(member: Job) -> None:
    module, _, config = load(member.folder)
    assert config["row"] == member.config["row"] and not module.training
    tested = torch.load(member.folder / "tested.ckpt", weights_only=False)["state_dict"]
    assert all(torch.equal(value, tested[name]) for name, value in module.state_dict().items())
    with pytest.raises(ValueError, match="replace needs dictionary_pairs"):
        Decode(**(config["decode"] | {"dictionary_pairs": 0, "unknown": "replace"}))
