"""What is timed: shapes, masks by name, and inputs that are random and too many for the cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from common.attention import Causal, Full, Mask, Padding, Random, Window

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
MASKS = "full, causal, window:W, causal-window:W, blocks:DENSITY, padding"


@dataclass(frozen=True)
class Shape:
    """(batch, heads, length, head_dim) of q; k and v have kv_heads."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    dtype: str
    device: str

    @property
    def set_bytes(self) -> int:
        """Of q, k, v and the gradient of the output."""
        numbers = 2 * self.batch * (self.heads + self.kv_heads) * self.length * self.head_dim
        return numbers * DTYPES[self.dtype].itemsize


class Inputs(NamedTuple):
    """q, k, v, which require gradients, and the gradient of the output."""

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor

    def detached(self) -> "Inputs":
        """For a forward pass alone: the same numbers, no gradients."""
        return Inputs(*(t.detach() for t in self))


def mask_of(name: str, shape: Shape, *, block: int, seed: int) -> Mask:
    """window:W has W keys on each side, causal-window:W has W keys before the query's own; blocks:DENSITY draws that share
    of the blocks in each row of blocks, at least one; padding leaves between half and all of the keys, by batch entry.

    Raises ValueError for another name, or a number that is none.
    """
    kind, _, number = name.partition(":")
    if name in ("full", "causal"):
        return Full() if name == "full" else Causal()
    if name == "padding":
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint((shape.length + 1) // 2, shape.length + 1, (shape.batch,), generator=draw)
        return Padding.lengths(lengths, shape.length)
    if kind in ("window", "causal-window") and number.isdecimal():
        return Window(int(number), 0 if kind == "causal-window" else int(number))
    if kind == "blocks" and number.replace(".", "", 1).isdecimal() and 0 < float(number) <= 1:
        return Random(max(1, round(float(number) * -(-shape.length // block))), block, seed)
    raise ValueError(f"mask: got {name!r}, expected one of {MASKS}")


def sets_needed(set_bytes: int, cache_bytes: int) -> int:
    """How many sets of inputs, so that between two uses of one the others alone fill the cache."""
    return 1 + -(-cache_bytes // set_bytes)


def cache_bytes(device: str) -> int:
    """Of the last cache of a GPU; 0 on a CPU, where inputs come from the cache in use too."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.startswith("cuda") else 0


def random_inputs(shape: Shape, count: int, seed: int) -> list[Inputs]:
    """N(0, 1)."""
    draw = torch.Generator(shape.device).manual_seed(seed)

    def normal(heads: int) -> Tensor:
        size = (shape.batch, heads, shape.length, shape.head_dim)
        return torch.randn(size, generator=draw, device=shape.device).to(DTYPES[shape.dtype])

    def one() -> Inputs:
        q, k, v = (normal(heads).requires_grad_() for heads in (shape.heads, shape.kv_heads, shape.kv_heads))
        return Inputs(q, k, v, normal(shape.heads))

    return [one() for _ in range(count)]


def refuse_constant(inputs: Iterable[Tensor]) -> None:
    """Raises ValueError for inputs that are zero, or all one number: a GPU spends less power on them and runs faster."""
    for t in inputs:
        if bool((t == t.flatten()[0]).all()):
            raise ValueError(f"inputs: got {float(t.flatten()[0])} in every place, expected random numbers")
