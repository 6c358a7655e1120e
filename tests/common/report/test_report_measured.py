"""Verdicts on planted measurements: each can come out, and swapping rows turns it round."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.report.compare import Outcome, _decide, evaluate
from common.report.stats import Estimate
from tests.common.report.measured_runs import (
    EXPONENT,
    MACHINE,
    POINTS,
    RATIO,
    drifting,
    measure,
    paper,
    results,
    timed,
    times,
    verdict,
    verdicts,
    without,
)


def plant(
    root: Path,
    plain: float,
    fast: float,
    *,
    exponents: tuple[float, float] = (1.0, 1.0),
    steady: bool = False,
    **result: Any,
) -> None:
    """Two rows measured together, of so many ms at 1024 tokens."""
    drift = np.ones(15) if steady else drifting()
    for number, (row, ms, power) in enumerate((("plain", plain, exponents[0]), ("fast", fast, exponents[1]))):
        samples = times(lambda n, ms=ms, power=power: ms * (n / 1024) ** power, seed=number, drift=drift)
        measure(root, row, samples={"forward_ms": timed(samples)}, **result)


# Threshold 2, no effect 1.
@pytest.mark.parametrize(
    ("plain", "fast", "expected"),
    [
        (30, 10, "reproduced"),
        (15, 10, "direction only"),
        (10, 10.0, "inconclusive"),
        (10, 30, "contradicted"),
    ],
)
def test_a_ratio(tmp_path: Path, plain: float, fast: float, expected: str):
    plant(tmp_path, plain, fast)
    outcome = verdict(tmp_path, RATIO)
    assert outcome.verdict == expected
    assert outcome.effect is not None
    assert outcome.effect.value == pytest.approx(plain / fast, rel=0.04)
    assert outcome.effect.low < outcome.effect.value < outcome.effect.high


def test_swapped_rows_turn_every_verdict(tmp_path: Path):
    plant(tmp_path, 30, 10, exponents=(2.0, 1.0), steady=True)
    claims = [
        RATIO,
        {**without(RATIO, "at"), "id": "from", "from": 1024},
        {**RATIO, "id": "gap", "kind": "gap", "threshold": 5},
        {**RATIO, "id": "order", "kind": "ordering", "threshold": 0},
        {**RATIO, "id": "bound", "kind": "bound", "rows": ["fast"], "direction": "less", "threshold": 20},
        {**without(EXPONENT), "id": "linear", "quantity": "forward_ms"},
        {**GROWTH, "id": "grows", "rows": ["plain", "fast"], "threshold": 0.5},
        {**GROWTH, "id": "square", "rows": ["plain"], "threshold": 1.5},
    ]
    found = results(tmp_path)
    loaded = paper(tmp_path / "paper", claims)
    assert {o.claim.id: o.verdict for o in evaluate(loaded, found)} == {c["id"]: "reproduced" for c in claims}
    rows = dict(found.rows)
    object.__setattr__(found, "rows", {"plain": rows["fast"], "fast": rows["plain"]})
    assert {o.claim.id: o.verdict for o in evaluate(loaded, found)} == {c["id"]: "contradicted" for c in claims}


GROWTH = {**without(EXPONENT, "expected", "margin"), "quantity": "forward_ms", "direction": "greater"}


def test_turns_of_one_measuring_are_paired(tmp_path: Path):
    plant(tmp_path, 12, 10)
    outcome = verdict(tmp_path, RATIO)
    assert outcome.verdict == "direction only"
    assert "compared turn by turn" in outcome.remarks
    assert outcome.effect is not None and outcome.effect.high - outcome.effect.low < 0.1


@pytest.mark.parametrize("key", ["started", "table"])
def test_rows_measured_apart_are_not_paired(tmp_path: Path, key: str):
    """The same times: without the turns the drift of the machine drowns 20%."""
    plant(tmp_path, 12, 10)
    samples = {"forward_ms": timed(times(lambda n: 10 * n / 1024, seed=1, drift=drifting()))}
    other: dict[str, Any] = {key: "another"}
    measure(tmp_path, "fast", samples=samples, **other)
    outcome = verdict(tmp_path, RATIO)
    assert outcome.verdict == "inconclusive"
    assert any(remark.startswith("not paired") for remark in outcome.remarks)


def test_turns_that_one_row_lacks_are_left_out_of_the_pairs(tmp_path: Path):
    plant(tmp_path, 12, 10)
    shorter = times(lambda n: 10 * n / 1024, seed=1, drift=drifting())
    measure(tmp_path, "fast", samples={"forward_ms": timed({p: values[:8] for p, values in shorter.items()})})
    outcome = verdict(tmp_path, RATIO)
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(1.2, rel=0.05)


def test_runs_of_the_same_seed_are_paired_with_each_other(tmp_path: Path):
    for seed, drift in ((1, 1.0), (2, 5.0), (3, 0.3)):
        for row, ms in (("plain", 12), ("fast", 10)):
            samples = times(lambda n, ms=ms: ms * n / 1024, seed=seed + len(row), drift=drift * drifting())
            measure(tmp_path, row, seed, samples={"forward_ms": timed(samples)})
    outcome = verdict(tmp_path, RATIO)
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(1.2, rel=0.03)
    assert not outcome.one_seed and outcome.seeds == (("plain", 3), ("fast", 3))
    assert "compared turn by turn" in outcome.remarks


def test_only_runs_that_have_the_point_count(tmp_path: Path):
    plant(tmp_path, 30, 10)
    measure(tmp_path, "fast", 2, samples={"forward_ms": timed({"128": [1, 2, 3]})})
    outcome = verdict(tmp_path, RATIO)
    assert outcome.seeds == (("plain", 1), ("fast", 1)) and outcome.one_seed
    bound = {**RATIO, "kind": "bound", "rows": ["fast"], "direction": "less", "at": "128"}
    assert verdict(tmp_path, bound).seeds == (("fast", 2),)


def test_what_a_verdict_rests_on(tmp_path: Path):
    plant(tmp_path, 30, 10)
    outcome = verdict(tmp_path, RATIO)
    assert outcome.one_seed
    assert outcome.unit == "times"
    assert re.fullmatch(r"Plain \d\d\.\d\d; Fast \d\d\.\d\d", outcome.remarks[0])
    assert outcome.detectable is not None and 1 < outcome.detectable < 1.2
    bound = verdict(tmp_path, RATIO, kind="bound", rows=["fast"], direction="less", threshold=50)
    assert bound.unit == "ms"


# At most 12 ms.
@pytest.mark.parametrize(("ms", "expected"), [(10, "reproduced"), (12, "inconclusive"), (14, "contradicted")])
def test_a_bound(tmp_path: Path, ms: float, expected: str):
    measure(tmp_path, "fast", samples={"forward_ms": timed(times(lambda n: ms * n / 1024))})
    assert verdict(tmp_path, RATIO, kind="bound", rows=["fast"], direction="less", threshold=12).verdict == expected


def test_a_factor_is_applied(tmp_path: Path):
    measure(tmp_path, "fast", samples={"forward_ms": timed(times(lambda n: 10.0))})
    bound = {**RATIO, "kind": "bound", "rows": ["fast"], "direction": "less", "threshold": 0.02}
    outcome = verdict(tmp_path, bound, factor=0.001, unit="s")
    assert (outcome.verdict, outcome.unit) == ("reproduced", "s")
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("fast", "expected"), [(10.1, "reproduced"), (11.0, "inconclusive"), (13, "contradicted")])
def test_an_equivalence(tmp_path: Path, fast: float, expected: str):
    for number, (row, ms) in enumerate((("plain", 10.0), ("fast", fast))):
        measure(tmp_path, row, samples={"forward_ms": timed(times(lambda n, ms=ms: ms, seed=number))})
    claim = {**without(RATIO, "direction", "threshold"), "kind": "equivalence", "margin": 1.0}
    assert verdict(tmp_path, claim).verdict == expected


@pytest.mark.parametrize(("plain", "expected"), [(20, "reproduced"), (25, "contradicted"), (22, "inconclusive")])
def test_a_ratio_expected_within_a_margin(tmp_path: Path, plain: float, expected: str):
    plant(tmp_path, plain, 10)
    claim = {**without(RATIO, "direction", "threshold"), "expected": 2.0, "margin": 0.2}
    assert verdict(tmp_path, claim).verdict == expected


@pytest.mark.parametrize(
    ("middle", "expected"), [(20, "reproduced"), (11, "contradicted"), (33, "contradicted"), (13.1, "inconclusive")]
)
def test_an_ordering_is_as_weak_as_its_weakest_step(tmp_path: Path, middle: float, expected: str):
    for number, (row, ms) in enumerate((("plain", 30.0), ("other", middle), ("fast", 13.0))):
        measure(tmp_path, row, samples={"forward_ms": timed(times(lambda n, ms=ms: ms, seed=number))})
    outcome = verdict(tmp_path, RATIO, kind="ordering", rows=["plain", "other", "fast"], threshold=0)
    assert outcome.verdict == expected


def counted(root: Path, plain: float, fast: float) -> None:
    for row, size in (("plain", plain), ("fast", fast)):
        measure(root, row, samples={"memory": timed({p: [size * float(p)] for p in POINTS}, "bytes")})


@pytest.mark.parametrize(
    ("plain", "expected"), [(4, "reproduced"), (2, "direction only"), (1, "contradicted"), (0.5, "contradicted")]
)
def test_counted_bytes_need_no_interval(tmp_path: Path, plain: float, expected: str):
    """Exactly 4 times is at least 4 times, whatever logarithms make of it; no effect at all is no effect."""
    counted(tmp_path, plain, 1)
    outcome = verdict(tmp_path, RATIO, quantity="memory", threshold=4)
    assert (outcome.verdict, outcome.p, outcome.p_holm) == (expected, None, None)
    assert outcome.effect is not None and outcome.effect.exact
    assert outcome.effect.low == outcome.effect.value == outcome.effect.high == pytest.approx(plain)


@pytest.mark.parametrize(("size", "expected"), [(3, "reproduced"), (3.01, "contradicted"), (2.99, "reproduced")])
def test_a_bound_on_counted_bytes_includes_its_edge(tmp_path: Path, size: float, expected: str):
    counted(tmp_path, 1, size)
    claim = {**RATIO, "kind": "bound", "rows": ["fast"], "quantity": "memory", "at": "128", "direction": "less"}
    assert verdict(tmp_path, claim, threshold=384).verdict == expected


@pytest.mark.parametrize(("power", "expected"), [(1.0, "reproduced"), (1.05, "reproduced"), (1.06, "contradicted")])
def test_an_exponent_of_counted_bytes(tmp_path: Path, power: float, expected: str):
    measure(tmp_path, "fast", samples={"memory": timed({p: [float(p) ** power] for p in POINTS}, "bytes")})
    outcome = verdict(tmp_path, EXPONENT)
    assert (outcome.verdict, outcome.p) == (expected, None)


def test_exact_claims_take_no_part_in_the_correction(tmp_path: Path):
    counted(tmp_path, 4, 1)
    plant_more = times(lambda n: 10 * n, noise=0.3, repeats=9)
    for row in ("plain", "fast"):
        both = timed(plant_more if row == "plain" else times(lambda n: 8 * n, noise=0.3, repeats=9, seed=5))
        measure(tmp_path, row, samples={"forward_ms": both, "memory": timed({"1024": [4.0]}, "bytes")})
    exact = [{**RATIO, "id": f"exact_{i}", "quantity": "memory"} for i in range(10)]
    [alone] = verdicts(tmp_path, RATIO)
    among = verdicts(tmp_path, RATIO, *exact)[0]
    assert among.p_holm == alone.p_holm == alone.p
    twice = verdicts(tmp_path, RATIO, {**RATIO, "id": "again"})[0]
    assert alone.p is not None and twice.p_holm == pytest.approx(min(1.0, 2 * alone.p))


def test_one_time_shows_nothing(tmp_path: Path):
    for row, ms in (("plain", 30.0), ("fast", 10.0)):
        measure(tmp_path, row, samples={"forward_ms": timed({"1024": [ms]})})
    outcome = verdict(tmp_path, RATIO)
    assert (outcome.verdict, outcome.reason) == ("inconclusive", "one value has no interval")


def test_a_point_per_row(tmp_path: Path):
    """Growth per doubling: the same row at two lengths."""
    measure(tmp_path, "fast", samples={"forward_ms": timed(times(lambda n: 0.01 * n**1.5))})
    claim = {**RATIO, "rows": ["fast", "fast"], "at": ["1024", "512"], "direction": "less", "no_effect": 4}
    outcome = verdict(tmp_path, claim, threshold=3)
    assert outcome.verdict == "reproduced"
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(2**1.5, rel=0.06)
    assert any(remark.startswith("not paired") for remark in outcome.remarks)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ({}, "no run of fast has measured forward_ms"),
        ({"forward_ms": timed({"128": [1, 2]})}, "fast was not measured at 1024"),
        ({"forward_ms": timed({"128": [1, 2]}, **{"1024": "needs a GPU"})}, "fast refused 1024: needs a GPU"),
        ({"forward_ms": timed({"1024": [0, 0, 1]})}, "the effect is undefined: fast has a value of 0 at 1024"),
    ],
)
def test_what_was_not_measured_is_not_run(tmp_path: Path, samples: dict[str, Any], reason: str):
    plant(tmp_path, 30, 10)
    measure(tmp_path, "fast", samples=samples)
    outcome = verdict(tmp_path, RATIO)
    assert (outcome.verdict, outcome.reason, outcome.effect) == ("not run", reason, None)


def test_rows_of_different_machines_are_not_compared_but_their_counts_are(tmp_path: Path):
    counted(tmp_path, 4, 1)
    drift = drifting()
    for row, machine in (("plain", MACHINE), ("fast", {**MACHINE, "cpu": "a faster one"})):
        both = {
            "forward_ms": timed(times(lambda n: n, drift=drift)),
            "memory": timed({"1024": [4.0 if row == "plain" else 1.0]}, "bytes"),
        }
        measure(tmp_path, row, samples=both, hardware=machine)
    timing, counting = verdicts(tmp_path, RATIO, {**RATIO, "id": "bytes", "quantity": "memory"})
    assert timing.verdict == "not run" and "different hardware" in timing.reason
    assert counting.verdict == "reproduced"


def test_rows_on_different_data_are_not_compared_but_data_is_not_needed(tmp_path: Path):
    plant(tmp_path, 30, 10)
    folder = tmp_path / "speed" / "small"
    for row, expected in (("plain", "reproduced"), ("fast", "not run")):
        file = folder / f"{row}-s1" / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"data_checksum": f"that of {row}"}))
        assert verdict(tmp_path, RATIO).verdict == expected


def test_a_margin_is_about_the_interval_not_the_p_value_alone(tmp_path: Path):
    """A skewed interval can reach over an edge that the standard error stays away from."""
    [claim] = paper(tmp_path, [EXPONENT]).claims
    for low, high, expected in ((0.96, 1.04, "reproduced"), (0.94, 1.04, "inconclusive"), (0.96, 1.06, "inconclusive")):
        outcome = Outcome(claim, "", effect=Estimate(1.0, low, high, 0.001, 9), p=0.001, favours=True)
        assert _decide(outcome, 0.001).verdict == expected
    outside = Outcome(claim, "", effect=Estimate(1.1, 1.06, 1.2, 0.001, 9), p=0.001, favours=False)
    assert _decide(outside, 0.001).verdict == "contradicted"
    assert _decide(outside, 0.06).verdict == "inconclusive"


def test_units_must_agree(tmp_path: Path):
    plant(tmp_path, 30, 10)
    measure(tmp_path, "fast", samples={"forward_ms": timed({"1024": [1, 2]}, "s")})
    with pytest.raises(ValueError, match="forward_ms: runs have different units: 'ms' .*, 's' "):
        verdict(tmp_path, RATIO)
    with pytest.raises(ValueError, match=r"fast-s1/samples.json: forward_ms.unit: got 's', expected 'ms'"):
        verdict(tmp_path, RATIO, unit="ms", rows=["fast"], kind="bound", direction="less")


def test_stale_rows_are_marked(tmp_path: Path):
    plant(tmp_path, 30, 10, source_hash="older")
    assert "stale: plain, fast" in verdict(tmp_path, RATIO).remarks


def test_the_published_effect_is_that_of_the_points(tmp_path: Path):
    plant(tmp_path, 120, 10)
    claim = {**without(RATIO, "threshold"), "published": {"table": "table_1", "column": "1024"}, "band": [0.5, 2]}
    outcome = verdict(tmp_path, claim)
    assert outcome.claim.target is not None and outcome.claim.target.value == pytest.approx(10)
    assert outcome.verdict == "reproduced"
    assert verdict(tmp_path, claim, band=[0.9, 1.1]).verdict == "direction only"
