"""A tiny real job on generated data, run through the same code as every other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reproductions.compose import Job, job

TINY = (
    "scale=smoke",
    "logger=csv",
    "budget.target_tokens=9000",
    "data.batch.size=16",
    "checkpoint.every=5",
    "decode.beam=1",
    "data.source.train=300",
    "data.source.dev=20",
    "data.source.test=30",
    "data.source.test_long=10",
    "model.dropout=0.2",
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Callable[..., Job]:
    """A job of a row of a table, small enough for a test; runs lie in a folder of their own."""

    def make(*overrides: str, row: str = "rnnsearch_50", paper: str = "bahdanau", runs: Path | None = None) -> Job:
        runs = runs or tmp_path_factory.mktemp("runs")
        return job((f"experiment={paper}/{row}", *TINY, f"paths.runs={runs}", f"data.cache={cache}", *overrides), None)

    return make
