"""Makes a runs folder that looks real: texts with known damage, statistics by sacreBLEU, curves, alignments."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from sacrebleu.metrics.bleu import BLEU

ENGLISH_TEXT = """the and of that he in they said unto them Lord God king people house son day land came went man came
earth water hand heart word city father mother servant great good evil light darkness before after children Israel"""
FRENCH_TEXT = """le la les et de que il dans ils dit à eux Éternel Dieu roi peuple maison fils jour pays vint alla homme
terre eau main cœur parole ville père mère serviteur grand bon mal lumière ténèbres devant après enfants Israël"""
ENGLISH, FRENCH = ENGLISH_TEXT.split(), FRENCH_TEXT.split()
LABELS = {
    "rnnencdec_30": "RNNencdec-30",
    "rnnsearch_30": "RNNsearch-30",
    "rnnencdec_50": "RNNencdec-50",
    "rnnsearch_50": "RNNsearch-50",
    "rnnsearch_50_star": "RNNsearch-50*",
}
BLEU_MOSES = BLEU(tokenize="none", force=True)
NUMBER_OF_CHAPTERS = 30


@dataclass(frozen=True)
class Quality:
    """The share of words that survive: `base` for short sentences, minus `fall` per 10 words."""

    base: float
    fall: float
    spread: float = 0.004


QUALITIES = {
    "rnnencdec_30": Quality(0.36, 0.045),
    "rnnsearch_30": Quality(0.42, 0.012),
    "rnnencdec_50": Quality(0.37, 0.025),
    "rnnsearch_50": Quality(0.44, 0.003),
    "rnnsearch_50_star": Quality(0.45, 0.002),
}


@dataclass
class FakeRuns:
    """What to make: `sizes` sentences per split; `qualities` by row; overrides of result.json by run name."""

    root: Path
    scale: str = "small"
    seeds: Sequence[int] = (1, 2, 3)
    sizes: dict[str, int] = field(default_factory=lambda: {"test": 150, "test_long": 300})
    qualities: dict[str, Quality] = field(default_factory=lambda: dict(QUALITIES))
    hardware: str = "a test processor"

    def build(self) -> Path:
        """Write every row with every seed; return the runs folder."""
        for row in self.qualities:
            for seed in self.seeds:
                self.write(row, seed)
        return self.root

    def folder(self, row: str, seed: int) -> Path:
        """The folder of one run."""
        return self.root / "bahdanau" / self.scale / f"{row}-s{seed}"

    def write(self, row: str, seed: int, **overrides: object) -> Path:
        """Write one run."""
        folder = self.folder(row, seed)
        (folder / "sentences").mkdir(parents=True, exist_ok=True)
        base = row.split("+")[0]
        quality = self.qualities.get(row) or self.qualities[base]
        rng = np.random.default_rng([seed, len(row), ord(row[-1])])
        quality = Quality(quality.base + rng.normal(0, quality.spread), quality.fall)
        limit = 30 if "30" in row else 50
        for split, size in self.sizes.items():
            records = sentences(split, size, quality, limit, rng)
            _write_lines(folder / "sentences" / f"{split}.jsonl", records)
            if split == "test":
                _write_lines(folder / "sentences" / "test.no_unk.jsonl", [r for r in records if not r["source_unk"]])
            if split == "test_long":
                shuffled = sentences(split, size, Quality(quality.base * 0.55, 0.0), limit, rng)
                _write_lines(folder / "sentences" / f"{split}.shuffled.jsonl", shuffled)
        result = self.result(row, seed, limit) | overrides
        (folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        (folder / "config.yaml").write_text(
            yaml.safe_dump({"data": {"max_words": limit}, "seed": seed}), encoding="utf-8"
        )
        _write_curves(folder / "curves.csv", quality)
        if "search" in row:
            (folder / "alignments.json").write_text(json.dumps(alignments(rng, self.sizes["test"])), encoding="utf-8")
        return folder

    def result(self, row: str, seed: int, limit: int) -> dict[str, object]:
        """A result.json of the agreed form."""
        star = 2.4 if row.endswith("star") else 1.0
        return {
            "paper": "bahdanau",
            "table": "table_1",
            "row": row,
            "label": LABELS.get(row, row),
            "seed": seed,
            "scale": self.scale,
            "ablation": [],
            "status": "ok",
            "metrics": {},
            "parameters": 6_912_341,
            "config_hash": f"config of {row}",
            "source_hash": "5f3a9c21",
            "data_checksum": "9605a855220e9b8c",
            "git_commit": "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
            "git_dirty": False,
            "versions": {"python": "3.11.2", "torch": "2.13.0", "sacrebleu": "2.6.0"},
            "hardware": {"cpu": self.hardware, "cores": 2, "gpu": None},
            "started": f"2025-01-0{seed}T08:00:00Z",
            "seconds": 640.0 * star,
            "train": {
                "updates": int(3100 * star),
                "epochs": 2.1 * star,
                "target_tokens": int(5.2e6 * star),
                "seconds": 590.0 * star,
                "tokens_per_second": 8813.0,
                "train_nll": 61.2 if limit == 50 else 44.7,
                "dev_nll": 66.0 - 4 * ("search" in row),
            },
            "decode": {"beam": 5, "sentences": sum(self.sizes.values()), "sentences_per_second": 41.5},
            "peak_memory_bytes": 2_400_000_000,
            "data": {
                "name": "bible en-fr",
                "source": "World English Bible and Louis Segond 1910",
                "licence": "public domain",
                "domain": "scripture, archaic style",
                "counts": {"train": {"read": 112551, "kept": 88504}, "test": {"read": 200, "kept": self.sizes["test"]}},
            },
        }


def sentences(split: str, size: int, quality: Quality, limit: int, rng: np.random.Generator) -> list[dict[str, object]]:
    """Test sentences: the same sources and references for every row, hypotheses damaged by `quality`."""
    fixed = np.random.default_rng([len(split), size])
    top = 80 if split.endswith("_long") else 55
    records, hypotheses, references = [], [], []
    for i in range(size):
        n = int(fixed.integers(3, top))
        words = fixed.integers(0, len(FRENCH), n)
        kept = np.clip(quality.base - quality.fall * max(n - (8 if n <= limit else 0), 0) / 10, 0.12, 1.0)
        damaged = [w if rng.random() < kept else int(rng.integers(0, len(FRENCH))) for w in words]
        reference = " ".join(FRENCH[w] for w in words) + " ."
        hypothesis = " ".join(FRENCH[w] for w in damaged) + " ."
        references.append(reference)
        hypotheses.append(hypothesis)
        records.append(
            {
                "id": f"GEN {i // 20 + 1}:{i % 20 + 1}",
                "cluster": f"GEN {i * NUMBER_OF_CHAPTERS // size + 1}",
                "source": " ".join(ENGLISH[w % len(ENGLISH)] for w in words) + ".",
                "reference": reference.replace(" .", "."),
                "hypothesis": hypothesis.replace(" .", "."),
                "source_tokens": n,
                "source_unk": int(fixed.random() < 0.4),
                "reference_unk": 0,
                "hypothesis_tok": hypothesis,
                "reference_tok": reference,
                "nll": float((n + 2) * (4.6 - 3.5 * kept) * rng.normal(1, 0.03)),
                "target_tokens": n + 2,
                "truncated": bool(rng.random() < 0.002),
            }
        )
    add_statistics(records, hypotheses, references)
    return records


def add_statistics(records: list[dict[str, object]], hypotheses: list[str], references: list[str]) -> None:
    """Add sacreBLEU's sums to each record. 13a finds the same tokens in the text; chrF sums are made up from them."""
    statistics = BLEU_MOSES._extract_corpus_statistics(hypotheses, [references])
    for record, sums in zip(records, statistics, strict=True):
        record["bleu"] = record["bleu_detok"] = list(sums)
        letters, share = 5 * sums[0], sums[2] / sums[0]
        record["chrf"] = [n for order in range(1, 7) for n in (letters, letters, letters * share**order)]


def alignments(rng: np.random.Generator, size: int) -> dict[str, object]:
    """A few alignments near the diagonal, and per test sentence a statistic with its shuffled null."""
    drawn = []
    for i, n in enumerate((9, 12, 17, 22)):
        columns = np.arange(n)
        rows = [np.exp(-((columns - j * n / (n + 1) + rng.normal(0, 0.6)) ** 2) / 1.3) + 0.01 for j in range(n + 1)]
        weights = [(row / row.sum()).round(4).tolist() for row in rows]
        source = [ENGLISH[int(k)] for k in rng.integers(0, len(ENGLISH), n - 1)] + ["</s>"]
        target = [FRENCH[int(k)] for k in rng.integers(0, len(FRENCH), n)] + ["</s>"]
        drawn.append({"id": f"GEN {i + 1}:1", "source": source, "target": target, "weights": weights})
    monotone = [
        {
            "id": f"GEN {i // 20 + 1}:{i % 20 + 1}",
            "cluster": f"GEN {i * NUMBER_OF_CHAPTERS // size + 1}",
            "statistic": float(np.clip(rng.normal(0.8, 0.1), -1, 1)),
            "null": float(np.clip(rng.normal(0, 0.2), -1, 1)),
        }
        for i in range(size)
    ]
    return {"alignments": drawn, "monotone": monotone}


def _write_lines(file: Path, records: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def _write_curves(file: Path, quality: Quality) -> None:
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["update", "target_tokens", "train_nll", "dev_nll", "lr", "tokens_per_second"])
        for step in range(50, 3150, 50):
            nll = 3.4 - 1.6 * quality.base + 3.5 * np.exp(-step / 500)
            dev = f"{nll + 0.15:.4f}" if step % 250 == 0 else ""
            writer.writerow([step, step * 1700, f"{nll:.4f}", dev, 1.0, 8800])
