"""A metric's result: never a number without how it was computed."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Score:
    value: float
    signature: str
    """Scorer, version and settings; two values are comparable only if their signatures are equal."""
    statistics: np.ndarray
    """(sentences, n): per-sentence sums from which the value is computed, so that test sentences can be resampled."""

    @property
    def recorded(self) -> dict[str, float | str]:
        """What result.json keeps of it."""
        return {"value": self.value, "signature": self.signature}
