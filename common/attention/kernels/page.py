"""The page of `python -m common.attention.kernels`, its rows compiled by a pool of processes, and what is a fault."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from typing import NamedTuple

import torch

from common.attention.kernels.catalogue import Row
from common.attention.kernels.compiled import Compiled, Unreadable, compiled
from common.attention.kernels.occupancy import LIMITS, SMALLEST_OF_SM_80, occupancy
from common.attention.kernels.static import specialised

WORKERS = 2
NO_PRODUCT = ("delta", "decode merge")
ABOUT = """\
Compiled without a GPU; nothing here was run or timed. Masks are lists that kernels read: what is compiled here serves
windows, dilated or not, global tokens, sparse blocks and padding alike.
  size      head_dim; of additive attention, the queries a sentence: a decoder's step, or 50 at once
  tile      queries x keys, warps w, stages s; * the one in use (others are for a benchmark to try); of other kernels, T is
            of queries, S of keys (both of linear attention's chunks: T), A and M of features, D of values; of decoding,
            R of rows, queries of the heads that share keys, and P of splits
  regs      registers a thread, as ptxas -v has it (AMD: vector registers, from the assembly)
  stack     bytes of local memory a thread
  spills    bytes of spill stores / loads (AMD: 4 for each spilled register / unknown)
  shared    bytes a block
  held      blocks and warps that a multiprocessor holds at once, of 64 warps (AMD: 32), and what lets in no more
  products  those of tiles that tensor cores make, of all, in the pipelined code; then the matrix instructions
A line with ! is headline: bf16, head_dim 64 or 128, on NVIDIA. A spill there, or a product that is not on tensor cores, is a
fault. Faults anywhere: what does not compile or can't be read, fp32 multiplied as tf32, a block that NVIDIA has no room for.
"""
COLUMNS = (
    "kernel",
    "size",
    "dtype",
    "tile",
    "regs",
    "stack",
    "spills",
    "shared",
    "held",
    "by",
    "products",
    "instructions",
)
LEFT = {0, 3, 9, 11}


class Result(NamedTuple):
    """A row compiled, or why not, and its tile."""

    row: Row
    made: Compiled | str
    tile: str

    @property
    def name(self) -> str:
        row = self.row
        return " ".join(filter(None, (row.kernel, row.extra, str(row.size), row.dtype, row.target, self.tile)))


def faults(row: Row, made: Compiled) -> list[str]:
    """What is wrong enough to fail the check."""
    found = []
    if row.headline:
        if made.stack or made.spill_stores or made.spill_loads:
            found.append(f"spills: {made.stack} bytes of stack, {made.spill_stores} stored, {made.spill_loads} loaded")
        if made.in_units < made.products:
            found.append(f"{made.products - made.in_units} of {made.products} products are not on tensor cores")
        if row.kernel not in NO_PRODUCT and not (made.products and made.wgmma + made.mma):
            found.append(f"no tensor-core instruction for {made.products} products")
    if row.dtype == "fp32" and made.tf32:
        found.append(f"{made.tf32} matrix instructions round fp32 to tf32")
    if row.target.startswith("sm_"):
        most = SMALLEST_OF_SM_80 if row.target == "sm_80" else LIMITS[row.target].shared_of_block
        if made.shared > most:
            found.append(f"takes {made.shared} bytes of shared memory, {most} are to be had")
        elif not occupancy(row.target, made.registers, made.shared, made.warps).blocks:
            found.append("takes more registers than there are")
    return found


def work(row: Row) -> Result:
    """In a process of the pool."""
    launched = row.launch()
    if row.configuration:
        tile = f"{row.configuration.block_q}x{row.configuration.block_k}"
    else:
        blocks = ("BT", "BR", "BS", "BA", "BD", "BM", "BN", "BP")
        tile = " ".join(f"{name}={n}" for name, n in launched.arguments.items() if name in blocks)
    try:
        return Result(row, compiled(specialised(launched), row.target), tile)
    except Unreadable as error:
        return Result(row, str(error), tile)


def results(rows: Sequence[Row], workers: int = WORKERS) -> Iterator[Result]:
    """In order, each from one of the processes, which share a cache that goes with them."""
    with tempfile.TemporaryDirectory() as cache, _pool(workers, cache) as pool:
        for row, future in [(row, pool.submit(work, row)) for row in rows]:
            try:
                yield future.result()
            except BrokenExecutor:  # a compiler's abort takes all that wait with it: was it this one's?
                yield _alone(row, cache)


def _alone(row: Row, cache: str) -> Result:
    with _pool(1, cache) as pool:
        try:
            return pool.submit(work, row).result()
        except BrokenExecutor:
            return Result(row, "the compiling process died", "")


def _pool(workers: int, cache: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (cache,))


def _begin(cache: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = cache
    torch.set_num_threads(1)


def page(made: Iterable[Result], wrong: list[str]) -> Iterator[str]:
    """A section at a time. What is wrong goes to the end of `wrong`."""
    for section, group in groupby(made, lambda result: result.row.section):
        listed = list(group)
        wrong += [f"{each.name}: {fault}" for each in listed for fault in _faults_of(each)]
        yield "\n".join(["", section, *_table([COLUMNS, *(_cells(each) for each in listed)])])


def _faults_of(result: Result) -> list[str]:
    return [result.made] if isinstance(result.made, str) else faults(result.row, result.made)


def _cells(result: Result) -> tuple[str, ...]:
    row, made, tile = result
    kernel = "! " * row.headline + ", ".join(filter(None, (row.kernel, row.extra)))
    first = (kernel, str(row.size), row.dtype)
    if isinstance(made, str):
        return (*first, tile, *("?" * 7), f"FAILED: {made}")
    held = occupancy(row.target, made.registers, made.shared, made.warps)
    tile = f"{tile} {made.warps}w {made.stages}s".strip() + " *" * row.in_use
    loads = "?" if made.spill_loads is None else made.spill_loads
    kinds = [f"{getattr(made, kind)} {kind}" for kind in ("wgmma", "mma", "mfma") if getattr(made, kind)]
    return (
        *first, tile, str(made.registers), str(made.stack), f"{made.spill_stores}/{loads}", str(made.shared),
        f"{held.blocks}/{held.warps}", held.limit, f"{made.in_units} of {made.products}",
        "; ".join([", ".join(kinds), *made.notes]).removeprefix("; "),
    )  # fmt: skip


def _table(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = [str.ljust if n in LEFT else str.rjust for n in range(len(widths))]
    return [
        "  ".join(fit(cell, width) for fit, cell, width in zip(pad, line, widths, strict=True)).rstrip()
        for line in lines
    ]
