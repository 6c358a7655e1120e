"""A row of the Transformer, trained and tested as every other: what it leaves beside its translations."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from common.report.heads import read_heads
from reproductions.compose import Job
from reproductions.job import run


@pytest.fixture(scope="module")
def tested(tiny: Callable[..., Job]) -> Job:
    learns = ("budget.target_tokens=60000", "optim.optimizer.lr=2.0", "model.dropout=0.0")
    job = tiny("data.subword.size=90", "model.heads=2", *learns, paper="transformer", row="base")
    run(job.config, job.folder, [])
    return job


def test_what_its_heads_look_at_is_kept(tested: Job) -> None:
    """By layer and head, of whole translations; distributions over what may be seen."""
    drawn = read_heads(tested.folder / "heads.json")
    assert len(drawn) == 2
    for heads in drawn:
        assert set(heads.maps) == {(kind, 1) for kind in ("encoder", "decoder", "cross")}
        for (kind, _), weights in heads.maps.items():
            assert len(weights) == 2
            assert np.abs(weights.sum(-1) - 1).max() <= 0.005 * weights.shape[-1], "rounded to percents"
            assert kind != "decoder" or not np.triu(weights, 1).any()


def test_its_compute_is_what_it_saw_times_that_of_a_token(tested: Job) -> None:
    train = json.loads((tested.folder / "result.json").read_text())["train"]
    assert train["flops"] == train["flops_per_token"] * train["target_tokens"] > 0


def test_scores_are_of_the_split_that_the_row_names(tested: Job) -> None:
    metrics = json.loads((tested.folder / "result.json").read_text())["metrics"]
    assert {name.split("/")[0].split(".")[0] for name in metrics} == {"dev"}
    assert (Path(tested.folder) / "sentences" / "dev.jsonl").is_file()
