"""Scores the stored translations of finished runs again, under every scorer of the ladder. No model, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from common.metrics import Score, ladder
from common.report.results import Results
from common.report.schema import Node
from common.report.sentences import WIDTHS, json_lines

TEXTS = {
    "hypotheses": "hypothesis",
    "references": "reference",
    "hypotheses_tok": "hypothesis_tok",
    "references_tok": "reference_tok",
}
"""Argument of `ladder` -> key of a record."""


def rescore(results: Results) -> int:
    """Adds the ladder's statistics to every sentences file of every finished run; returns how many files there were.

    Raises ValueError naming file, line and sentence where what is stored is not what the texts give.
    """
    files = [
        (run, file) for run in results.runs if run.ok for file in sorted((run.folder / "sentences").glob("*.jsonl"))
    ]
    for run, file in tqdm(files, desc="scoring again", unit=" files", disable=None):
        scores = rescored(file)
        statistics = {name: score.statistics.astype(float) for name, score in scores.items() if name not in WIDTHS}
        run.add_statistics(file, statistics, {name: score.signature for name, score in scores.items()})
    return len(files)


def rescored(file: Path) -> Mapping[str, Score]:
    """The scores of one file. Raises ValueError, see `rescore`."""
    nodes = [Node(record, file, f"line {number}") for number, record in json_lines(file)]
    texts = {name: [node.get(key, str) for node in nodes] for name, key in TEXTS.items()}
    try:
        scores = ladder(**texts)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    for name in WIDTHS:
        for node, computed in zip(nodes, scores[name].statistics.tolist(), strict=True):
            if (stored := node.get(name, list)) != computed:
                raise node.error(
                    name,
                    f"sentence {node.text('id')}: got {stored}, but its texts give {computed}: they were changed, or "
                    "scored by another version",
                )
    return scores
