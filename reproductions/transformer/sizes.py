"""Parameters of the rows of Table 3 at the paper's size, built without memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.report.published import load_published

PUBLISHED = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Sizes:
    """`parameters` in millions with `types` shared word pieces, and `fitting_types`: the vocabulary in thousands with which
    the model would have the number that the paper prints. models: row -> what makes a model of the sizes of its
    vocabularies."""

    models: Mapping[str, Callable[..., nn.Module]]
    types: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        printed, found = parameters(), {}
        for row, model in self.models.items():
            with torch.device("meta"):
                made = model(source_words=self.types, target_words=self.types)
            count = sum(p.numel() for p in made.parameters())
            width = made.get_parameter("target_embedding.weight").shape[1]
            types = self.types + (printed[row] * 1e6 - count) / width
            found[row] = {
                "parameters": {"unit": "M", "at": {"paper": [count / 1e6]}, "refused": {}},
                "fitting_types": {"unit": "thousand", "at": {"paper": [types / 1e3]}, "refused": {}},
            }
        return found


def parameters() -> dict[str, float]:
    """What the paper prints, in millions, by row."""
    (table,) = (table for table in load_published(PUBLISHED).tables if table.id == "sizes")
    return {row.id: float(row.values["parameters"]) for row in table.rows}
