"""Section 3.1, theorem 1: the algorithm returns softmax(Q K^T) V. How far from it each backend is, by dtype."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.attention import Causal, Full, Mask, Padding, attention
from common.attention.dropout import keep
from common.bench.contestants import Plain
from common.bench.workload import DTYPES

OUTPUTS = ("output", "dq", "dk", "dv")
PLAIN = "plain"


@dataclass(frozen=True)
class Exactness:
    """Relative root mean square error of output and gradients against fp64 of the same rounded inputs.

    methods: row -> backend, or `plain`: as one writes attention out in that dtype. Points: dtype, and dtype with causal
    mask, padding or dropout. batch 2, `heads` heads, an odd length, as `length` says.
    """

    methods: Mapping[str, str]
    dtypes: Sequence[str]
    heads: int
    head_dim: int
    length: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        samples = {
            row: {f"error_{name}": {"unit": "relative", "at": {}, "refused": {}} for name in OUTPUTS}
            for row in self.methods
        }
        lengths = torch.tensor([self.length, self.length // 2])
        variants: dict[str, tuple[Mask, float]] = {
            "": (Full(), 0.0),
            " causal": (Causal(), 0.0),
            " padding": (Padding.lengths(lengths, self.length), 0.0),
            " dropout": (Full(), 0.1),
        }
        for dtype in self.dtypes:
            for suffix, (mask, p) in variants.items():
                inputs = self.inputs(dtype, seed)
                exact = gradients(partial(exactly, mask=mask, p=p, seed=seed), [t.double() for t in inputs])
                for row, backend in self.methods.items():
                    point = f"{dtype}{suffix}"
                    try:
                        found = gradients(method(backend, mask, p, seed), inputs)
                    except ValueError as reason:
                        for name in OUTPUTS:
                            samples[row][f"error_{name}"]["refused"][point] = str(reason).split(";")[0]
                        continue
                    for name, got, right in zip(OUTPUTS, found, exact, strict=True):
                        error = (got.double() - right).norm() / right.norm()
                        samples[row][f"error_{name}"]["at"][point] = [float(error)]
        return samples

    def inputs(self, dtype: str, seed: int) -> list[Tensor]:
        draw = torch.Generator().manual_seed(seed)
        shape = (2, self.heads, self.length, self.head_dim)
        return [torch.randn(shape, generator=draw).to(DTYPES[dtype]) for _ in range(4)]


def gradients(attend: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """output, dq, dk, dv for q, k, v and the gradient of the output."""
    q, k, v = (t.detach().requires_grad_() for t in inputs[:3])
    out = attend(q, k, v)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), inputs[3])]


def method(backend: str, mask: Mask, p: float, seed: int) -> Any:
    if backend != PLAIN:
        return lambda q, k, v: attention(q, k, v, mask=mask, backend=backend, dropout_p=p, dropout_seed=seed)
    if p:
        raise ValueError("plain draws its own random numbers")
    return Plain(mask, 0.0)


def exactly(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p: float, seed: int) -> Tensor:
    """The definition, for inputs in fp64 of equally many heads."""
    batch, heads, lq, _ = q.shape
    lk = k.shape[2]
    allowed = mask.dense(lq, lk)
    weights = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
    if p:
        place = torch.arange(batch * heads).view(batch, heads, 1, 1)
        weights = weights * keep(seed, p, place, torch.arange(lq)[:, None], torch.arange(lk)) / (1 - p)
    return weights @ v
