"""Which positions of a sequence a cache holds."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """Of one sequence. Positions are numbered from 0 and count real tokens alone.

    seen: how many tokens there were, the number of the next one. runs: those held, ascending, as ranges that aren't empty.
    A range and not its numbers, as nearly always one says it all.
    """

    seen: int = 0
    runs: tuple[range, ...] = ()

    @cached_property
    def length(self) -> int:
        return sum(map(len, self.runs))

    def numbers(self) -> Tensor:
        """int64 (length,)."""
        return torch.cat([torch.arange(0), *(torch.arange(run.start, run.stop) for run in self.runs)])

    def grown(self, count: int) -> "Positions":
        """With `count` more tokens."""
        runs, first = self.runs, self.seen
        if runs and runs[-1].stop == first:
            runs, first = runs[:-1], runs[-1].start
        return Positions(self.seen + count, _without_empty(*runs, range(first, self.seen + count)))

    def rolled_back(self, count: int) -> "Positions":
        """As if the last `count` tokens had never been, held or not."""
        seen = self.seen - count
        return Positions(seen, _without_empty(*(range(run.start, min(run.stop, seen)) for run in self.runs)))

    def since(self, first: int) -> "Positions":
        """Without positions below `first`."""
        return Positions(self.seen, _without_empty(*(range(max(run.start, first), run.stop) for run in self.runs)))

    def without(self, dropped: set[int]) -> "Positions":
        runs = []
        for run in self.runs:
            start = run.start
            for position in sorted(dropped):
                if position in run:
                    runs.append(range(start, position))
                    start = position + 1
            runs.append(range(start, run.stop))
        return Positions(self.seen, _without_empty(*runs))

    def places_without(self, dropped: set[int]) -> list[int]:
        """Where among those held the others stand."""
        return [place for place, position in enumerate(chain(*self.runs)) if position not in dropped]

    def missing(self, wanted: set[int]) -> list[int]:
        """Those that aren't held."""
        return sorted(position for position in wanted if not any(position in run for run in self.runs))


def _without_empty(*runs: range) -> tuple[range, ...]:
    return tuple(run for run in runs if run)
