"""How long each kind of attention on the map takes by the length of the text, all kinds in turns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from common.bench.by_length import store
from common.bench.timing import interleaved, seconds_of
from reproductions.field_guide.variants import VARIANTS, D, Variant


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """`forward_ms` by length, squares for kinds of images, without gradients, in fp64 and as narrow as the map's checks have
    them: what grows, and how, not what is fast."""

    lengths: Sequence[int]
    repeats: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row_of(kind): {} for kind in VARIANTS}
        made = {row_of(kind): kind.make() for kind in VARIANTS}
        for length in self.lengths:
            x = torch.randn(1, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            timers = {row: partial(seconds_of, partial(attend, x)) for row, attend in made.items()}
            for row, seconds in interleaved(timers, repeats=self.repeats).items():
                store(rows, row, "forward_ms", length).extend(1e3 * s for s in seconds)
        return rows


def row_of(kind: Variant) -> str:
    """As `kind_window_causal` for "window, causal"."""
    words = re.findall("[a-z0-9]+", kind.name.lower().replace("'", ""))
    return "_".join(["kind", *words])
