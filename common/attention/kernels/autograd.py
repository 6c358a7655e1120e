"""The flash kernels as a differentiable function."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from common.attention.kernels import launch
from common.attention.kernels.flash_bias import by_distance


def flash(problem: launch.Problem) -> tuple[Tensor, Tensor]:
    """output (B, H, Lq, Dv) and lse (B, H, Lq), natural, -inf where a query sees no key. Differentiable in q, k, v, bias."""
    return _Flash.apply(problem.q, problem.k, problem.v, problem.bias, problem)  # type: ignore[return-value]


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, problem: launch.Problem
    ) -> tuple[Tensor, Tensor]:
        q, k, v = _last_stride_one(q), _last_stride_one(k), _last_stride_one(v)
        problem = replace(problem, q=q, k=k, v=v)
        # A bias collects the rounding of whole rows of dS, which rests on the output: its gradient wants it unrounded.
        kept = problem.wide if ctx.needs_input_grad[3] else q.dtype
        output = torch.empty(*q.shape[:3], v.shape[3], dtype=kept, device=q.device)
        lse = torch.empty(q.shape[:3], dtype=problem.wide, device=q.device)
        if k.shape[2]:
            with _device_of(q):
                launch.forward(problem, output, lse).run()
        else:
            output.zero_()
            lse.fill_(torch.inf)
        ctx.settings = problem.mask, problem.scale, problem.dropout_p, problem.seed, problem.chosen
        ctx.save_for_backward(q, k, v, bias, output, lse)
        natural = lse.masked_fill(lse == torch.inf, -torch.inf) / launch.LOG2E.value
        ctx.mark_non_differentiable(natural)
        return output.to(q.dtype), natural

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, output, lse = ctx.saved_tensors
        mask, scale, dropout_p, seed, chosen = ctx.settings
        problem = launch.Problem(q, k, v, mask, bias, scale, dropout_p, seed, chosen)
        if not q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]:
            return *(None if t is None else torch.zeros_like(t) for t in (q, k, v, bias)), None
        wants_q, wants_k, wants_v, wants_bias, _ = ctx.needs_input_grad
        d_output = _last_stride_one(d_output)
        with _device_of(q):
            total = torch.empty_like(lse)
            launch.delta(problem, output, d_output, total).run()
            dq = dk = dv = d_bias = ds = None
            if wants_k or wants_v:
                dk, dv = torch.empty_like(k), torch.empty_like(v)
                launch.key_value(problem, d_output, lse, total, dk, dv).run()
            if wants_bias and bias.ndim == 4:
                ds = lse.new_zeros(*q.shape[:3], k.shape[2])
            if wants_q or ds is not None:
                dq = torch.empty_like(q)
                launch.query(problem, d_output, lse, total, dq, ds).run()
            if ds is not None:
                d_bias = ds.sum_to_size(bias.shape).to(bias.dtype)
            elif wants_bias:
                sums_launch, sums = launch.bias_sums(problem, d_output, lse, total)
                sums_launch.run()
                d_bias = by_distance(sums, q.shape[2], k.shape[2]).to(bias.dtype)
        return dq, dk, dv, d_bias, None


def _last_stride_one(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Kernels start on the current device, not on that of their arguments."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
