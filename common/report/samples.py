"""samples.json of a measured run: repeated measurements of quantities at points, and the points that were refused.

{"<quantity>": {"unit": "ms", "at": {"128": [0.41, 0.40, ...], ...}, "refused": {"65536": "needs 32 GiB"}}}

A point is a sequence length, a dtype, a density, written as text. Repeats of the same index in different rows were taken
in the same turn if the rows were measured together, which their result.json says: same table, seed and `started`.
A quantity that is counted, such as bytes, has one value and is exact; one value of a time or a rate says nothing about
its spread. What depends on random inputs, such as an error, must be given for several of them, or it passes for exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.report.schema import Node

TIMES = ("ns", "us", "µs", "ms", "s", "min", "h")


@dataclass(frozen=True)
class Samples:
    """One quantity: `at`: its repeats by point; `refused`: the reason by point. No point is in both."""

    unit: str
    at: Mapping[str, tuple[float, ...]]
    refused: Mapping[str, str]

    @property
    def timed(self) -> bool:
        """Whether the unit is one of time or a rate, so that a repeat would have given another value."""
        return self.unit in TIMES or self.unit.endswith("/s")


def read_samples(file: Path) -> dict[str, Samples]:
    """Read a samples.json. Raises ValueError naming file, quantity and point."""
    node = read_json(file)
    return {name: _whole(node.child(name)) for name in node.data}


def _whole(node: Node) -> Samples:
    samples = samples_of(node)
    node.done()
    return samples


def samples_of(node: Node) -> Samples:
    """Read `unit`, `at` and `refused` from a node (the caller ends with `node.done()`)."""
    at, refused = node.child("at"), node.child("refused", {})
    samples = Samples(
        node.text("unit"),
        {point: _repeats(at, point) for point in at.data},
        {point: refused.text(point) for point in refused.data},
    )
    for point in samples.at:
        if point in samples.refused:
            raise node.error("refused", f"point {point!r} is measured in at: expected it in one of the two")
    return samples


def _repeats(node: Node, point: str) -> tuple[float, ...]:
    values = node.get(point, list)
    numbers = [isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in values]
    if not values or not all(numbers):
        raise node.error(point, f"expected a list of finite numbers, one per repeat, got {values!r}")
    return tuple(map(float, values))


def read_json(file: Path) -> Node:
    """Read a JSON file whose top level is an object. Raises ValueError for broken JSON."""
    try:
        return Node(json.loads(file.read_text(encoding="utf-8")), file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not valid JSON: {error}") from error


def number_of(point: str) -> float | None:
    """A point as a positive number, to put it on an axis; None for one such as fp16."""
    try:
        number = float(point)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def in_order(points: Iterable[str]) -> list[str]:
    """Points that are numbers by their size, then the others as they came; each once."""
    numbers = {point: number for point in points if (number := number_of(point)) is not None}
    return [*sorted(numbers, key=lambda point: numbers[point]), *(p for p in dict.fromkeys(points) if p not in numbers)]
