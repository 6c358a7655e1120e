"""claims.yaml of a paper that measures: every error names file, claim, key and what is expected."""

import copy
from pathlib import Path
from typing import Any

import pytest

from common.report.claims import load_claims
from common.report.measures import Quantity
from tests.common.report.measured_runs import EXPONENT, PUBLISHED, RATIO, paper, read_published, without
from tests.common.report.planted import CLAIM
from tests.common.report.planted import PUBLISHED as SCORED


def test_claims_are_read(tmp_path: Path):
    start = {**without(RATIO, "at"), "id": "from", "from": 512, "unit": "ms"}
    ratio, later, exponent = paper(tmp_path, [RATIO, start, EXPONENT]).claims
    assert ratio.reading == Quantity("forward_ms", ("1024",))
    assert (later.reading, later.start) == (Quantity("forward_ms", (), 1.0, "ms"), 512.0)
    assert (exponent.over, exponent.expected, exponent.margin) == ((128, 1024), 1.0, 0.05)
    assert exponent.window == pytest.approx((0.95, 1.05))
    assert exponent.null == 1.0


@pytest.mark.parametrize(
    ("changes", "null"),
    [
        ({"rows": ["fast"], "threshold": 1.1, "direction": "less"}, 1.1),
        ({"rows": ["plain", "fast"], "threshold": 0.8, "direction": "greater"}, 0.0),
        ({"rows": ["fast"], "threshold": 1.1, "direction": "less", "no_effect": 2}, 2.0),
    ],
)
def test_what_no_effect_is_of_an_exponent(tmp_path: Path, changes: dict[str, Any], null: float):
    [claim] = paper(tmp_path, [without(EXPONENT, "expected", "margin") | changes]).claims
    assert (claim.null, claim.window) == (null, None)


STEEP = without(EXPONENT, "expected", "margin")
START = without(RATIO, "at")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (without(RATIO, "at"), "faster.at: ratio reads at a point or from one on"),
        ({**RATIO, "from": 512}, "faster.at: ratio reads at a point or from one on"),
        ({**RATIO, "at": []}, "faster.at: expected a point or one per row, got none"),
        ({**RATIO, "at": 1024}, "faster.at: expected a list, got int 1024"),
        ({**RATIO, "at": ["1", "2", "3"]}, "faster.at: expected one point, or one per row (2), got 3"),
        ({**without(RATIO, "quantity"), "metric": "bleu"}, "faster.at: unknown key"),
        (
            {**without(RATIO, "quantity", "at"), "metric": "bleu", "from": 3},
            "faster.quantity: missing: exponent, from and",
        ),
        ({**without(RATIO, "at"), "kind": "gap"}, "faster.at: gap reads at a point"),
        ({**RATIO, "kind": "gap", "from": 3}, "faster.from: unknown key"),
        (
            {**RATIO, "kind": "slope"},
            "faster.kind: a slope reads a metric over source lengths: over points of a quantity",
        ),
        ({**RATIO, "relative": True}, "faster.relative: a quantity has no source lengths"),
        ({**RATIO, "relative_to": [1, 2]}, "faster.relative_to: a quantity has no source lengths"),
        ({**RATIO, "factor": 10}, "faster.unit: missing: the factor changes the unit of the samples"),
        ({**RATIO, "threshold": 0.5}, "faster.threshold: 0.5 is on the wrong side of no effect (1)"),
        ({**RATIO, "expected": 1.0}, "faster.margin: missing, expected a number"),
        ({**RATIO, "expected": 1.0, "margin": 0.1}, "faster.direction: unknown key"),
        (
            {**without(RATIO, "direction"), "expected": 1.0, "margin": 0.1},
            "faster.expected: stands with margin alone: leave out published, band and threshold",
        ),
        (
            {**without(RATIO, "direction", "threshold"), "expected": 1.0, "margin": 1.0},
            "faster.margin: a ratio is positive: expected less than 1",
        ),
        (
            {**without(START, "direction", "threshold"), "from": 512, "expected": 1.0, "margin": 0.1},
            "faster.from: takes a threshold: published and expected are of one point",
        ),
        (
            {
                **without(START, "threshold"),
                "from": 512,
                "published": {"table": "table_1", "column": "1024"},
                "band": [0, 2],
            },
            "faster.from: takes a threshold: published and expected are of one point",
        ),
        (without(EXPONENT, "over"), "linear.over: missing, expected a list"),
        ({**EXPONENT, "over": [1024, 128]}, "linear.over: expected [low, high] with low <= high, got [1024, 128]"),
        ({**EXPONENT, "at": "128"}, "linear.at: exponent reads over a range of points"),
        ({**EXPONENT, "margin": -0.1}, "linear.margin: expected 0 or more, got -0.1"),
        ({**EXPONENT, "rows": ["plain", "fast", "other"]}, "linear.rows: exponent takes 1 to 2 rows, got 3"),
        ({**EXPONENT, "rows": ["fst"]}, "linear.rows: no row 'fst' in "),
        (
            {**without(EXPONENT, "quantity"), "field": "seconds"},
            "linear.quantity: missing: exponent, from and expected are",
        ),
        (STEEP, "linear.direction: missing, expected text"),
        ({**STEEP, "direction": "less"}, "linear.threshold: missing, expected a number"),
        ({**STEEP, "direction": "less", "threshold": 2, "no_effect": 1}, "linear.threshold: 2 is on the wrong side"),
        (
            {**STEEP, "direction": "less", "threshold": 2, "published": {"table": "table_1", "column": "1024"}},
            "linear.published: an exponent has no published number to be computed from: state a threshold",
        ),
    ],
)
def test_errors_name_file_claim_and_key(tmp_path: Path, claim: dict[str, Any], message: str):
    with pytest.raises(ValueError) as error:
        paper(tmp_path, [claim])
    assert str(error.value).startswith(f"{tmp_path}/claims.yaml: claims.{message}")


def test_lengths_are_needed_where_something_is_read_over_them(tmp_path: Path):
    paper(tmp_path, [RATIO])
    claim = {**CLAIM, "kind": "slope", "rows": ["good"], "threshold": 1}
    published = {**copy.deepcopy(SCORED), "paper": "speed"}
    with pytest.raises(ValueError, match=r"claims\.yaml: lengths: missing"):
        paper(tmp_path, [without(claim, "published", "band")], published)


def test_lengths_are_needed_for_a_figure_against_them(tmp_path: Path):
    published = copy.deepcopy(PUBLISHED)
    published["tables"][0]["plot"] = {"kind": "length", "rows": ["fast"]}
    with pytest.raises(ValueError, match=r"claims\.yaml: lengths: missing"):
        paper(tmp_path, [RATIO], published)


def test_another_paper_is_still_an_error(tmp_path: Path):
    paper(tmp_path, [RATIO])
    file = tmp_path / "claims.yaml"
    file.write_text(file.read_text().replace("paper: speed", "paper: sped"))
    with pytest.raises(ValueError, match="paper: got 'sped', expected 'speed'"):
        load_claims(file, read_published(tmp_path))
