"""Claims of packages on planted results: each is upheld where its rows have the effect, and turns where they have the other."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.report.claims import Claim, load_claims
from common.report.compare import evaluate
from common.report.published import load_published
from common.report.results import load_results

ROOT = Path(__file__).parents[2] / "reproductions"
PAPERS = ("field_guide", "longformer_bigbird", "mqa_gqa", "performer_linformer")
PUBLISHED = {paper: load_published(ROOT / paper / "published.yaml") for paper in PAPERS}
CLAIMS = {paper: load_claims(ROOT / paper / "claims.yaml", PUBLISHED[paper]) for paper in PAPERS}
UPHELD, TURNED = ("reproduced", "direction only"), "contradicted"
ITEMS, TARGETS, REPEATS = 400, 50, 9
NOISE = {"accuracy": 4.0, "bleu": 4.0}
"""What a difference must be larger than to stand out of what is planted; of other metrics 0.2."""


@dataclass(frozen=True)
class Place:
    """Where rows are planted."""

    folder: Path
    paper: str
    scale: str


def record(place: Place, row: str) -> Path:
    *others, row = row.split("/")
    paper = others[0] if others else place.paper
    run = place.folder / paper / place.scale / f"{row}-s1"
    run.mkdir(parents=True, exist_ok=True)
    facts = {
        "paper": paper, "row": row, "label": row, "seed": 1, "scale": place.scale, "status": "ok", "ablation": [],
        "metrics": {}, "config_hash": "c", "source_hash": "now", "data_checksum": "d", "git_commit": "0f1e2d3c", "git_dirty": False,
    }  # fmt: skip
    (run / "result.json").write_text(json.dumps(facts))
    return run


def plant_items(place: Place, row: str, reading: Any, value: float) -> None:
    """A row whose items have this accuracy in percent, or so many bits a symbol, and lengths that are read."""
    run, rng, metric = record(place, row), np.random.default_rng(len(row)), reading.metric
    shortest, longest = reading.source_tokens or (1, 64)
    lengths = range(shortest, min(longest, shortest + 63) + 1)
    (run / "items").mkdir()
    lines = []
    for number in range(5 * ITEMS):  # where all are right, few could not say that nearly all are
        level = value + rng.normal(0, 0.05 if metric == "bits" else 2.0)
        bits, hits = (level, 0) if metric == "bits" else (1.0, round(min(max(level, 0), 100) / 100 * TARGETS))
        item = {
            "id": f"i{number}",
            "cluster": f"page {number}",
            "length": lengths[number % len(lengths)],
            "targets": TARGETS,
        }
        lines.append(json.dumps(item | {"nll": bits * math.log(2) * TARGETS, "hits": hits}))
    (run / "items" / f"{reading.split}.jsonl").write_text("\n".join(lines))


def plant_sentences(place: Place, row: str, metric: str, value: float, split: str) -> None:
    """A row whose sentences have this log-likelihood a token, or this BLEU: as many per cent of the n-grams of each order."""
    run, rng = record(place, row), np.random.default_rng(len(row))
    (run / "sentences").mkdir()
    lines = []
    for number in range(ITEMS):
        level = value + rng.normal(0, 0.02 if metric == "log_likelihood" else 1.0)
        of_one = -level if metric == "log_likelihood" else 3.0
        grams = [10 * level if metric == "bleu" else 300] * 4
        bleu = [1000, 1000, *grams, *[1000] * 4]
        item = {"id": f"i{number}", "cluster": f"chapter {number // 4}", "source_tokens": 1 + number % 50}
        scores = {"nll": of_one * TARGETS, "target_tokens": TARGETS, "bleu": bleu, "bleu_detok": bleu, "chrf": [1] * 18}
        lines.append(json.dumps(item | scores))
    (run / "sentences" / f"{split}.jsonl").write_text("\n".join(lines))


def plant_samples(place: Place, row: str, quantity: str, middle: Mapping[str, float]) -> None:
    noise = np.exp(np.random.default_rng(len(row)).normal(0, 0.005, REPEATS))
    at = {point: (value * noise).tolist() for point, value in middle.items()}
    (record(place, row) / "samples.json").write_text(json.dumps({quantity: {"unit": "u", "at": at, "refused": {}}}))


def effects(claim: Claim) -> tuple[float, float]:
    """One that upholds the claim and one that contradicts it, in the claim's own terms."""
    if claim.margin is not None:
        centre = claim.expected or 0.0
        return centre, centre + 3 * claim.margin
    if claim.kind == "exponent":
        assert claim.threshold is not None
        return claim.threshold + claim.direction, claim.threshold - claim.direction
    if claim.kind == "ratio" and claim.target:
        return claim.target.value, 1 / claim.target.value
    if claim.kind in ("bound", "ratio") and claim.measured and claim.threshold:
        above, below = 1.5 * max(claim.threshold, claim.null), 0.6 * min(claim.threshold, claim.null)
        return (above, below) if claim.direction > 0 else (below, above)
    if claim.kind == "bound" and not claim.measured:
        assert claim.threshold is not None
        return (claim.threshold + 8, claim.threshold - 30) if claim.direction > 0 else (claim.threshold - 5, 60.0)
    if claim.kind == "ratio":
        assert claim.threshold is not None
        return 1.5 * claim.threshold, 0.6
    if claim.target:
        return claim.target.value, -claim.target.value
    assert claim.threshold is not None
    beyond = claim.direction * max(NOISE.get(getattr(claim.reading, "metric", ""), 0.2), abs(claim.threshold))
    return claim.threshold + beyond, claim.null - beyond


def doubled(low: float, high: float) -> list[int]:
    return [round(low) * 2**n for n in range(round(math.log2(high / low)) + 1)]


def plant(place: Place, claim: Claim, effect: float) -> None:
    reading: Any = claim.reading
    if claim.measured:
        plant_measured(place, claim, effect)
        return
    base = {"bits": 3.0, "log_likelihood": -3.0, "bleu": 30.0}.get(reading.metric, 60.0)
    if claim.kind == "bound":
        values = [effect]
    elif claim.kind == "ratio":
        values = [base * effect, base]
    else:  # each as far above the next
        values = [base + effect * step for step in reversed(range(len(claim.rows)))]
    for row, value in zip(claim.rows, values, strict=True):
        if reading.metric in ("log_likelihood", "bleu"):
            plant_sentences(place, row, reading.metric, value, reading.split)
        else:
            plant_items(place, row, reading, value)


def plant_measured(place: Place, claim: Claim, effect: float) -> None:
    reading: Any = claim.reading
    if claim.kind == "exponent":
        assert claim.over is not None
        points = doubled(*claim.over)
        for row, power in zip(
            claim.rows, (effect, 0.0) if len(claim.rows) == 1 else (effect - 1.5, -1.5), strict=False
        ):
            plant_samples(place, row, reading.name, {str(n): (n / points[0]) ** power for n in points})
        return
    planted: dict[str, dict[str, float]] = {}
    factors = (1.0 + effect if claim.kind == "gap" else effect, 1.0)[: len(claim.rows)]
    for i, (row, factor) in enumerate(zip(claim.rows, factors, strict=True)):
        points = (
            [reading.at[min(i, len(reading.at) - 1)]]
            if reading.at
            else [str(n) for n in doubled(claim.start or 1024, 65536)]
        )
        planted.setdefault(row, {}).update({point: factor for point in points})
    for row, middle in planted.items():
        plant_samples(place, row, reading.name, middle)


def decided() -> Iterator[Any]:
    for paper, claims in CLAIMS.items():
        for claim in claims.claims:
            for scale in ("small", "paper"):
                if scale not in claim.not_testable and planted_here(claim):
                    yield pytest.param(paper, scale, claim, id=f"{paper}-{claim.id}-{scale}")


def planted_here(claim: Claim) -> bool:
    """What is read over lengths and links of words are planted beside the papers that claim them, bahdanau and luong."""
    return claim.kind != "slope" and not claim.baseline and getattr(claim.reading, "metric", "") != "aer"


def verdict(place: Place, claim: Claim, effect: float) -> str:
    plant(place, claim, effect)
    others = PUBLISHED[place.paper].rows_of_others
    found = load_results(place.folder, place.paper, place.scale, lambda config: "now", others)
    return next(o.verdict for o in evaluate(CLAIMS[place.paper], found, resamples=300) if o.claim is claim)


@pytest.mark.parametrize(("paper", "scale", "claim"), list(decided()))
def test_every_claim_can_be_upheld_and_contradicted(tmp_path: Path, paper: str, scale: str, claim: Claim) -> None:
    good, bad = effects(claim)
    assert verdict(Place(tmp_path / "good", paper, scale), claim, good) in UPHELD
    assert verdict(Place(tmp_path / "bad", paper, scale), claim, bad) == TURNED
