"""Tables 9 to 21: time of each pass and memory against sequence length, all methods of a length in turns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from common.attention import Full, Global, Mask, Padding, Random, Window
from common.bench.by_length import ByLength, Case
from common.bench.contestants import Attend, prepare
from common.bench.flops import PASSES
from common.bench.workload import Inputs, Shape

DROPOUT = 0.1
PADDED = 20  # tokens at most, appendix E.6 of the paper
COMPRESSION, MOST = 8, 256  # of the approximate methods there: an eighth of the length, or 256 keys
BLOCK, RANDOM_BLOCKS = 64, 2
LINFORMER = "linformer"


@dataclass(frozen=True, kw_only=True)
class Runtime(ByLength):
    """A method may be linformer. `dropout_budget`: with dropout, which no claim on time reads.

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
        if self.methods[case.row] == LINFORMER:
            return projected(shape, one, padded, dropout, seed)
        found = prepare(self.methods[case.row], one, mask_of(case.row, shape, padded, seed), dropout, seed)
        return f"{self.methods[case.row]} {found}" if isinstance(found, str) else found


def projected(shape: Shape, one: Inputs, padded: bool, dropout: float, seed: int) -> Attend | str:
    """Linformer's attention to keys and values in as many rows as a window has keys (Wang et al. 2020, equation 7), one fixed
    matrix for both and for all heads, by the library's fused kernel."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(kept(shape), shape.length, generator=draw).to(one.k) * kept(shape) ** -0.5
    if padded:
        rows = rows * real_keys(shape, seed)[:, None, None].to(rows)
    small = Inputs(one.q, rows @ one.k.detach(), rows @ one.v.detach(), one.do)
    found = prepare("sdpa", small, Full(), dropout, seed)
    if isinstance(found, str):
        return f"sdpa {found}"
    return lambda q, k, v: found(q, rows @ k, rows @ v)


def kept(shape: Shape) -> int:
    """Keys of a window, or rows of a projection."""
    return min(max(shape.length // COMPRESSION, 2), MOST)


def real_keys(shape: Shape, seed: int) -> Tensor:
    """(B, T) bool."""
    lengths = padded_lengths(shape, seed)
    return torch.arange(shape.length, device=lengths.device) < lengths[:, None]


def padded_lengths(shape: Shape, seed: int) -> Tensor:
    """(B,): up to `PADDED` tokens fewer than the whole."""
    draw = torch.Generator().manual_seed(seed)
    left_out = torch.randint(0, min(PADDED, shape.length - 1) + 1, (shape.batch,), generator=draw)
    return (shape.length - left_out).to(shape.device)


def mask_of(row: str, shape: Shape, padded: bool, seed: int) -> Mask:
    """Who sees whom: all, a window of keys on both sides, that and some random blocks, one global token, or a global block;
    padding on top."""
    window = Window(kept(shape) // 2, kept(shape) // 2)
    blocks = window | Random(RANDOM_BLOCKS, BLOCK, seed)
    masks: dict[str, Mask] = {
        "local_attention": window,
        "longformer": window | Global((0,)),
        "block_sparse_flash": blocks,
        "bigbird": blocks | Global(tuple(range(min(BLOCK, shape.length)))),
    }
    mask = masks.get(row, Full())
    return mask & Padding.lengths(padded_lengths(shape, seed), shape.length) if padded else mask
