"""Longformer, Figure 1: self-attention of long sequences by full attention and by three implementations of a window."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from common.attention import Full, Window
from common.bench.by_length import ByLength, Case
from common.bench.contestants import Attend, prepare
from common.bench.workload import Inputs, Shape
from common.nn.sparse.loop import loop

LOOP = "loop"
FORWARD_ALONE = "flex"
"""Has no backward pass on CPUs."""


@dataclass(frozen=True, kw_only=True)
class Runtime(ByLength):
    """A method may be the paper's loop. `full`: rows without a window. window: keys on each side. `forward_ms` is of all
    rows, `both_ms` of those that are differentiable everywhere."""

    window: int
    full: tuple[str, ...] = ("full",)

    def cases(self) -> Iterator[Case]:
        for row, method in self.methods.items():
            yield Case(row, "forward_ms", "forward", self.budget)
            if method != FORWARD_ALONE:
                yield Case(row, "both_ms", "both", self.budget)

    def attend(self, case: Case, shape: Shape, one: Inputs, seed: int) -> Attend | str:
        method = self.methods[case.row]
        if method == LOOP:
            return partial(loop, left=self.window, right=self.window, dilation=1, scale=shape.head_dim**-0.5)
        mask = Full() if case.row in self.full else Window(self.window, self.window)
        found = prepare(method, one, mask, 0.0, seed)
        return f"{method} {found}" if isinstance(found, str) else found
