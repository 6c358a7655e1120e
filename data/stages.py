"""Training in stages, each with sequences of another length (Longformer, Beltagy et al. 2020, section 4.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Stage:
    """`share` of all target tokens is trained on with batches of `batch` sequences of `length` symbols."""

    share: float
    length: int
    batch: int

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.length < 1 or self.batch < 1:
            raise ValueError(f"stage: got {self}, expected a share above 0 and at most 1, length and batch at least 1")


@dataclass(frozen=True)
class Stages:
    """`ends[i]`: number of batches before which stage i ends; the last one goes on for ever."""

    stages: Sequence[Stage]
    ends: Sequence[int]

    def of(self, k: int) -> int:
        """The stage of batch k."""
        return min(int(np.searchsorted(self.ends, k, side="right")), len(self.stages) - 1)

    def start(self, stage: int) -> int:
        """The number of its first batch."""
        return self.ends[stage - 1] if stage else 0


def read_stages(stages: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Raises ValueError if the shares are not those of a whole."""
    read = [Stage(**stage) for stage in stages]
    if abs(sum(stage.share for stage in read) - 1) > 1e-6:
        raise ValueError(f"data.stages: got shares {[stage.share for stage in read]}, expected them to add up to 1")
    return read


def arrange(stages: Sequence[Stage], total: int, targets: Callable[[Stage], int]) -> Stages:
    """Each stage gets as many batches as bring the targets seen to its share of `total`, at least one;
    `targets(stage)`: those of one batch."""
    ends: list[int] = []
    share = seen = steps = 0
    for stage in stages:
        share += stage.share
        # a share that is not exact in binary must not make another batch
        updates = max(1, int(np.ceil((share * total - seen) / targets(stage) - 1e-9)))
        seen, steps = seen + updates * targets(stage), steps + updates
        ends.append(steps)
    return Stages(stages, ends)
