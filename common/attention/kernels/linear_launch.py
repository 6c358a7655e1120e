"""What the kernels of linear attention are called with, and the differentiable function that they make."""

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from common.attention.kernels import configurations
from common.attention.kernels.flash_backward import delta_kernel
from common.attention.kernels.launch import SMALLEST, Launch, parts, rows_of
from common.attention.kernels.linear import Real, outputs_kernel, states_kernel
from common.attention.kernels.linear_backward import d_features_kernel, d_states_kernel, d_values_kernel

TYPES = {
    torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64,
}  # fmt: skip
DELTA_ELEMENTS = 16384
"""Of a program of the kernel that sums do * o, which holds whole rows."""


@dataclass(frozen=True, eq=False)
class Problem:
    """q (B, H, Lq, M), k (B, H, Lk, M), v (B, H, Lk, Dv): features and values, last strides of 1. real: bool (B, Lk) or None.
    log: features are given as logarithms. target: whose tiles; those of the device unless given."""

    q: Tensor
    k: Tensor
    v: Tensor
    real: Tensor | None
    causal: bool
    log: bool
    target: str = ""

    @property
    def wide(self) -> torch.dtype:
        """Of sums, logarithms of the state and totals."""
        return torch.float64 if torch.float64 in (self.q.dtype, self.k.dtype, self.v.dtype) else torch.float32

    @property
    def narrow(self) -> torch.dtype:
        """Of what is multiplied: 16-bit where the values are."""
        return self.v.dtype if self.v.dtype.itemsize == 2 else self.wide

    @property
    def chunk(self) -> int:
        """Queries and keys a chunk."""
        return min(configurations.linear_chunk(self.narrow), _power(max(self.q.shape[2], self.k.shape[2])))

    @property
    def slots(self) -> int:
        """Where sums are kept: before and after everything, causal also between chunks."""
        return _count(self.k.shape[2], self.chunk) + 1 if self.causal else 2

    def tile(self, part: str) -> configurations.Tile:
        """Of a pass."""
        target = self.target or configurations.target_of(self.q.device)
        return configurations.linear(part, self.narrow, self.log, target)

    def empty_slots(self) -> tuple[Tensor, Tensor]:
        """(B, H, slots, M, Dv) and (B, H, slots, M), for s and z or their gradients."""
        norms = torch.empty(*self.k.shape[:2], self.slots, self.k.shape[3], dtype=self.wide, device=self.q.device)
        return norms.new_empty(*norms.shape, self.v.shape[3]), norms


def states(problem: Problem, sums: Tensor, norms: Tensor, logs: Tensor | None) -> Launch:
    """Fills all slots but the first of sums (B, H, slots, M, Dv), norms and, if logarithms, logs (B, H, slots, M)."""
    more = {"states": sums, "norms": norms, "logs": norms if logs is None else logs}
    return _launch("states", states_kernel, problem, more)


def outputs(
    problem: Problem, sums: Tensor, norms: Tensor, logs: Tensor | None, output: Tensor, totals: Tensor
) -> Launch:
    """Writes output (B, H, Lq, Dv) and totals (B, H, Lq), see `outputs_kernel`."""
    more = {"states": sums, "norms": norms, "logs": norms if logs is None else logs}
    return _launch("outputs", outputs_kernel, problem, more | {"output": rows_of(output), "totals": totals})


def delta(output: Tensor, d_output: Tensor, deltas: Tensor) -> Launch:
    """Writes deltas (B, H, Lq), the sums of output * d_output."""
    batch, heads, length, width = output.shape
    first, rest = parts(width)
    block = min(64, 1 << (max(1, DELTA_ELEMENTS // (first + rest)).bit_length() - 1))
    arguments = {
        "output": rows_of(output),
        "d_output": rows_of(d_output),
        "delta": deltas,
        "heads": heads,
        "lq": length,
    }
    arguments |= {"DV": width, "DV_FIRST": first, "DV_REST": rest, "BLOCK_Q": block, "WIDE": TYPES[deltas.dtype]}
    return Launch(delta_kernel, _count(length, block) * batch * heads, arguments, {"num_warps": 4})


def d_states(
    problem: Problem, d_output: Tensor, totals: Tensor, deltas: Tensor, logs: Tensor | None, d_sums: Tensor, d_norms: Tensor
) -> Launch:  # fmt: skip
    """Fills all slots but the last of d_sums and d_norms, the gradients of `states`' sums and norms."""
    more = {"d_output": rows_of(d_output), "totals": totals, "deltas": deltas, "logs": totals if logs is None else logs}
    return _launch("d_states", d_states_kernel, problem, more | {"d_states": d_sums, "d_norms": d_norms})


def d_features(
    problem: Problem, d_output: Tensor, totals: Tensor, deltas: Tensor, sums: Tensor, norms: Tensor, logs: Tensor | None,
    d_sums: Tensor, d_norms: Tensor, dq: Tensor, dk: Tensor,
) -> Launch:  # fmt: skip
    """Writes dq and dk, as q and k."""
    more = {"d_output": rows_of(d_output), "totals": totals, "deltas": deltas, "logs": norms if logs is None else logs}
    more |= {
        "states": sums,
        "norms": norms,
        "d_states": d_sums,
        "d_norms": d_norms,
        "dq": rows_of(dq),
        "dk": rows_of(dk),
    }
    return _launch("d_features", d_features_kernel, problem, more)


def d_values(
    problem: Problem, d_output: Tensor, totals: Tensor, logs: Tensor | None, d_sums: Tensor, dv: Tensor
) -> Launch:
    """Writes dv, as v."""
    more = {"d_output": rows_of(d_output), "totals": totals, "logs": totals if logs is None else logs}
    return _launch("d_values", d_values_kernel, problem, more | {"d_states": d_sums, "dv": rows_of(dv)})


def linear(problem: Problem, sums: Tensor | None, logs: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """output (B, H, Lq, Dv), and the state after the last key: sums (B, H, M, Dv + 1) and logs (B, H, M), wide; None where
    features are no logarithms. sums, logs: of the state before, or None. Differentiable in q, k, v and sums."""
    shape = (*problem.k.shape[:2], problem.k.shape[3])
    if sums is None:
        sums = problem.q.new_zeros(*shape, problem.v.shape[3] + 1, dtype=problem.wide)
    sums = sums.to(problem.wide)
    if problem.log:
        logs = problem.q.new_full(shape, -torch.inf, dtype=problem.wide) if logs is None else logs.to(problem.wide)
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (problem.q, problem.k, problem.v))
    output, last, norm, after = _Linear.apply(q, k, v, sums[..., :-1], sums[..., -1], logs, problem)  # type: ignore[misc]
    return output, torch.cat((last, norm[..., None]), -1), after


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, norm: Tensor, logs: Tensor | None, problem: Problem
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        problem = Problem(q, k, v, problem.real, problem.causal, problem.log)
        output = torch.empty(*q.shape[:3], v.shape[3], dtype=v.dtype, device=q.device)
        totals = torch.empty(q.shape[:3], dtype=problem.wide, device=q.device)
        with torch.cuda.device_of(q):
            seams = _seams(problem, sums, norm, logs)
            outputs(problem, *seams, output, totals).run()
        ctx.settings = problem.causal, problem.log
        ctx.save_for_backward(q, k, v, problem.real, sums, norm, logs, output, totals)
        ctx.set_materialize_grads(False)
        last = [None if each is None else each[:, :, -1].clone() for each in seams]  # a view would keep all of them
        if last[2] is not None:
            ctx.mark_non_differentiable(last[2])
        return output, *last  # type: ignore[return-value]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_output: Tensor | None, d_last: Tensor | None, d_norm: Tensor | None, _: Any
    ) -> tuple[Tensor | None, ...]:
        q, k, v, real, sums, norm, logs, output, totals = ctx.saved_tensors
        problem = Problem(q, k, v, real, *ctx.settings)
        d_output = torch.zeros_like(output) if d_output is None else d_output
        d_output = d_output if d_output.stride(-1) == 1 else d_output.contiguous()
        d_sums, d_norms = problem.empty_slots()
        for whole, given in ((d_sums, d_last), (d_norms, d_norm)):
            whole[:, :, -1] = 0.0 if given is None else given
        deltas = torch.empty_like(totals)
        dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
        with torch.cuda.device_of(q):
            # Made again rather than kept from the forward pass, where those of all layers would wait for this.
            states_of, norms, all_logs = _seams(problem, sums, norm, logs)
            of_queries = d_output, totals, deltas
            delta(output, d_output, deltas).run()
            d_states(problem, *of_queries, all_logs, d_sums, d_norms).run()
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                d_features(problem, *of_queries, states_of, norms, all_logs, d_sums, d_norms, dq, dk).run()
            if ctx.needs_input_grad[2]:
                d_values(problem, d_output, totals, all_logs, d_sums, dv).run()
        return dq, dk, dv, d_sums[:, :, 0], d_norms[:, :, 0], None, None


def _seams(problem: Problem, sums: Tensor, norm: Tensor, logs: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All slots of the sums, norms and logarithms, from those before the text."""
    all_sums, norms = problem.empty_slots()
    all_logs = None if logs is None else torch.empty_like(norms)
    for whole, first in ((all_sums, sums), (norms, norm), (all_logs, logs)):
        if whole is not None and first is not None:
            whole[:, :, 0] = first
    states(problem, all_sums, norms, all_logs).run()
    return all_sums, norms, all_logs


def _launch(part: str, kernel: Any, problem: Problem, more: dict[str, Any]) -> Launch:
    """The arguments that most of the kernels take, and those of this one."""
    (batch, heads, lq, features), (lk, width) = problem.q.shape, problem.v.shape[2:]
    tile = problem.tile(part)
    block_m, block_d = min(tile.features, _power(features)), min(tile.values, _power(width))
    slices_m, slices_d = _count(features, block_m), _count(width, block_d)
    chunks = _count(lq if part == "outputs" else lk if part == "d_values" else max(lq, lk), problem.chunk)
    of_slots, of_chunks = slices_m * slices_d, chunks * (slices_m if part == "d_features" else slices_d)
    arguments = more | {
        "q": rows_of(problem.q), "k": rows_of(problem.k), "v": rows_of(problem.v),
        "real": Real(problem.v, 0, 0) if problem.real is None else Real(problem.real, *problem.real.stride()),
        "heads": heads, "lq": lq, "lk": lk, "LOG": problem.log, "CAUSAL": problem.causal, "PADDED": problem.real is not None,
        "M": features, "DV": width, "BT": problem.chunk, "BM": block_m, "BD": block_d,
        "TYPE": TYPES[problem.narrow], "WIDE": TYPES[problem.wide],
    }  # fmt: skip
    taken = {name: arguments[name] for name in kernel.arg_names}
    grid = batch * heads * (of_slots if "states" in part else of_chunks)
    return Launch(kernel, grid, taken, {"num_warps": tile.warps, "num_stages": tile.stages})


def _power(n: int) -> int:
    """The least power of two that holds n and that tl.dot takes."""
    return max(SMALLEST, 1 << (max(n, 1) - 1).bit_length())


def _count(length: int, block: int) -> int:
    return -(-length // block)
