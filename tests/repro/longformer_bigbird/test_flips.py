"""The package's own claims on planted results: each is upheld where its rows have the effect, and turns where they have the other."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.report.claims import Claim, load_claims
from common.report.compare import evaluate
from common.report.published import load_published
from common.report.results import load_results

PACKAGE = Path(__file__).parents[3] / "reproductions" / "longformer_bigbird"
CLAIMS = load_claims(PACKAGE / "claims.yaml", load_published(PACKAGE / "published.yaml"))
UPHELD, TURNED = ("reproduced", "direction only"), "contradicted"
ITEMS, TARGETS, REPEATS = 400, 50, 9


def record(folder: Path, scale: str, row: str) -> Path:
    run = folder / "longformer_bigbird" / scale / f"{row}-s1"
    run.mkdir(parents=True)
    facts = {
        "paper": "longformer_bigbird", "row": row, "label": row, "seed": 1, "scale": scale, "status": "ok", "ablation": [],
        "metrics": {}, "config_hash": "c", "source_hash": "now", "data_checksum": "d", "git_commit": "0f1e2d3c", "git_dirty": False,
    }  # fmt: skip
    (run / "result.json").write_text(json.dumps(facts))
    return run


def plant_items(folder: Path, scale: str, row: str, metric: str, value: float, splits: tuple[str, ...]) -> None:
    """A row whose items have this accuracy in percent, or so many bits a symbol, and lengths from 1 to 64."""
    run, rng = record(folder, scale, row), np.random.default_rng(len(row))
    (run / "items").mkdir()
    lines = []
    for number in range(ITEMS):
        level = value + rng.normal(0, 0.05 if metric == "bits" else 2.0)
        bits, hits = (level, 0) if metric == "bits" else (1.0, round(min(max(level, 0), 100) / 100 * TARGETS))
        item = {"id": f"i{number}", "cluster": f"page {number // 4}", "length": 1 + number % 64, "targets": TARGETS}
        lines.append(json.dumps(item | {"nll": bits * math.log(2) * TARGETS, "hits": hits}))
    for split in splits:
        (run / "items" / f"{split}.jsonl").write_text("\n".join(lines))


def plant_samples(folder: Path, scale: str, row: str, quantity: str, middle: Mapping[int, float]) -> None:
    noise = np.exp(np.random.default_rng(len(row)).normal(0, 0.005, REPEATS))
    at = {str(point): (value * noise).tolist() for point, value in middle.items()}
    unit = "MB" if quantity.endswith("mb") else "ms"
    (record(folder, scale, row) / "samples.json").write_text(
        json.dumps({quantity: {"unit": unit, "at": at, "refused": {}}})
    )


def effects(claim: Claim) -> tuple[float, float]:
    """One that upholds the claim and one that contradicts it, in the claim's own terms."""
    if claim.kind in ("equivalence", "exponent") or claim.expected is not None:
        assert claim.margin is not None
        centre = claim.expected or 0.0
        return centre, centre + 3 * claim.margin
    if claim.kind == "bound":
        assert claim.threshold is not None
        return (claim.threshold + 8, claim.threshold - 30) if claim.direction > 0 else (claim.threshold - 5, 60.0)
    if claim.kind == "ratio":
        assert claim.threshold is not None
        return 1.5 * claim.threshold, 0.6
    size = claim.target.value if claim.target else 2 * (claim.threshold or 0)
    return size, -size


def plant(folder: Path, scale: str, claim: Claim, effect: float) -> None:
    reading: Any = claim.reading
    if claim.measured:
        points = [2**n for n in range(10, 17)]
        if claim.kind == "exponent":
            plant_samples(folder, scale, claim.rows[0], reading.name, {n: (n / 1024) ** effect for n in points})
        else:
            for row, factor in zip(claim.rows, (effect, 1.0), strict=True):
                plant_samples(folder, scale, row, reading.name, {n: factor * n / 1024 for n in points})
        return
    base = 3.0 if reading.metric == "bits" else 60.0
    if claim.kind == "bound":
        values = [effect]
    else:
        values = [base * effect if claim.kind == "ratio" else base + effect, base]
    for row, value in zip(claim.rows, values, strict=True):
        plant_items(folder, scale, row, reading.metric, value, (reading.split,))


def decided() -> Iterator[Any]:
    for claim in CLAIMS.claims:
        for scale in ("small", "paper"):
            if scale not in claim.not_testable:
                yield pytest.param(claim, scale, id=f"{claim.id}-{scale}")


def verdict(folder: Path, scale: str, claim: Claim, effect: float) -> str:
    plant(folder, scale, claim, effect)
    found = load_results(folder, "longformer_bigbird", scale, lambda config: "now")
    return next(o.verdict for o in evaluate(CLAIMS, found, resamples=300) if o.claim is claim)


@pytest.mark.parametrize(("claim", "scale"), list(decided()))
def test_every_claim_can_be_upheld_and_contradicted(tmp_path: Path, claim: Claim, scale: str) -> None:
    good, bad = effects(claim)
    assert verdict(tmp_path / "good", scale, claim, good) in UPHELD
    assert verdict(tmp_path / "bad", scale, claim, bad) == TURNED
