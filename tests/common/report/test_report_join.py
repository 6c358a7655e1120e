"""What a report holds: every row, every claim, what failed, what is stale, what was not run and why."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from common.report.scores import bleu
from common.report.stats import Estimate
from common.report.views import Cell, Report, RowView
from tests.common.report.conftest import make_report
from tests.common.report.fake_runs import FakeRuns


def row(report: Report, name: str, table: int = 0) -> RowView:
    return next(row for row in report.tables[table].rows if row.id == name)


def test_ours_stands_beside_published(report: Report):
    cell = row(report, "rnnsearch_50").cells[0]
    assert isinstance(cell.ours, Estimate) and isinstance(cell.difference, Estimate)
    assert cell.published == 26.75
    assert cell.difference.value == pytest.approx(cell.ours.value - 26.75)
    assert cell.difference.low == pytest.approx(cell.ours.low - 26.75)
    assert [seed for seed, _ in cell.seeds] == [1, 2]
    assert sum(value for _, value in cell.seeds) / 2 == pytest.approx(cell.ours.value)
    assert cell.within is None  # another scale than the paper's


def test_our_score_is_that_of_the_texts(report: Report):
    """Independently: sacreBLEU over the stored texts of one run."""
    file = report.results.rows["rnnsearch_50"].ok[0].folder / "sentences" / "test.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    scorer = BLEU(tokenize="none", force=True)
    expected = scorer.corpus_score([r["hypothesis_tok"] for r in records], [[r["reference_tok"] for r in records]])
    assert row(report, "rnnsearch_50").cells[0].seeds[0] == (1, pytest.approx(expected.score, abs=1e-9))


def test_no_unk_reads_its_own_sentences(report: Report):
    counts = report.tables[0].counts
    assert counts["bleu_all"] == 90
    assert 0 < counts["bleu_no_unk"] < 90


def test_the_same_hypotheses_under_each_scorer(report: Report):
    assert report.scorers is not None
    first, scored = row(report, "rnnsearch_50").cells[0], report.scorers.rows
    again = next(line for line in scored if line.id == "rnnsearch_50").cells
    assert again[0].ours == first.ours
    assert [metric.name for metric in report.scorers.metrics] == ["bleu", "bleu_detok", "chrf"]
    assert report.scorers.signatures[0] == "recorded-signature"
    assert "tok:13a" in report.scorers.signatures[1]


def test_a_failed_row_says_so(report: Report):
    view = row(report, "rnnsearch_30")
    assert view.note == "failed (seed 2): MemoryError: <full>"
    assert view.seeds == 1


def test_a_published_row_without_a_run_gives_its_reason(report: Report):
    view = row(report, "moses")
    assert view.cells[0] == Cell(published=33.3)
    assert view.note.startswith("not run: a phrase-based system")
    assert dict(report.not_run)["Moses"].startswith("a phrase-based system")
    assert dict(report.not_run)["rnnsearch_50-s9"].startswith("unfinished")


def test_a_recorded_score_that_does_not_recompute_is_told(report: Report):
    [warning] = [text for text in report.warnings if "test/bleu" in text]
    assert warning.startswith("rnnencdec_30-s1: recorded test/bleu 99.00, but its sentences give ")


def test_ablations_stand_apart_with_a_difference_to_their_base(report: Report):
    assert report.ablations is not None
    [line] = report.ablations.lines
    assert (line.row.id, line.base, line.overrides) == ("rnnsearch_50+no_dropout", "RNNsearch-50", "no_dropout")
    base = row(report, "rnnsearch_50").cells[0].ours
    ours, difference = line.row.cells[0].ours, line.differences[0]
    assert isinstance(ours, Estimate) and isinstance(base, Estimate) and difference is not None
    assert difference.value == pytest.approx(ours.value - base.value)
    assert "rnnsearch_50+no_dropout" not in [view.id for view in report.tables[0].rows]


def test_training_facts_are_scaled_to_the_published_units(report: Report):
    cells = {
        column.id: cell
        for column, cell in zip(report.tables[1].columns, row(report, "rnnsearch_50", 1).cells, strict=True)
    }
    assert cells["updates_x1e5"].ours == pytest.approx(0.031)
    assert cells["updates_x1e5"].published == 2.88
    assert cells["hours"].ours == pytest.approx(590 / 3600)
    assert cells["target_tokens"].ours == pytest.approx(5.2)
    assert cells["gpu"].ours == "cpu a test processor, cores 2"
    assert cells["gpu"].published == "Quadro K-6000"


def test_length_bins_and_what_they_leave_out(report: Report):
    [view] = report.lengths
    shown = {(low, high) for low, high, _ in view.bins}
    omitted = {(low, high) for low, high, _ in view.omitted}
    assert shown | omitted == {(n + 1, n + 10) for n in range(0, 80, 10)}
    assert all(n >= 30 for *_, n in view.bins) and all(n < 30 for *_, n in view.omitted)
    assert sum(n for *_, n in view.bins + view.omitted) + view.beyond == 240


def test_length_series_have_limits_and_controls(report: Report):
    [view] = report.lengths
    series = {(line.row, line.control): line for line in view.panels[0][1]}
    assert series["rnnsearch_30", False].limit == 30
    assert series["rnnsearch_50", False].limit == 50
    control, real = series["rnnsearch_50", True], series["rnnsearch_50", False]
    assert all(c.value < r.value for (_, c), (_, r) in zip(control.points, real.points, strict=True))
    assert not any(line.control for line in view.panels[2][1])  # a likelihood has no control


def test_a_bin_scores_only_its_sentences(report: Report):
    [view] = report.lengths
    run = report.results.rows["rnnsearch_50"].ok
    low, high, n = view.bins[1]
    scores = []
    for one in run:
        records = [json.loads(x) for x in (one.folder / "sentences" / "test_long.jsonl").read_text().splitlines()]
        inside = [record["bleu"] for record in records if low <= record["source_tokens"] <= high]
        assert len(inside) == n
        scores.append(bleu(np.array(inside, dtype=float).sum(axis=0)))
    line = next(line for line in view.panels[0][1] if line.row == "rnnsearch_50" and not line.control)
    assert line.points[1][1].value == pytest.approx(sum(scores) / 2)


def test_alignments_come_from_the_row_that_the_figure_names(report: Report):
    [view] = report.alignments
    assert (view.label, view.seed, view.table.title) == ("RNNsearch-50", 1, "Figure 3")
    assert len(view.alignments) == 4


def test_curves_of_every_run(report: Report):
    assert len(report.curves["train_nll"]) == 11  # five rows of two seeds, the failed run too, and the ablation
    assert all(len(curve.points) <= 150 for curve in report.curves["train_nll"])


def test_shared_facts_are_told_once(report: Report):
    assert report.shared_facts["data checksum"] == "9605a855220e9b8c"
    assert report.shared_facts["uncommitted changes"] == "no"
    assert report.shared_facts["data counts"] == "train: read 112551, kept 88504; test: read 200, kept 90"
    assert report.shared_facts["hardware"] == "cpu a test processor, cores 2"
    assert all("data checksum" not in run.facts for run in report.runs)
    assert any("seconds" in run.facts for run in report.runs)


def test_stale_runs_are_told(fake_runs: Path):
    stale = make_report(fake_runs, current="new")
    assert row(stale, "rnnsearch_50").note == "stale: made by another version of the sources"
    assert any("stale" in warning and "rnnsearch_50-s1" in warning for warning in stale.warnings)
    assert {run.status for run in stale.runs} == {"stale", "failed"}


def test_a_scale_without_runs_lists_everything_as_not_run(fake_runs: Path):
    empty = make_report(fake_runs, scale="paper")
    assert {outcome.verdict for outcome in empty.outcomes} == {"not run"}
    listed = dict(empty.not_run)
    for what in ("RNNencdec-30", "RNNsearch-50*", "Moses", "Figure 2", "Figure 3"):
        assert what in listed


def test_smoke_tests_the_coarsest_claims_alone(tmp_path: Path):
    runs = FakeRuns(tmp_path, scale="smoke", seeds=(1,), sizes={"test": 30, "test_long": 60}).build()
    smoke = make_report(runs, scale="smoke")
    tested = {outcome.claim.id for outcome in smoke.outcomes if outcome.verdict != "not testable here"}
    assert tested == {"attention_gain_50", "encdec_falls_with_length", "attention_falls_less"}


def test_at_the_papers_scale_values_are_held_against_the_tolerance(tmp_path: Path, fake_runs: Path):
    target = tmp_path / "bahdanau" / "paper"
    shutil.copytree(fake_runs / "bahdanau" / "small", target)
    for file in target.glob("*/result.json"):
        record = json.loads(file.read_text())
        file.write_text(json.dumps(record | {"scale": "paper"}))
    paper = make_report(tmp_path, scale="paper")
    assert paper.tables[0].comparable
    assert row(paper, "rnnsearch_50").cells[0].within is False


def test_mixed_data_is_told(tmp_path: Path, fake_runs: Path):
    shutil.copytree(fake_runs, tmp_path / "runs")
    file = tmp_path / "runs" / "bahdanau" / "small" / "rnnsearch_50-s1" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"data_checksum": "other"}))
    mixed = make_report(tmp_path / "runs")
    assert any("different data" in warning for warning in mixed.warnings)
    assert {o.verdict for o in mixed.outcomes if "rnnsearch_50" in o.claim.rows} == {"not run"}
