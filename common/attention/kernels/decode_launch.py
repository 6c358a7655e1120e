"""What the kernels of decoding are called with: who sees what, how many splits there are, the two launches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from common.attention.cache import Cache, PagedCache
from common.attention.cache.positions import Positions
from common.attention.kernels import configurations
from common.attention.kernels.decode import merge_kernel, split_kernel
from common.attention.kernels.launch import SMALLEST, Launch, parts, rows_of
from common.attention.kernels.tiles import LOG2E

TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
MOST_ROWS = 64
"""Of a tile: queries of heads that share keys. Where there are more, keys are read once for each so many."""
HELD = 2
"""Programs that a multiprocessor is given at once."""
MOST_SPLITS = 512
SLACK = 1.1
"""Fewer splits are taken if with them the longest wait is up to so many times as long."""
PROCESSORS = 4
"""Where there is no GPU to ask."""
MERGED = 16
"""Splits that a program of the merge takes at a time."""


class Splits(NamedTuple):
    """How many, and blocks of keys each. A sequence may have less than all; those behind its last token are not made."""

    count: int
    span: int


@dataclass(frozen=True, eq=False)
class Problem:
    """q (B, H, T, D_k), in the dtype that the cache is read in. window: as of `decode_attention`; None where tokens are in no
    order. splits: chosen unless given. target: whose tiles; those of the device unless given."""

    q: Tensor
    cache: Cache
    scale: float
    window: int | None = None
    splits: int | None = None
    target: str = ""

    @property
    def rows(self) -> int:
        """Queries that share keys."""
        return self.q.shape[1] // self.cache.shape.kv_heads * self.q.shape[2]

    @property
    def block_rows(self) -> int:
        return min(MOST_ROWS, max(SMALLEST, 1 << (self.rows - 1).bit_length()))

    @property
    def tile(self) -> configurations.DecodeTile:
        shape, target = self.cache.shape, self.target or configurations.target_of(self.q.device)
        return configurations.decode(max(shape.key_dim, shape.value_dim), self.block_rows, self.q.dtype, target)

    def bounds(self) -> list[list[tuple[int, int]]]:
        """Of each sequence: see `seen_by`."""
        return [seen_by(held, self.q.shape[2], self.window) for held in self.cache.held]

    def divided(self, bounds: list[list[tuple[int, int]]]) -> Splits:
        block = self.tile.keys
        blocks = [_count(each[-1][1], block) - each[0][0] // block for each in bounds]
        if self.splits is not None:
            return Splits(self.splits, max(1, _count(max(blocks), self.splits)))
        programs = self.cache.shape.kv_heads * _count(self.rows, self.block_rows)
        return divide(max(blocks), sum(blocks), programs, HELD * _processors(self.q.device))


class Parts(NamedTuple):
    """What the splits leave: sums (B, H, T, splits, D_v), tops and totals (B, H, T, splits), fp32."""

    sums: Tensor
    tops: Tensor
    totals: Tensor


def seen_by(held: Positions, queries: int, window: int | None) -> list[tuple[int, int]]:
    """For each of the last `queries` tokens held, which tokens it sees: from the first of them to before the second number.

    None for those that the sequence doesn't have. Evicted tokens leave no gap, but their positions count in a window.
    """
    found = []
    for own in range(held.length - queries, held.length):
        first = 0
        if window is not None and own >= 0:
            first = held.length - held.since(_position(held, own) - window + 1).length
        found.append((first, max(own + 1, 0)))
    return found


@lru_cache(maxsize=4096)
def divide(longest: int, total: int, programs: int, held: int) -> Splits:
    """Of sequences with so many blocks of keys, the longest and all together, with `programs` for each split of a sequence,
    on a GPU that runs `held` programs at once: about the fewest splits with which the last one ends soonest.

    A step asks this for each layer, with the same numbers.
    """
    spans: dict[int, int] = {}
    for count in range(1, min(longest, MOST_SPLITS) + 1):
        span = _count(longest, count)
        waves = _count(_count(_count(longest, span) * total, longest) * programs, held)
        spans.setdefault(span, waves * span)
    if not spans:
        return Splits(1, 1)
    soonest = min(spans.values())
    span = next(span for span, end in spans.items() if end <= SLACK * soonest)
    return Splits(_count(longest, span), span)


def decode(problem: Problem) -> Tensor:
    """(B, H, T, D_v), contiguous, in q's dtype."""
    *both, output = launches(problem)
    with torch.cuda.device_of(problem.q):
        for each in both:
            each.run()
    return output


def launches(problem: Problem) -> tuple[Launch, Launch, Tensor]:
    """The two, to be run one after the other, and what the second one writes."""
    bounds = problem.bounds()
    batch, heads, queries, _ = problem.q.shape
    splits, width = problem.divided(bounds), problem.cache.shape.value_dim
    output = problem.q.new_empty(batch, heads, queries, width)
    sums = torch.empty(*output.shape[:3], splits.count, width, dtype=torch.float32, device=output.device)
    made = Parts(sums, *(torch.empty(sums.shape[:4], dtype=sums.dtype, device=sums.device) for _ in range(2)))
    told = on_device(bounds, problem.q.device)
    return split(problem, told, splits, made), merge(problem, told, splits, made, output), output


def on_device(bounds: Sequence[Sequence[tuple[int, int]]], device: torch.device) -> Tensor:
    """int32 (B, 2, T)."""
    return torch.tensor([list(zip(*each, strict=True)) for each in bounds], dtype=torch.int32, device=device)


def split(problem: Problem, bounds: Tensor, splits: Splits, made: Parts) -> Launch:
    """Fills in what is made, but for splits that lie behind the last token of a sequence."""
    cache, tile = problem.cache, problem.tile
    q = problem.q if problem.q.stride(-1) == 1 else problem.q.contiguous()
    k, v, *scales = (rows_of(plane) for plane in cache.planes)
    d_first, d_rest = parts(cache.shape.key_dim)
    dv_first, dv_rest = parts(cache.shape.value_dim)
    table = cache.table() if isinstance(cache, PagedCache) else bounds[:, 0]
    arguments: dict[str, Any] = {
        "q": rows_of(q), "k": k, "v": v, "k_scales": scales[0] if scales else k, "v_scales": scales[1] if scales else v,
        "bounds": bounds, "table": table, **made._asdict(), "kv_heads": cache.shape.kv_heads,
        "group": q.shape[1] // cache.shape.kv_heads, "queries": q.shape[2], "most": table.shape[1],
        "splits": splits.count, "span": splits.span, "scale": problem.scale * LOG2E.value,
        "SCALED": bool(scales), "PAGE": cache.pages.size if isinstance(cache, PagedCache) else 0,
        "D": cache.shape.key_dim, "D_FIRST": d_first, "D_REST": d_rest,
        "DV": cache.shape.value_dim, "DV_FIRST": dv_first, "DV_REST": dv_rest,
        "BR": problem.block_rows, "BS": tile.keys, "TYPE": TYPES[q.dtype],
    }  # fmt: skip
    grid = cache.sequences * cache.shape.kv_heads * _count(problem.rows, problem.block_rows) * splits.count
    return Launch(split_kernel, grid, arguments, {"num_warps": tile.warps, "num_stages": tile.stages})


def merge(problem: Problem, bounds: Tensor, splits: Splits, made: Parts, output: Tensor) -> Launch:
    """Writes output, contiguous (B, H, T, D_v)."""
    batch, heads, queries, width = output.shape
    arguments: dict[str, Any] = {
        **made._asdict(), "bounds": bounds, "output": output, "rows": heads * queries, "queries": queries,
        "splits": splits.count, "span": splits.span, "DV": width, "BS": problem.tile.keys, "BP": MERGED,
        "BD": max(SMALLEST, 1 << (width - 1).bit_length()),
    }  # fmt: skip
    return Launch(merge_kernel, batch * heads * queries, arguments, {"num_warps": 4})


def _position(held: Positions, place: int) -> int:
    """Of the token at a place among those held."""
    for run in held.runs:
        if place < len(run):
            return run[place]
        place -= len(run)
    raise AssertionError(place)


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else PROCESSORS


def _count(length: int, block: int) -> int:
    return -(-length // block)
