"""Tables 9 to 21: time of each pass and memory against sequence length, all methods of a length in turns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from common.attention import Full, Mask, Padding, Random, Window
from common.bench.by_length import ByLength, Case
from common.bench.contestants import Attend, prepare
from common.bench.flops import PASSES
from common.bench.workload import Inputs, Shape

DROPOUT = 0.1
PADDED = 20  # tokens at most, appendix E.6 of the paper
COMPRESSION, MOST = 8, 256  # of the approximate methods there: an eighth of the length, or 256 keys
BLOCK, RANDOM_BLOCKS = 64, 2


@dataclass(frozen=True, kw_only=True)
class Runtime(ByLength):
    """`dropout_budget`: with dropout, which no claim on time reads.

    Deviations from the paper: batch and dtype as given, block-sparse is window + random blocks, not a butterfly.
    """

    dropout_budget: float

    def cases(self) -> Iterator[Case]:
        for dropout, padded, passes, row in product((0.0, DROPOUT), (False, True), PASSES, self.methods):
            words = [passes, *["dropout"] * bool(dropout), *["mask"] * padded, "ms"]
            budget = self.dropout_budget if dropout else self.budget
            yield Case(row, "_".join(words), passes, budget, (dropout, padded))

    def attend(self, case: Case, shape: Shape, one: Inputs, seed: int) -> Attend | str:
        dropout, padded = case.detail
        found = prepare(self.methods[case.row], one, mask_of(case.row, shape, padded, seed), dropout, seed)
        return f"{self.methods[case.row]} {found}" if isinstance(found, str) else found


def mask_of(row: str, shape: Shape, padded: bool, seed: int) -> Mask:
    """Who sees whom: all, a window of keys on both sides, or that and some random blocks; padding on top."""
    kept = min(max(shape.length // COMPRESSION, 2), MOST)
    window = Window(kept // 2, kept // 2)
    random = Random(RANDOM_BLOCKS, BLOCK, seed)
    mask: Mask = {"local_attention": window, "block_sparse_flash": window | random}.get(row, Full())
    if not padded:
        return mask
    draw = torch.Generator().manual_seed(seed)
    lengths = shape.length - torch.randint(0, min(PADDED, shape.length - 1) + 1, (shape.batch,), generator=draw)
    return mask & Padding.lengths(lengths.to(shape.device), shape.length)
