"""A matrix that a loop reads once a step, and whose gradient is one product over all steps after the loop.

Autograd by itself makes the gradient of the whole matrix at every step and adds it up, which on a CPU can be more traffic
than the step. Loops whose gradient is written out (`lstm_scan`, `attentive_scan`) have no need of this.
"""

from typing import Any

import torch
from torch import Tensor

from common.nn.recurrent import matmul_dtype

Uses = list[tuple[Tensor, Tensor]]
"""What was multiplied, (..., N, inputs), and the gradient of what came out, (..., N, outputs), a pair a step."""


class _Matrix(torch.autograd.Function):
    """Stands for the matrix in the graph: each product depends on it, so its turn comes when all of them are through."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, uses: Uses) -> Tensor:
        ctx.uses, ctx.dtype = uses, matrix.dtype
        return matrix.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        left, right = (torch.cat(side, -2) for side in zip(*ctx.uses, strict=True))
        ctx.uses.clear()
        return (left.mT @ right).to(ctx.dtype), None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stand_in: Tensor, low: Tensor, uses: Uses) -> Tensor:
        ctx.x, ctx.low, ctx.uses, ctx.dtype = x.to(low.dtype), low, uses, x.dtype
        return (ctx.x @ low).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad = grad_outputs[0].to(ctx.low.dtype)
        ctx.uses.append((ctx.x, grad))
        return (grad @ ctx.low.mT).to(ctx.dtype), grad_outputs[0].new_zeros(()), None, None


class Deferred:
    """`x @ matrix` for a matrix (..., inputs, outputs) and any x (..., N, inputs), as often as a loop asks for it.

    Under autocast products run in its dtype, from a copy made once; results are in x's dtype, and the gradient of the
    matrix is rounded once. The graph can't be differentiated twice.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.low = matrix.detach().to(matmul_dtype(matrix))
        self.uses: Uses = []
        self.stand_in: Tensor = _Matrix.apply(matrix, self.uses)  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return _Product.apply(x, self.stand_in, self.low, self.uses)  # type: ignore[return-value]
