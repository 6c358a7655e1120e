"""Verdicts over points: faster from a length on, exponents, and where a claim may not be read."""

from pathlib import Path

import numpy as np
import pytest

from tests.common.report.measured_runs import (
    EXPONENT,
    POINTS,
    RATIO,
    drifting,
    measure,
    timed,
    times,
    verdict,
    without,
)

GROWTH = {**without(EXPONENT, "expected", "margin"), "quantity": "forward_ms", "direction": "greater"}


def lines(root: Path, ratios: dict[str, float], **refused: str) -> None:
    """Two rows of a ratio at each point: fast takes 1 ms everywhere."""
    drift = drifting()
    plain = {
        p: (r * drift * np.exp(np.random.default_rng(i).normal(0, 0.03, 15))).tolist()
        for i, (p, r) in enumerate(ratios.items())
    }
    measure(root, "plain", samples={"forward_ms": timed(plain, **refused)})
    fast = times(lambda n: 1.0, seed=77, drift=drift, points=[*ratios, *refused])
    measure(root, "fast", samples={"forward_ms": timed(fast)})


FROM = {**without(RATIO, "at"), "from": 256, "threshold": 1.2}


@pytest.mark.parametrize(
    ("ratios", "expected", "weakest"),
    [
        ((0.5, 1.5, 2.0, 3.0), "reproduced", "at 256"),
        ((9.0, 1.5, 1.3, 3.0), "reproduced", "at 512"),
        ((9.0, 1.5, 1.1, 3.0), "direction only", "at 512"),
        ((9.0, 1.5, 1.0, 3.0), "inconclusive", "at 512"),
        ((9.0, 1.5, 3.0, 0.8), "contradicted", "at 1024"),
    ],
)
def test_faster_from_a_length_on(tmp_path: Path, ratios: tuple[float, ...], expected: str, weakest: str):
    lines(tmp_path, dict(zip(POINTS, ratios, strict=True)))
    outcome = verdict(tmp_path, FROM)
    assert outcome.verdict == expected
    assert f"the weakest, {weakest}, decides" in outcome.remarks
    assert "points 256, 512, 1024" in outcome.remarks
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(min(ratios[1:]), rel=0.05)


def test_slower_from_a_length_on(tmp_path: Path):
    lines(tmp_path, dict(zip(POINTS, (9.0, 0.5, 0.7, 0.4), strict=True)))
    outcome = verdict(tmp_path, FROM, direction="less", threshold=0.8)
    assert outcome.verdict == "reproduced"
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(0.7, rel=0.05)
    assert verdict(tmp_path, FROM, direction="less", threshold=0.6).verdict == "direction only"


def test_points_that_a_row_refused_are_told(tmp_path: Path):
    lines(tmp_path, {"256": 2.0, "512": 3.0}, **{"1024": "out of memory"})
    outcome = verdict(tmp_path, FROM)
    assert outcome.verdict == "reproduced"
    assert "left out: 1024 (plain: out of memory)" in outcome.remarks


def test_the_length_that_a_claim_names_must_be_measured(tmp_path: Path):
    lines(tmp_path, {"512": 2.0, "1024": 3.0}, **{"256": "no kernel"})
    outcome = verdict(tmp_path, FROM)
    assert outcome.verdict == "not run"
    assert outcome.reason == "forward_ms was not measured at 256 in both rows (plain: no kernel)"


@pytest.mark.parametrize(
    ("power", "expected"),
    [(1.0, "reproduced"), (1.3, "contradicted"), (0.8, "contradicted"), (1.05, "inconclusive")],
)
def test_an_exponent_within_a_margin(tmp_path: Path, power: float, expected: str):
    samples = times(lambda n: 0.01 * n**power, noise=0.02)
    measure(tmp_path, "fast", samples={"forward_ms": timed(samples)})
    outcome = verdict(tmp_path, EXPONENT, quantity="forward_ms")
    assert outcome.verdict == expected
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(power, abs=0.02)
    assert outcome.unit == ""


# Grows with an exponent of at least 1.8; no effect is that too, or 1.
@pytest.mark.parametrize(
    ("power", "null", "expected"),
    [
        (2.0, None, "reproduced"),
        (1.8, None, "inconclusive"),
        (1.6, None, "contradicted"),
        (1.6, 1.0, "direction only"),
        (0.9, 1.0, "contradicted"),
    ],
)
def test_an_exponent_with_a_threshold(tmp_path: Path, power: float, null: float | None, expected: str):
    measure(tmp_path, "plain", samples={"forward_ms": timed(times(lambda n: 1e-4 * n**power, noise=0.02))})
    claim = {**GROWTH, "rows": ["plain"], "threshold": 1.8}
    assert verdict(tmp_path, claim | ({} if null is None else {"no_effect": null})).verdict == expected


def test_a_difference_of_exponents_at_the_points_that_both_have(tmp_path: Path):
    """Beyond 512 plain has no value: there fast bends, which must not count."""
    drift = drifting()
    plain = times(lambda n: 1e-4 * n**2, seed=1, drift=drift, points=POINTS[:3])
    fast = times(lambda n: 1e-2 * n if n < 1000 else 50 * n, seed=2, drift=drift)
    measure(tmp_path, "plain", samples={"forward_ms": timed(plain, **{"1024": "out of memory"})})
    measure(tmp_path, "fast", samples={"forward_ms": timed(fast)})
    outcome = verdict(tmp_path, GROWTH, rows=["plain", "fast"], threshold=0.8)
    assert outcome.verdict == "reproduced"
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(1.0, abs=0.05)
    assert outcome.remarks[0].startswith("points 128, 256, 512; no median further than ")
    turned = verdict(tmp_path, GROWTH, rows=["fast", "plain"], threshold=-0.8, direction="less")
    assert turned.verdict == "reproduced"
    assert turned.effect is not None and turned.effect.value == pytest.approx(-outcome.effect.value)


def test_points_outside_the_range_do_not_touch_an_exponent(tmp_path: Path):
    points = ("16", *POINTS, "4096")
    samples = times(lambda n: n if 128 <= n <= 1024 else 1e6, points=points, noise=0.01)
    measure(tmp_path, "fast", samples={"forward_ms": timed(samples)})
    outcome = verdict(tmp_path, EXPONENT, quantity="forward_ms")
    assert outcome.effect is not None and outcome.effect.value == pytest.approx(1.0, abs=0.02)


def test_an_exponent_needs_three_points(tmp_path: Path):
    measure(tmp_path, "fast", samples={"forward_ms": timed(times(lambda n: n, points=("128", "256", "fp16x")[:2]))})
    outcome = verdict(tmp_path, EXPONENT, quantity="forward_ms")
    assert outcome.verdict == "not run"
    assert outcome.reason == "forward_ms: an exponent needs 3 points from 128 to 1024, got 128, 256"


def test_the_deviation_from_the_line_is_told(tmp_path: Path):
    counted = {p: [float(p) + 200] for p in POINTS}
    measure(tmp_path, "fast", samples={"memory": timed(counted, "bytes")})
    outcome = verdict(tmp_path, EXPONENT)
    at, values = np.log([float(p) for p in POINTS]), np.log([float(p) + 200 for p in POINTS])
    residual = np.abs(values - np.polyval(np.polyfit(at, values, 1), at)).max()
    assert (
        outcome.remarks[0]
        == f"points 128, 256, 512, 1024; no median further than {np.expm1(residual):.1%} from its line"
    )
    assert outcome.verdict == "contradicted"
