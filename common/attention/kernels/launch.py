"""What each flash kernel is called with: grid, arguments and options of a launch, to be run, or compiled without a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from common.attention import blocks
from common.attention.kernels import configurations
from common.attention.kernels.configurations import Configuration
from common.attention.kernels.flash import forward_kernel
from common.attention.kernels.flash_backward import delta_kernel, key_value_kernel, query_kernel
from common.attention.kernels.flash_bias import bias_kernel, by_diagonal
from common.attention.kernels.tiles import LOG2E, Bias, Lists, Rows
from common.attention.masks import Mask

SMALLEST = 16  # of each size of a tl.dot


@dataclass(frozen=True)
class Launch:
    """kernel[(grid,)](**arguments, **options)."""

    kernel: Any
    grid: int
    arguments: dict[str, Any]
    options: dict[str, int]

    def run(self) -> None:
        if self.grid:
            self.kernel[(self.grid,)](**self.arguments, **self.options)


@dataclass(frozen=True, eq=False)
class Problem:
    """Attention as the kernels know it. q, k, v: last strides of 1. bias: (B|1, H|1, Lq|1, Lk|1), or by distance (H, Lq + Lk - 1),
    or None. seed: of the dropout. chosen: configurations by pass; the table's where there is none."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    bias: Tensor | None
    scale: float
    dropout_p: float
    seed: int
    chosen: Mapping[str, Configuration] = field(default_factory=dict)

    @property
    def wide(self) -> torch.dtype:
        """Of sums, maxima and lse."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    def configuration(self, part: str) -> Configuration:
        """Of a pass."""
        if part in self.chosen:
            return self.chosen[part]
        size, more = max(self.q.shape[3], self.v.shape[3]), self.bias is not None or self.dropout_p > 0
        return configurations.choose(part, size, self.q.dtype, more, configurations.target_of(self.q.device))

    def lists(self, configuration: Configuration) -> blocks.BlockLists:
        lq, lk = self.q.shape[2], self.k.shape[2]
        return blocks.lower(self.mask, lq, lk, configuration.block_q, configuration.block_k, self.q.device)


def forward(problem: Problem, output: Tensor, lse: Tensor) -> Launch:
    """output: (B, H, Lq, Dv); lse: (B, H, Lq), see `forward_kernel`."""
    configuration, arguments = _shared("forward", problem)
    lists = problem.lists(configuration)
    arguments |= {"output": rows_of(output), "lse": lse, "lists": _lists(lists, lists.by_query, 1)}
    return _launch(forward_kernel, _query_programs(problem, configuration), arguments, configuration)


def delta(problem: Problem, output: Tensor, d_output: Tensor, total: Tensor) -> Launch:
    """total: (B, H, Lq), the sums of output * d_output."""
    configuration, arguments = _shared("query", problem)
    arguments |= {"output": rows_of(output), "d_output": rows_of(d_output), "delta": total}
    return _launch(delta_kernel, _query_programs(problem, configuration), arguments, configuration)


def key_value(problem: Problem, d_output: Tensor, lse: Tensor, total: Tensor, dk: Tensor, dv: Tensor) -> Launch:
    """lse and total: as `forward` and `delta` leave them. dk, dv: as k and v."""
    configuration, arguments = _shared("key_value", problem)
    lists = problem.lists(configuration)
    arguments |= {"d_output": rows_of(d_output), "lse": lse, "delta": total, "lists": _lists(lists, lists.by_key, 2)}
    arguments |= {"dk_out": rows_of(dk), "dv_out": rows_of(dv)}
    programs = -(-problem.k.shape[2] // configuration.block_k) * problem.k.shape[0] * problem.k.shape[1]
    return _launch(key_value_kernel, programs, arguments, configuration)


def query(problem: Problem, d_output: Tensor, lse: Tensor, total: Tensor, dq: Tensor, ds: Tensor | None) -> Launch:
    """dq: as q. ds: zeros (B, H, Lq, Lk) for the gradients of the scores, or None."""
    configuration, arguments = _shared("query", problem)
    lists = problem.lists(configuration)
    arguments |= {"d_output": rows_of(d_output), "lse": lse, "delta": total, "lists": _lists(lists, lists.by_query, 1)}
    arguments |= {"dq_out": rows_of(dq), "ds_out": lse if ds is None else ds, "STORE": ds is not None}
    return _launch(query_kernel, _query_programs(problem, configuration), arguments, configuration)


def bias_sums(problem: Problem, d_output: Tensor, lse: Tensor, total: Tensor) -> tuple[Launch, Tensor]:
    """And where it writes: sums for `common.attention.kernels.flash_bias.by_distance`."""
    configuration, arguments = _shared("bias", problem)
    block = configuration.block_q
    assert block == configuration.block_k
    heads, (lq, lk) = problem.q.shape[1], (problem.q.shape[2], problem.k.shape[2])
    lists = problem.lists(configuration)
    sums = torch.empty(
        heads, -(-lq // block) + -(-lk // block) - 1, block, block, dtype=problem.wide, device=lse.device
    )
    arguments |= {
        "d_output": rows_of(d_output),
        "lse": lse,
        "delta": total,
        "lists": _lists(lists, by_diagonal(lists), 1),
    }
    arguments |= {"sums": sums, "batches": problem.q.shape[0], "BLOCK": block}
    return _launch(bias_kernel, heads * sums.shape[1], arguments, configuration), sums


def parts(size: int) -> tuple[int, int]:
    """Widths of the two parts of rows of `size` numbers: powers of two, the second 0 if it would save nothing."""
    whole = max(SMALLEST, 1 << (size - 1).bit_length()) if size else SMALLEST
    first = whole // 2
    rest = max(SMALLEST, 1 << (size - first - 1).bit_length()) if size > first else 0
    return (first, rest) if first >= SMALLEST and first + rest < whole else (whole, 0)


def rows_of(x: Tensor) -> Rows:
    return Rows(x, *x.stride()[:3])


def _shared(part: str, problem: Problem) -> tuple[Configuration, dict[str, Any]]:
    """The configuration of a pass, and the arguments that most kernels take."""
    q, k, v = problem.q, problem.k, problem.v
    configuration = problem.configuration(part)
    d_first, d_rest = parts(q.shape[3])
    dv_first, dv_rest = parts(v.shape[3])
    return configuration, {
        "q": rows_of(q), "k": rows_of(k), "v": rows_of(v), "bias": _bias(problem), "heads": q.shape[1],
        "group": q.shape[1] // k.shape[1], "lq": q.shape[2], "lk": k.shape[2],
        "scale": problem.scale * LOG2E.value, "d_scale": problem.scale,
        "dropout_p": float(problem.dropout_p), "seed": problem.seed,
        "BIAS": problem.bias is not None, "DROPOUT": problem.dropout_p > 0,
        "D": q.shape[3], "D_FIRST": d_first, "D_REST": d_rest,
        "DV": v.shape[3], "DV_FIRST": dv_first, "DV_REST": dv_rest,
        "BLOCK_Q": configuration.block_q, "BLOCK_K": configuration.block_k,
        "PRECISION": "ieee", "WIDE": tl.float64 if q.dtype == torch.float64 else tl.float32,
    }  # fmt: skip


def _bias(problem: Problem) -> Bias:
    bias = problem.bias
    if bias is None:
        return Bias(problem.q, 0, 0, 0, 0)
    if bias.ndim == 4:
        return Bias(bias, *(0 if size == 1 else stride for size, stride in zip(bias.shape, bias.stride(), strict=True)))
    return Bias(bias.contiguous().flatten()[problem.q.shape[2] - 1 :], 0, bias.shape[1], -1, 1)


def _lists(whole: blocks.BlockLists, lists: blocks.Lists, reduced: int) -> Lists:
    """reduced: the axis of the tiles that `seen` leaves out."""
    batch, head = whole.groups[1] * (whole.groups[0] > 1), int(whole.groups[1] > 1)
    seen = whole.tiles.any(reduced).view(torch.uint8)
    tiles = whole.tiles.view(torch.uint8)
    return Lists(lists.start, lists.full_end, lists.column, lists.tile, tiles, seen, batch, head)


def _query_programs(problem: Problem, configuration: Configuration) -> int:
    batch, heads, lq, _ = problem.q.shape
    return -(-lq // configuration.block_q) * batch * heads


def _launch(kernel: Any, grid: int, arguments: dict[str, Any], configuration: Configuration) -> Launch:
    taken = {name: arguments[name] for name in kernel.arg_names if name in arguments}
    return Launch(kernel, grid, taken, {"num_warps": configuration.warps, "num_stages": configuration.stages})
