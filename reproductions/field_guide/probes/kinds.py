"""How long each kind of attention on the map takes by the length of the text, all kinds in turns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from reproductions.field_guide.probes.layers import forward_times
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
        texts = (
            torch.randn(1, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            for length in self.lengths
        )
        return forward_times({row_of(kind): kind.make() for kind in VARIANTS}, texts, self.repeats)


def row_of(kind: Variant) -> str:
    """As `kind_window_causal` for "window, causal"."""
    words = re.findall("[a-z0-9]+", kind.name.lower().replace("'", ""))
    return "_".join(["kind", *words])
