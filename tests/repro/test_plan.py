"""What fits into a time, and what it decides."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.report.claims import load_claims
from common.report.published import load_published
from common.report.stored import Stored, read_seconds
from reproductions import plan
from reproductions.report import ROOT

FOLDER = ROOT / "reproductions" / "bahdanau"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5400)])
def test_times(text: str, seconds: float) -> None:
    assert plan.seconds_of(text) == seconds


@pytest.mark.parametrize(
    "argv", [["budget=15"], ["budget=m"], [], ["budget=5m", "papers=luog"], ["budget=5m", "scale=smal"], ["x"]]
)
def test_wrong_arguments_are_explained(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and ("expected" in error or "did you mean" in error)


def test_seconds_are_those_of_each_run(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text(
        "| run | status | own facts | command |\n| a_b-s2 | ok | seconds 12.5; beam 4 | `x` |\n| total | ok | seconds 3 | y |\n"
    )
    assert read_seconds(file) == {"a_b-s2": 12.5}


def jobs(*seconds: float) -> list[Any]:
    def one(i: int, cost: float) -> Any:
        config = {"row": f"row_{i}", "trainer": {"accelerator": "cpu", "threads": 1, "devices": 1}, "cost": cost}
        return SimpleNamespace(folder=Path(f"row_{i}"), config=config)

    return [one(i, cost) for i, cost in enumerate(seconds)]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Two at a time: a takes 100 s, b 30 s, c 50 s, or 40 s if one row of 20 s has run with b."""
    a, b, c = jobs(100, 60, 40), jobs(*[0] * 3, 30, 20), jobs(*[0] * 4, 20, 40, 30)
    found = {"a": a, "b": b[3:], "c": c[4:]}
    monkeypatch.setattr(plan, "candidates", lambda *_: [(120.0, "p", "c"), (50.0, "p", "b"), (200.0, "p", "a")])
    monkeypatch.setattr(plan, "jobs_of", lambda overrides, _: found[overrides[0].removeprefix("table=")])
    monkeypatch.setattr(plan, "slots", lambda config: 2)
    monkeypatch.setattr(plan, "unfinished", lambda of: of)
    monkeypatch.setattr(plan, "model_key", lambda job: job.config["row"])
    monkeypatch.setattr(plan, "estimates", lambda of: {job.config["row"]: job.config["cost"] for job in of})
    monkeypatch.setattr("reproductions.estimate.model_key", lambda job: job.config["row"])
    return found


@pytest.mark.parametrize(
    ("budget", "chosen"),
    [
        (29, []),
        (30, [("b", 30)]),
        (69, [("b", 30)]),
        (70, [("b", 30), ("c", 40)]),  # the row that b has costs c nothing
        (170, [("b", 30), ("c", 40), ("a", 100)]),
    ],
)
def test_the_quickest_first_until_the_time_is_spent(
    tables: dict[str, list[Any]], budget: float, chosen: list[Any]
) -> None:
    assert [(one.table, one.seconds) for one in plan.plan(["p"], "small", Path("runs"), budget)] == chosen


def test_what_is_hopeless_is_not_timed(tables: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []

    def estimates(of: list[Any]) -> dict[str, float]:
        timed.extend(job.config["row"] for job in of)
        return {job.config["row"]: 1e9 for job in of}

    monkeypatch.setattr(plan, "estimates", estimates)
    assert list(plan.plan(["p"], "small", Path("runs"), 20)) == []
    assert set(timed) == {job.config["row"] for job in [*tables["b"], *tables["c"]]}


def test_power_of_a_normal_test() -> None:
    """An effect of 1.96 standard errors is seen half of the time, one of 1.96 + 0.8416 four times of five."""
    claim = next(
        c
        for c in load_claims(FOLDER / "claims.yaml", load_published(FOLDER / "published.yaml")).claims
        if c.kind == "gap"
    )
    stored = Stored("reproduced", "", "", "+9.00 BLEU [−1.96, 1.96]", "", "")

    def of(threshold: float, effect: Stored | None = stored) -> float | None:
        return plan.power(replace(claim, target=None, null=0.0, threshold=threshold), effect)

    assert of(1.959964) == pytest.approx(0.5, abs=1e-3)
    assert of(1.959964 + 0.841621) == pytest.approx(0.8, abs=1e-3)
    assert of(-1.959964) == pytest.approx(0.5, abs=1e-3)
    assert of(1.0, replace(stored, effect="")) is None and of(1.0, None) is None
    ratio = replace(claim, kind="ratio", target=None, null=1.0, threshold=2.0)
    assert plan.power(ratio, replace(stored, effect="3 times [1.00, 4.00]")) == pytest.approx(0.5, abs=1e-3)


def test_claims_are_decided_by_all_of_their_rows() -> None:
    """As claims.yaml names them: of the rows trained on 30 words, and of those and the encoder-decoder of 50."""
    thirty = {"rnnencdec_30", "rnnsearch_30"}
    assert [claim.id for claim, _ in plan.decided("bahdanau", "small", thirty)] == ["attention_gain_30"]
    more = {claim.id for claim, _ in plan.decided("bahdanau", "small", {*thirty, "rnnencdec_50"})}
    assert more == {
        "attention_gain_30",
        "short_training_beats_encdec_50",
        "encdec_falls_with_length",
        "encdec_falls_to_80",
    }
