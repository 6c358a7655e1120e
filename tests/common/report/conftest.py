"""One runs folder and one report for all tests that only read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from common.report.claims import load_claims
from common.report.join import build_report
from common.report.published import load_published
from common.report.results import load_results
from common.report.views import Report
from tests.common.report.fake_runs import FakeRuns

PAPER = Path(__file__).parents[3] / "reproductions" / "bahdanau"


def make_report(runs: Path, scale: str = "small", current: str = "5f3a9c21") -> Report:
    """Join the real published.yaml and claims.yaml with a runs folder."""
    published = load_published(PAPER / "published.yaml")
    claims = load_claims(PAPER / "claims.yaml", published)
    return build_report(published, claims, load_results(runs, "bahdanau", scale, lambda config: current), resamples=200)


@pytest.fixture(scope="session")
def fake_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen good runs and a failed one, an ablation, an unfinished folder, one recorded score that is wrong."""
    root = tmp_path_factory.mktemp("runs")
    fake = FakeRuns(root, sizes={"test": 90, "test_long": 240}, seeds=(1, 2))
    fake.build()
    fake.write("rnnsearch_50+no_dropout", 1, label="RNNsearch-50+no_dropout", ablation=["no_dropout"])
    failed = fake.write("rnnsearch_30", 2)
    shutil.rmtree(failed / "sentences")
    record = json.loads((failed / "result.json").read_text())
    (failed / "result.json").write_text(json.dumps(record | {"status": "failed", "error": "MemoryError: <full>"}))
    wrong = fake.folder("rnnencdec_30", 1) / "result.json"
    record = json.loads(wrong.read_text())
    record["metrics"]["test/bleu"] = {"value": 99.0, "signature": "recorded-signature"}
    wrong.write_text(json.dumps(record))
    (root / "bahdanau" / "small" / "rnnsearch_50-s9").mkdir()
    return root


@pytest.fixture(scope="session")
def report(fake_runs: Path) -> Report:
    """The report over them."""
    return make_report(fake_runs)
