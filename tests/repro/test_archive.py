"""The runs behind a tracked report, in one file."""

import json
import tarfile
from pathlib import Path

import pytest

from common.report.render.markdown import markdown
from reproductions import archive
from reproductions.report import make_report
from tests.common.report.fake_runs import FakeRuns

SOURCE = "5f3a9c21"  # the hash that the fake runs carry


def packed(runs: Path, file: Path) -> None:
    archive.pack(make_report("bahdanau", "small", runs, lambda config: SOURCE).results, file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FakeRuns(tmp_path_factory.mktemp("runs"), sizes={"test": 40, "test_long": 80}, seeds=(1,)).build()


@pytest.fixture(scope="module")
def stored(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("stored") / "runs.small.tar.xz"
    packed(runs, file)
    return file


def test_a_report_of_what_was_unpacked_has_the_same_tables_and_verdicts(
    runs: Path, stored: Path, tmp_path: Path
) -> None:
    assert archive.unpack(stored, tmp_path) == (5, 0)
    told, again = (make_report("bahdanau", "small", folder, lambda config: SOURCE) for folder in (runs, tmp_path))
    assert told.outcomes == again.outcomes and told.tables == again.tables and told.runs == again.runs
    assert "reproduced" in markdown(again)


def test_text_and_weights_are_left_out(runs: Path, stored: Path, tmp_path: Path) -> None:
    weights = runs / "bahdanau" / "small" / "rnnsearch_50-s1" / "tested.ckpt"
    weights.write_bytes(b"weights")
    packed(runs, tmp_path / "again.tar.xz")
    weights.unlink()
    assert (tmp_path / "again.tar.xz").read_bytes() == stored.read_bytes()
    with tarfile.open(stored) as file:
        names = file.getnames()
    assert names and not [name for name in names if name.endswith(".ckpt")]
    archive.unpack(stored, tmp_path)
    folder = Path("bahdanau/small/rnnsearch_50-s1")
    for name in ("sentences/test.jsonl", "alignments.json"):
        before, after = (root / folder / name for root in (runs, tmp_path))
        words = json.loads(before.read_text().splitlines()[0])["source"] if name.startswith("sent") else "source"
        assert words in before.read_text() and words not in after.read_text()


def test_what_is_there_stays_as_it_is(stored: Path, tmp_path: Path) -> None:
    own = tmp_path / "bahdanau" / "small" / "rnnsearch_50-s1" / "result.json"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    assert archive.unpack(stored, tmp_path) == (4, 1)
    assert own.read_text() == "mine" and [file.name for file in own.parent.iterdir()] == ["result.json"]


def test_the_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert archive.main(["paper=bahdanau", "scale=paper", f"runs={tmp_path}"], tmp_path) == 2
    assert "no stored runs: " in capsys.readouterr().err
    assert archive.main(["pape=bahdanau"], tmp_path) == 2
    assert "expected paper=<paper>" in capsys.readouterr().err
