"""heads.json of a run: what every layer and head of a Transformer looks at, for some sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.report.schema import Node
from common.report.scores import Array
from common.report.sentences import load_json

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "attention of the decoder to the encoder",
}
ORDER = tuple(NAMES)


@dataclass(frozen=True)
class Heads:
    """One sentence: `maps` of (heads, queries, keys), in the order of the layers, by (what attends, layer from 1)."""

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    maps: Mapping[tuple[str, int], Array]

    def words(self, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Queries and keys of a kind of attention."""
        queries = self.source if kind == "encoder" else self.target
        return queries, self.target if kind == "decoder" else self.source


def read_heads(file: Path) -> list[Heads]:
    """Read heads.json. Raises ValueError where a map does not fit its words."""
    found = []
    for item in load_json(file):
        node = Node(item, file)
        by_place: dict[tuple[str, int], Array] = {}
        heads = Heads(node.text("id"), node.texts("source"), node.texts("target"), by_place)
        maps = node.child("maps")
        for name in sorted(maps.data, key=lambda name: (ORDER.index(place_of(name)[0]), place_of(name)[1])):
            place = place_of(name)
            weights = np.array(maps.get(name, list), dtype=float) / 100
            queries, keys = heads.words(place[0])
            if weights.ndim != 3 or weights.shape[1:] != (len(queries), len(keys)):
                raise maps.error(name, f"expected heads x {len(queries)} x {len(keys)}, got {weights.shape}")
            by_place[place] = weights
        found.append(heads)
    return found


def place_of(name: str) -> tuple[str, int]:
    """ "decoder.blocks.2.cross" is ("cross", 3): the kind of attention, and its layer counted from 1."""
    stack, _, layer, part = name.split(".")
    return ("cross" if part == "cross" else stack), int(layer) + 1
