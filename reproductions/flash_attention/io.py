"""Figure 2, left, and theorem 2: FLOPs and bytes of our kernels and of attention written out, in closed form.

The closed forms are those that the interpreted kernels were counted against (`common.attention.kernels.ledger`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from common.attention import Causal, Full, Mask, Random, Window, traffic
from common.attention.traffic import Shape

POINT = "gpt2_medium"
TARGET = "sm_80"  # the A100 of the paper
MASKS: dict[str, Mask] = {
    "full": Full(),
    "causal": Causal(),
    "window": Window(128, 128),
    "blocks": Window(128, 128) | Random(2, 64, 0),
}


@dataclass(frozen=True)
class Traffic:
    """gflops and gigabytes at the paper's shape; traffic_mb of one head by length; key_value_mb by the queries of a block.

    shape: of the paper, a forward and backward pass in 16 bit with the configurations that the kernels are run with.
    """

    shape: Mapping[str, int]
    lengths: Sequence[int]
    blocks: Sequence[int]

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        paper = Shape(**self.shape)
        one = {n: Shape(1, 1, 1, n, n, paper.d, paper.dv, paper.size) for n in self.lengths}
        longest = one[max(self.lengths)]
        flash = {
            "gflops": _exact("GFLOP", {POINT: flash_products(paper, Full()) / 1e9}),
            "gigabytes": _exact("GB", {POINT: flash_bytes(paper, Full()).total() / 1e9}),
            "traffic_mb": _exact("MB", {n: flash_bytes(s, Full()).total() / 1e6 for n, s in one.items()}),
            "key_value_mb": _exact("MB", {b: key_value_bytes(longest, b) / 1e6 for b in self.blocks}),
            "masked_mb": _exact("MB", {name: flash_bytes(longest, m).total() / 1e6 for name, m in MASKS.items()}),
        }
        standard = {
            "gflops": _exact("GFLOP", {POINT: traffic.standard_products(paper) / 1e9}),
            "gigabytes": _exact("GB", {POINT: standard_bytes(paper) / 1e9}),
            "traffic_mb": _exact("MB", {n: standard_bytes(s) / 1e6 for n, s in one.items()}),
        }
        return {"flash": flash, "standard": standard}


def flash_bytes(shape: Shape, mask: Mask) -> Counter[str]:
    """Of all kernels of a forward and backward pass."""
    forward, query, key_value = (configuration(part, shape) for part in ("forward", "query", "key_value"))
    return (
        traffic.flash_forward(shape, mask, *forward[:2])
        + traffic.flash_delta(shape)
        + traffic.flash_query(shape, mask, *query[:2])
        + traffic.flash_key_value(shape, mask, *key_value[:2])
    )


def flash_products(shape: Shape, mask: Mask) -> int:
    """Two products forward; three for dQ (scores and dP again), four for dK and dV."""
    numbers = {"forward": 2, "query": 3, "key_value": 4}
    blocks = {part: configuration(part, shape) for part in numbers}
    return sum(traffic.flash_products(shape, mask, blocks[p][0], blocks[p][1], n) for p, n in numbers.items())


def key_value_bytes(shape: Shape, block_q: int) -> int:
    """What the forward kernel reads of K and V with so many queries a block."""
    moved = traffic.flash_forward(shape, Full(), block_q, 64)
    return moved["k"] + moved["v"]


def standard_bytes(shape: Shape) -> int:
    return (traffic.standard_forward(shape) + traffic.standard_backward(shape)).total()


def configuration(part: str, shape: Shape) -> Any:
    """Queries, keys, warps and stages that the kernel of a pass is run with."""
    from common.attention.kernels.configurations import choose

    return choose(part, max(shape.d, shape.dv), torch.bfloat16 if shape.size == 2 else torch.float32, False, TARGET)


def _exact(unit: str, values: Mapping[Any, float]) -> dict[str, Any]:
    return {"unit": unit, "at": {str(point): [value] for point, value in values.items()}, "refused": {}}
