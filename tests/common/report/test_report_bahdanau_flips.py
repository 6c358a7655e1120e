"""The real claims on runs with known quality: each verdict turns when the runs are turned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from common.report.claims import load_claims
from common.report.compare import evaluate
from common.report.published import load_published
from common.report.results import load_results
from tests.common.report.conftest import PAPER
from tests.common.report.fake_runs import FakeRuns, Quality

GAPS = {
    "attention_gain_50": ("rnnsearch_50", "rnnencdec_50"),
    "attention_gain_50_no_unk": ("rnnsearch_50", "rnnencdec_50"),
    "attention_gain_30": ("rnnsearch_30", "rnnencdec_30"),
    "short_training_beats_encdec_50": ("rnnsearch_30", "rnnencdec_50"),
    "longer_training_helps": ("rnnsearch_50_star", "rnnsearch_50"),
}


@pytest.fixture(scope="module")
def clear_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs in which every claim of the paper holds clearly."""
    root = tmp_path_factory.mktemp("clear")
    qualities = {
        "rnnencdec_30": Quality(0.40, 0.05),
        "rnnsearch_30": Quality(0.56, 0.0),
        "rnnencdec_50": Quality(0.50, 0.06),
        "rnnsearch_50": Quality(0.58, -0.015),
        "rnnsearch_50_star": Quality(0.66, -0.015),
    }
    return FakeRuns(root, qualities=qualities, sizes={"test": 240, "test_long": 400}, seeds=(1,)).build()


def outcomes(runs: Path) -> dict[str, str]:
    published = load_published(PAPER / "published.yaml")
    claims = load_claims(PAPER / "claims.yaml", published)
    found = load_results(runs, "bahdanau", "small", lambda config: "5f3a9c21")
    return {o.claim.id: o.verdict for o in evaluate(claims, found, resamples=300)}


def swapped(runs: Path, target: Path, first: str, second: str) -> Path:
    """A copy of the runs in which two rows have changed places."""
    shutil.copytree(runs, target)
    folder = target / "bahdanau" / "small"
    names = [f"{row}-s1" for row in (first, second)]
    (folder / names[0]).rename(folder / "aside")
    (folder / names[1]).rename(folder / names[0])
    (folder / "aside").rename(folder / names[1])
    for row, name in zip((first, second), names, strict=True):
        file = folder / name / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"row": row}))
    return target


def test_every_claim_can_be_upheld(clear_runs: Path):
    found = outcomes(clear_runs)
    assert set(found.values()) <= {"reproduced", "direction only"}
    assert len(found) == 10


@pytest.mark.parametrize("claim", GAPS)
def test_swapped_rows_contradict_a_gap(clear_runs: Path, tmp_path: Path, claim: str):
    assert outcomes(swapped(clear_runs, tmp_path / "runs", *GAPS[claim]))[claim] == "contradicted"


def test_swapped_rows_contradict_the_claims_about_length(clear_runs: Path, tmp_path: Path):
    found = outcomes(swapped(clear_runs, tmp_path / "runs", "rnnsearch_50", "rnnencdec_50"))
    assert found["attention_falls_less"] == "contradicted"
    assert found["encdec_falls_with_length"] in ("contradicted", "inconclusive")
    assert found["no_deterioration_beyond_50"] == "contradicted"


def rewrite(runs: Path, target: Path, name: str, change) -> Path:
    """A copy of the runs with one sentence file of every run changed: change(records) in place."""
    shutil.copytree(runs, target)
    for file in target.glob(f"bahdanau/small/*/sentences/{name}"):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        change(records)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return target


def without_lengths(records: list[dict]) -> None:
    """Every length is that of a sentence with another translation: the link between length and score is cut."""
    lengths = [record["source_tokens"] for record in records]
    for record, length in zip(records, lengths[7:] + lengths[:7], strict=True):
        record["source_tokens"] = length


def test_without_the_link_to_length_there_is_no_fall(clear_runs: Path, tmp_path: Path):
    runs = rewrite(clear_runs, tmp_path / "runs", "test.jsonl", without_lengths)
    found = outcomes(runs)
    assert found["encdec_falls_with_length"] == "inconclusive"
    assert found["attention_falls_less"] == "inconclusive"
    assert found["encdec_falls_to_80"] != "inconclusive", "it reads the other test set"


def test_translations_of_other_sentences_show_no_gain(clear_runs: Path, tmp_path: Path):
    """References shuffled: n-grams match by chance alone, in every row alike."""
    from tests.common.report.fake_runs import add_statistics

    def shuffle(records: list[dict]) -> None:
        hypotheses = [record["hypothesis_tok"] for record in records]
        add_statistics(records, hypotheses[11:] + hypotheses[:11], [record["reference_tok"] for record in records])

    runs = rewrite(clear_runs, tmp_path / "runs", "test.jsonl", shuffle)
    assert outcomes(runs)["attention_gain_50"] == "inconclusive"


def test_alignments_no_better_than_shuffled_ones_are_not_monotone(clear_runs: Path, tmp_path: Path):
    shutil.copytree(clear_runs, tmp_path / "runs")
    for file in (tmp_path / "runs").glob("bahdanau/small/rnnsearch_50-s*/alignments.json"):
        record = json.loads(file.read_text())
        record["monotone"] = [{**line, "statistic": -line["statistic"]} for line in record["monotone"]]
        file.write_text(json.dumps(record))
    assert outcomes(tmp_path / "runs")["alignments_largely_monotone"] == "contradicted"
