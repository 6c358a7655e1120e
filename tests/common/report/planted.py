"""Runs with planted scores: a sentence has the BLEU it was told to have, so effects are known in closed form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from common.report.claims import Claims, load_claims
from common.report.compare import Outcome, evaluate
from common.report.published import load_published
from common.report.results import Results, load_results

HASH = "current"


def bleu_sums(score: float, words: int) -> list[float]:
    """Ten sums with BLEU = score: t_n = words, m_n = words * p^n give 100 * p^((1+2+3+4)/4), so p = (score/100)^0.4."""
    p = (score / 100) ** 0.4
    return [words, words, *(words * p**n for n in range(1, 5)), *[words] * 4]


@dataclass
class Sentence:
    """One test sentence: its chapter, words in the source, planted BLEU, log-likelihood per token."""

    cluster: int
    words: int
    score: float
    per_token: float = -2.0


def plant(
    root: Path,
    row: str,
    seed: int,
    sentences: Iterable[Sentence],
    *,
    scale: str = "small",
    split: str = "test",
    **result: object,
) -> Path:
    """Write one run (again for another split) and return its folder."""
    folder = root / "demo" / scale / f"{row}-s{seed}"
    (folder / "sentences").mkdir(parents=True, exist_ok=True)
    lines = [_record(number, sentence) for number, sentence in enumerate(sentences)]
    (folder / "sentences" / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = {
        "paper": "demo",
        "row": row,
        "label": row.upper(),
        "seed": seed,
        "scale": scale,
        "status": "ok",
        "ablation": [],
        "metrics": {},
        "config_hash": "c",
        "source_hash": HASH,
        "data_checksum": "d",
        "git_commit": "0f1e2d3c",
        "git_dirty": False,
    }
    (folder / "result.json").write_text(json.dumps(record | result))
    return folder


def _record(number: int, sentence: Sentence) -> Mapping[str, object]:
    return {
        "id": f"s{number}",
        "cluster": f"chapter {sentence.cluster}",
        "source_tokens": sentence.words,
        "bleu": bleu_sums(sentence.score, sentence.words),
        "bleu_detok": bleu_sums(sentence.score, sentence.words),
        "chrf": [10, 10, 5] * 6,
        "nll": -sentence.per_token * sentence.words,
        "target_tokens": sentence.words,
        "truncated": False,
    }


def corpus(
    score: Callable[[int], float],
    *,
    clusters: int = 30,
    each: int = 4,
    words: Iterable[int] = (20,),
    noise: float = 0.3,
    seed: int = 0,
) -> list[Sentence]:
    """Sentences in chapters; `score(words)` plus noise shared by a chapter. `words` are gone through in turn."""
    rng = np.random.default_rng(seed)
    lengths = list(words)
    found = []
    for cluster in range(clusters):
        shift = rng.normal(0, noise)
        for i in range(each):
            n = lengths[(cluster * each + i) % len(lengths)]
            found.append(Sentence(cluster, n, max(score(n) + shift, 0.1)))
    return found


PUBLISHED = {
    "paper": "demo",
    "title": "A Demonstration",
    "authors": ["A. Author"],
    "year": 2000,
    "arxiv": "0000.00000",
    "venue": "nowhere",
    "tables": [
        {
            "id": "table_1",
            "title": "Table 1",
            "caption": "Scores.",
            "metric": "BLEU",
            "evidence": "read",
            "source": "made up",
            "comparable": "Other data: differences do not carry over.",
            "comparable_at": ["paper"],
            "tolerance": 1.0,
            "columns": {"bleu": {"label": "All", "ours": {"metric": "bleu"}}},
            "rows": {
                "good": {"label": "Good", "bleu": 30.0},
                "fair": {"label": "Fair", "bleu": 24.0},
                "poor": {"label": "Poor", "bleu": 20.0},
            },
        }
    ],
}
CLAIM = {
    "id": "gain",
    "claim": "Good is better than poor.",
    "place": "Table 1",
    "kind": "gap",
    "rows": ["good", "poor"],
    "metric": "bleu",
    "direction": "greater",
    "published": {"table": "table_1", "column": "bleu"},
    "band": [0.5, 2.0],
    "testable": ["small", "paper"],
    "not_testable": {"smoke": "toy data"},
}


def write_claims(
    folder: Path, claims: list[Mapping[str, object]], published: Mapping[str, object] = PUBLISHED
) -> Claims:
    """Write published.yaml and claims.yaml, and load the claims."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "published.yaml").write_text(yaml.safe_dump(published, sort_keys=False))
    words = {"width": 10, "up_to": 80, "fewest": 5}
    lengths = dict.fromkeys(("smoke", "small", "paper"), words)
    data = {"paper": published["paper"], "lengths": lengths, "claims": claims}
    (folder / "claims.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return load_claims(folder / "claims.yaml", load_published(folder / "published.yaml"))


def results(root: Path, scale: str = "small") -> Results:
    """Load what was planted."""
    return load_results(root, "demo", scale, lambda config: HASH)


def verdicts(tmp_path: Path, claims: list[Mapping[str, object]], scale: str = "small") -> list[Outcome]:
    """Evaluate claims over the planted runs below tmp_path."""
    return evaluate(write_claims(tmp_path / "paper", claims), results(tmp_path, scale), resamples=500)
