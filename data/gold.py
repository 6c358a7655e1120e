"""Word links made by hand, of the examples of a prepared data set: what alignments are scored against."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from data.pairs import Aligned, Counts, Link

FILE = "gold.json"

Links = dict[str, list[dict[str, list[Link]]]]
"""split -> for each example, in order, its links by kind: sure, possible."""


@dataclass(frozen=True)
class Gold:
    """Links of one example, (place of the source word, place of the target word) from 0; sure ones are possible too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def links_of(pair: Aligned) -> dict[str, list[Link]]:
    return {"sure": sorted(pair.sure), "possible": sorted(pair.possible)}


def write_links(folder: Path, links: Links, counts: Counts) -> bytes:
    """Store the links of a data set beside its rows; returns what was written, for the checksum."""
    for split, examples in links.items():
        assert len(examples) == counts[split]["kept"], "all pairs of a split have links, or none"
    text = json.dumps(links, sort_keys=True).encode()
    (folder / FILE).write_bytes(text)
    return text


class Prepared(Protocol):
    """A data module, once it is prepared."""

    @property
    def folder(self) -> Path: ...


def gold_links(data: Prepared, split: str) -> list[Gold]:
    """The links of a split, in the order of its examples. Raises ValueError where the data set has none."""
    file = data.folder / FILE
    links: Links = json.loads(file.read_bytes()) if file.is_file() else {}
    if split not in links:
        raise ValueError(
            f"{data.folder}: got no word links for {split}, expected some; splits with links: {list(links)}"
        )
    return [
        Gold(*(frozenset((i, j) for i, j in example[kind]) for kind in ("sure", "possible")))
        for example in links[split]
    ]
