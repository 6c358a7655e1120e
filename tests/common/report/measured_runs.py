"""A paper that measures, and runs with planted samples: medians, ratios and exponents are known in closed form."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from common.report.claims import Claims, load_claims
from common.report.compare import Outcome, evaluate
from common.report.elsewhere import load_benches
from common.report.join import build_report
from common.report.published import Published, load_published
from common.report.results import Results, load_results
from common.report.views import Report

HASH = "current"
POINTS = ("128", "256", "512", "1024")
MACHINE = {"cpu": "a test processor", "cores": 2, "gpu": None}
Quantities = Mapping[str, Mapping[str, Any]]

PUBLISHED: dict[str, Any] = {
    "paper": "speed",
    "title": "A Fast Method",
    "authors": ["A. Author"],
    "year": 2000,
    "arxiv": "0000.00000",
    "venue": "nowhere",
    "tables": [
        {
            "id": "table_1",
            "title": "Table 1",
            "caption": "Forward time by length.",
            "metric": "milliseconds",
            "evidence": "read",
            "source": "made up",
            "comparable": "Another machine: only ratios and exponents carry over.",
            "comparable_at": ["paper"],
            "tolerance": 1.0,
            "points": {"quantity": "forward_ms", "unit": "ms", "at": list(POINTS)},
            "rows": {
                "plain": {"label": "Plain", "points": [0.5, 2.0, 8.0, 32.0]},
                "fast": {"label": "Fast", "points": [0.4, 0.8, 1.6, 3.2]},
                "other": {"label": "Other", "points": [0.3, 0.9, "OOM", None], "not_run": "its code is not public"},
            },
            "plot": {"kind": "quantity", "quantity": "forward_ms"},
        },
        {
            "id": "table_2",
            "title": "Table 2",
            "caption": "Memory by length.",
            "metric": "GB",
            "evidence": "read",
            "source": "made up",
            "columns": {
                "m128": {"label": "128", "ours": {"quantity": "memory", "at": "128", "factor": 1e-9, "unit": "GB"}},
                "m1024": {"label": "1024", "ours": {"quantity": "memory", "at": "1024", "factor": 1e-9, "unit": "GB"}},
            },
            "rows": {"plain": {"label": "Plain", "m128": 1.0, "m1024": 60.0}, "fast": {"label": "Fast", "m128": 0.5}},
        },
    ],
}
RATIO = {
    "id": "faster",
    "claim": "The fast method is faster.",
    "place": "Table 1",
    "kind": "ratio",
    "rows": ["plain", "fast"],
    "quantity": "forward_ms",
    "at": "1024",
    "direction": "greater",
    "threshold": 2,
    "testable": ["smoke", "small", "paper"],
}
EXPONENT = {
    "id": "linear",
    "claim": "Memory is linear in length.",
    "place": "Table 2",
    "kind": "exponent",
    "rows": ["fast"],
    "quantity": "memory",
    "over": [128, 1024],
    "expected": 1.0,
    "margin": 0.05,
    "testable": ["smoke", "small", "paper"],
}


def without(claim: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in claim.items() if key not in keys}


def timed(at: Mapping[str, Sequence[float]], unit: str = "ms", **refused: str) -> dict[str, Any]:
    """One quantity of samples.json."""
    return {"unit": unit, "at": {point: list(values) for point, values in at.items()}, "refused": refused}


def times(
    middle: Callable[[float], float],
    *,
    repeats: int = 15,
    noise: float = 0.03,
    seed: int = 0,
    drift: np.ndarray | None = None,
    points: Sequence[str] = POINTS,
) -> dict[str, list[float]]:
    """Times about `middle(point)`: log-normal noise of a repeat's own, times what its turn shares (`drift`)."""
    rng = np.random.default_rng(seed)
    shared = np.ones(repeats) if drift is None else drift
    return {p: (middle(float(p)) * shared * np.exp(rng.normal(0, noise, repeats))).tolist() for p in points}


def drifting(turns: int = 15) -> np.ndarray:
    """A machine whose speed changes threefold from turn to turn, for all rows of a turn alike."""
    return np.exp(np.random.default_rng(9).normal(0, 1.0, turns))


def measure(
    root: Path, row: str, seed: int = 1, *, scale: str = "small", samples: Quantities | None = None, **result: Any
) -> Path:
    """Write one measured run and return its folder."""
    folder = root / "speed" / scale / f"{row}-s{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.json").write_text(json.dumps(samples or {}))
    record = {
        "paper": "speed",
        "table": "table_1",
        "row": row,
        "label": row.capitalize(),
        "seed": seed,
        "scale": scale,
        "status": "ok",
        "ablation": [],
        "config_hash": "c",
        "source_hash": HASH,
        "git_commit": "0f1e2d3c",
        "git_dirty": False,
        "versions": {"torch": "2.13.0"},
        "hardware": MACHINE,
        "started": f"2026-01-0{seed}T08:00:00+00:00",
        "seconds": 12.5,
        "peak_memory_bytes": 10**9,
        "command": f"python -m reproductions.measure row={row}",
    }
    (folder / "result.json").write_text(json.dumps(record | result))
    return folder


def paper(root: Path, claims: Sequence[Mapping[str, Any]], published: Mapping[str, Any] = PUBLISHED) -> Claims:
    """Write published.yaml and claims.yaml (without lengths) and load the claims."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "published.yaml").write_text(yaml.safe_dump(copy.deepcopy(dict(published)), sort_keys=False))
    (root / "claims.yaml").write_text(yaml.safe_dump({"paper": "speed", "claims": list(claims)}, sort_keys=False))
    return load_claims(root / "claims.yaml", read_published(root))


def read_published(root: Path) -> Published:
    return load_published(root / "published.yaml")


def results(root: Path, scale: str = "small") -> Results:
    return load_results(root, "speed", scale, lambda config: HASH)


def verdicts(root: Path, *claims: Mapping[str, Any], resamples: int = 500) -> list[Outcome]:
    """Evaluate claims over the runs below root."""
    return evaluate(paper(root / "paper", claims), results(root), resamples=resamples)


def verdict(root: Path, claim: Mapping[str, Any], **changes: Any) -> Outcome:
    [outcome] = verdicts(root, {**claim, **changes})
    return outcome


def make_report(
    root: Path, *claims: Mapping[str, Any], scale: str = "small", published: Mapping[str, Any] = PUBLISHED
) -> Report:
    """The report over the runs below root, with paper/measured/*.json."""
    loaded = paper(root / "paper", claims, published)
    benches = load_benches(root / "paper" / "measured")
    return build_report(read_published(root / "paper"), loaded, results(root, scale), benches=benches, resamples=300)


def whole(root: Path) -> None:
    """Runs of both rows: plain is quadratic, fast linear; plain refuses the longest; fast has bytes that are counted."""
    drift = np.exp(np.random.default_rng(9).normal(0, 0.3, 15))
    plain = times(lambda n: 1e-5 * n**2, seed=1, drift=drift)
    fast = times(lambda n: 1e-3 * n, seed=2, drift=drift, points=(*POINTS, "2048"))
    memory = {"unit": "bytes", "at": {p: [4e6 * float(p)] for p in POINTS}}
    square = {"unit": "bytes", "at": {p: [6e4 * float(p) ** 2] for p in POINTS[:3]}, "refused": {"1024": "needs 63 GB"}}
    measure(root, "plain", samples={"forward_ms": timed(plain, **{"2048": "out of memory"}), "memory": square})
    measure(root, "fast", samples={"forward_ms": timed(fast), "memory": memory})
