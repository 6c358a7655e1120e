"""Per-sentence files of a run (JSON lines) as arrays: what corpus scores are resampled from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common.report.measures import Measure
from common.report.schema import Node
from common.report.scores import Array

# Numbers per sentence of each statistic as the file holds it.
WIDTHS = {"bleu": 10, "bleu_detok": 10, "chrf": 18}
LINK_WIDTHS = {"aer": 4}
ITEM_METRICS = ("bits", "accuracy")


@dataclass(frozen=True, eq=False)
class Items:
    """Test items in file order. `statistics`: name -> (items, width) sums; `source_tokens`: (items,) words, or None.

    `truncated` counts hypotheses that hit the length limit of the decoder. `signatures`: of the scorers by which the
    texts were scored again; empty where they were not.
    """

    file: Path
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    source_tokens: Array | None
    statistics: Mapping[str, Array]
    truncated: int = 0
    signatures: Mapping[str, str] = field(default_factory=dict)


def read_sentences(file: Path) -> Items:
    """Read sentences/<split>.jsonl. Raises ValueError naming file, line and key."""
    nodes = [Node(record, file, f"line {number}") for number, record in json_lines(file)]
    nll = np.array([[-node.number("nll"), node.number("target_tokens")] for node in nodes]).reshape(-1, 2)
    return Items(
        file=file,
        ids=_unique([node.text("id") for node in nodes], file),
        clusters=tuple(node.text("cluster") for node in nodes),
        source_tokens=np.array([node.number("source_tokens") for node in nodes]),
        statistics={name: _sums(nodes, name, width) for name, width in WIDTHS.items()} | {"log_likelihood": nll},
        truncated=sum(node.get("truncated", bool, False) for node in nodes),
    )


def read_monotone(file: Path) -> Items:
    """Read "monotone" of alignments.json: per sentence a statistic of its alignment, and the same after shuffling."""
    nodes = Node(load_json(file), file).children("monotone")
    values = [[node.number("statistic") - node.number("null"), 1.0] for node in nodes]
    return Items(
        file=file,
        ids=_unique([node.text("id") for node in nodes], file),
        clusters=tuple(node.text("cluster") for node in nodes),
        source_tokens=None,
        statistics={"monotone": np.array(values).reshape(-1, 2)},
    )


def read_links(file: Path) -> Items:
    """Read links/<split>.jsonl: per sentence the sums of its word links. Raises ValueError naming file, line and key."""
    nodes = [Node(record, file, f"line {number}") for number, record in json_lines(file)]
    return Items(
        file=file,
        ids=_unique([node.text("id") for node in nodes], file),
        clusters=tuple(node.text("cluster") for node in nodes),
        source_tokens=np.array([node.number("source_tokens") for node in nodes]),
        statistics={name: _sums(nodes, name, width) for name, width in LINK_WIDTHS.items()},
    )


def read_items(file: Path) -> Items:
    """Read items/<split>.jsonl: per piece of text or document its nll in nats, its targets and how many were right.

    `source_tokens`: its length, or what else its data counts, such as a distance.
    """
    nodes = [Node(record, file, f"line {number}") for number, record in json_lines(file)]
    nll, hits, targets = (np.array([node.number(key) for node in nodes]) for key in ("nll", "hits", "targets"))
    return Items(
        file=file,
        ids=_unique([node.text("id") for node in nodes], file),
        clusters=tuple(node.text("cluster") for node in nodes),
        source_tokens=np.array([node.number("length") for node in nodes]),
        statistics={
            "bits": np.stack([nll / math.log(2), targets], 1),
            "accuracy": np.stack([100 * hits, targets], 1),
        },
    )


def item_file(folder: Path, measure: Measure) -> tuple[Path, Callable[[Path], Items]]:
    """Return the file that a measure reads in a run's folder, and its reader."""
    if measure.metric == "monotone":
        return folder / "alignments.json", read_monotone
    suffix = "" if measure.subset == "all" else f".{measure.subset}"
    if measure.metric in ITEM_METRICS:
        return folder / "items" / f"{measure.split}{suffix}.jsonl", read_items
    if measure.metric in LINK_WIDTHS:
        return folder / "links" / f"{measure.split}{suffix}.jsonl", read_links
    return folder / "sentences" / f"{measure.split}{suffix}.jsonl", read_sentences


@dataclass(frozen=True, eq=False)
class Alignment:
    """One drawn alignment: `weights` (target, source), each row sums to 1."""

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Array


def read_alignments(file: Path) -> list[Alignment]:
    """Read the drawn alignments of alignments.json. Raises ValueError where a matrix does not fit its words."""
    alignments = []
    for node in Node(load_json(file), file).children("alignments"):
        source, target = node.texts("source"), node.texts("target")
        weights = np.array(node.get("weights", list), dtype=float)
        if weights.shape != (len(target), len(source)):
            raise node.error(
                "weights", f"expected {len(target)} x {len(source)} (target x source), got {weights.shape}"
            )
        alignments.append(Alignment(node.text("id"), source, target, weights))
    return alignments


def _sums(nodes: list[Node], name: str, width: int) -> Array:
    rows = []
    for node in nodes:
        row = node.get(name, list)
        if len(row) != width:
            raise node.error(name, f"expected {width} numbers, got {len(row)}")
        rows.append(row)
    return np.array(rows, dtype=float).reshape(-1, width)


def _unique(ids: list[str], file: Path) -> tuple[str, ...]:
    seen: set[str] = set()
    for item in ids:
        if item in seen:
            raise ValueError(f"{file}: id {item!r} occurs twice, expected one line per sentence")
        seen.add(item)
    return tuple(ids)


def json_lines(file: Path) -> list[tuple[int, Any]]:
    """Line numbers and what they hold. Raises ValueError naming file and line."""
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append((number, json.loads(line)))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}: line {number}: not valid JSON: {error}") from error
    return records


def load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not valid JSON: {error}") from error
