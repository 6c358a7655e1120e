"""Alignment error rates in a report: read from links/<split>.jsonl, lower is better, tables on data of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from common.report.claims import load_claims
from common.report.join import build_report, mixed_data
from common.report.measures import METRICS, Measure
from common.report.published import load_published
from common.report.render.markdown import markdown
from common.report.results import load_results
from common.report.scores import aer
from common.report.sentences import read_links
from common.report.views import Report

CHAPTERS = 12


def test_the_rate_worked_by_hand():
    assert aer(np.array([2.0, 3.0, 4.0, 3.0])) == pytest.approx(1 - 5 / 7)
    assert aer(np.array([[3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 5.0, 1.0]])).tolist() == [0.0, 1.0]
    assert np.isnan(aer(np.zeros(4)))


def write_row(folder: Path, row: str, hit: float, checksum: str = "greek", recorded: float | None = None) -> None:
    """Sixty sentences of ten words: a share `hit` of the links is right, half of the right ones sure."""
    place = folder / "made_up" / "small" / f"{row}-s1"
    (place / "links").mkdir(parents=True)
    rng = np.random.default_rng(len(row))
    records = []
    for i in range(60):
        right = int(rng.binomial(10, hit))
        sums = [right // 2, right, 10, 5]
        records.append({"id": f"s{i}", "cluster": f"c{i % CHAPTERS}", "source_tokens": 8, "aer": sums})
    (place / "links" / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    hits, links = (sum(sum(r["aer"][k] for k in pair) for r in records) for pair in ((0, 1), (2, 3)))
    value = 1 - hits / links if recorded is None else recorded
    record = {
        "paper": "made_up", "scale": "small", "row": row, "label": row, "seed": 1, "status": "ok", "ablation": [],
        "config_hash": "c", "source_hash": "now", "data_checksum": checksum,
        "metrics": {"test/aer": {"value": value, "signature": METRICS["aer"].default_signature}},
    }  # fmt: skip
    (place / "result.json").write_text(json.dumps(record))


PUBLISHED = {
    "paper": "made_up", "title": "Made up", "authors": ["A"], "year": 2000, "arxiv": "0", "venue": "none",
    "tables": [
        {
            "id": "table_6", "title": "Table 6", "caption": "AER", "evidence": "read", "source": "none",
            "columns": {"aer": {"label": "AER", "ours": {"metric": "aer", "split": "test"}}},
            "rows": {"attention": {"label": "attention", "aer": 0.34}, "diagonal": {"label": "diagonal", "aer": 0.7}},
        },
        {
            "id": "table_7", "title": "Table 7", "caption": "AER of others", "evidence": "read", "source": "none",
            "columns": {"aer": {"label": "AER", "ours": {"metric": "aer", "split": "test"}}},
            "rows": {"elsewhere": {"label": "elsewhere"}},
        },
    ],
}  # fmt: skip
CLAIM = {
    "id": "attention_beats_the_diagonal", "claim": "Attention aligns better than the diagonal.", "place": "Table 6",
    "kind": "gap", "rows": ["attention", "diagonal"], "metric": "aer", "split": "test", "direction": "less",
    "published": {"table": "table_6", "column": "aer"}, "band": [0.2, 5.0], "testable": ["smoke", "small", "paper"],
}  # fmt: skip


def make_report(folder: Path, **rows: float) -> Report:
    for row, hit in rows.items():
        write_row(folder, row, hit, checksum="other" if row == "elsewhere" else "greek")
    (folder / "published.yaml").write_text(yaml.safe_dump(PUBLISHED))
    (folder / "claims.yaml").write_text(yaml.safe_dump({"paper": "made_up", "claims": [CLAIM]}))
    published = load_published(folder / "published.yaml")
    claims = load_claims(folder / "claims.yaml", published)
    return build_report(
        published, claims, load_results(folder, "made_up", "small", lambda config: "now"), resamples=200
    )


def test_less_is_better_and_the_rows_can_be_swapped(tmp_path: Path):
    good = make_report(tmp_path / "good", attention=0.7, diagonal=0.3)
    bad = make_report(tmp_path / "bad", attention=0.3, diagonal=0.7)
    assert [o.verdict for r in (good, bad) for o in r.outcomes] == ["reproduced", "contradicted"]
    effect = good.outcomes[0].effect
    assert effect is not None and effect.value < 0
    assert (good.outcomes[0].unit, good.outcomes[0].clusters) == ("AER", CHAPTERS)


def test_the_table_shows_ours_beside_the_published_rate(tmp_path: Path):
    report = make_report(tmp_path, attention=0.7, diagonal=0.3)
    cell = report.tables[0].rows[0].cells[0]
    recorded = report.results.rows["attention"].ok[0].field("metrics")["test/aer"]["value"]
    assert cell.published == 0.34 and cell.seeds == ((1, pytest.approx(recorded)),)
    assert report.tables[0].counts == {"aer": 60}
    assert f"{recorded:.3f} [" in markdown(report)


def test_a_recorded_rate_that_the_links_do_not_give_is_told(tmp_path: Path):
    write_row(tmp_path, "attention", 0.7, recorded=0.1)
    (warning,) = make_report(tmp_path, diagonal=0.3).warnings
    assert warning.startswith("attention-s1: recorded test/aer 0.100, but its sentences give 0.3")


def test_tables_may_have_data_of_their_own_but_rows_of_one_may_not(tmp_path: Path):
    apart = make_report(tmp_path / "apart", attention=0.7, diagonal=0.3, elsewhere=0.5)
    assert apart.warnings == () and mixed_data(apart.published, apart.results) == {}
    write_row(tmp_path / "mixed", "diagonal", 0.3, checksum="other")
    mixed = make_report(tmp_path / "mixed", attention=0.7)
    assert mixed_data(mixed.published, mixed.results) == {"greek, other": "Table 6"}
    assert mixed.warnings[0].startswith("Table 6: the runs were made on different data")
    assert mixed.outcomes[0].verdict == "not run"


def test_a_row_without_links_has_no_rate(tmp_path: Path):
    write_row(tmp_path, "attention", 0.7)
    (tmp_path / "made_up" / "small" / "attention-s1" / "links" / "test.jsonl").unlink()
    report = make_report(tmp_path, diagonal=0.3)
    assert report.tables[0].rows[0].cells[0].ours is None
    assert "has no sentences for test/all" in report.outcomes[0].reason


@pytest.mark.parametrize(("sums", "message"), [([1, 2, 3], "expected 4 numbers, got 3"), (None, "aer: missing")])
def test_a_broken_line_is_named(tmp_path: Path, sums: list[int] | None, message: str):
    record = {"id": "a", "cluster": "c", "source_tokens": 3, "aer": sums}
    (tmp_path / "test.jsonl").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"line 1.*{message}"):
        read_links(tmp_path / "test.jsonl")


def test_only_the_metric_of_links_reads_them(tmp_path: Path):
    write_row(tmp_path, "attention", 0.7)
    run = load_results(tmp_path, "made_up", "small", lambda config: "now").rows["attention"].ok[0]
    assert run.items(Measure("aer")) is not None and run.items(Measure("bleu")) is None
    assert run.items(Measure("aer", subset="no_unk")) is None
