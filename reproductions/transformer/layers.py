"""Table 1: what a layer of each kind costs, what in it must wait for what, and how far apart two positions are.

Layers stand without projections, as the table's orders do: attention of the positions to themselves, a recurrent layer
(LSTM), a causal convolution, and attention restricted to a neighbourhood of r positions before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from common.attention import Causal, Mask, Window, attention
from common.bench import count_flops
from common.bench.depth import longest, shortest
from common.bench.timing import interleaved, seconds_of
from common.nn.lstm import StackedLSTM

Layer = Callable[[Tensor], Tensor]
"""(1, n, d) to the same."""
DEEP = torch.float64
"""Of stacks: what reaches the last position through many layers is below what single precision has."""
Chain = Callable[[list[Tensor]], list[Tensor]]
"""The same on n positions (1, d), each a node of its own in the graph of operations."""


def self_attention(d: int, heads: int, mask: Mask, backend: str) -> Layer:
    def layer(x: Tensor) -> Tensor:
        split = x.unflatten(-1, (heads, d // heads)).transpose(1, 2)
        return attention(split, split, split, mask=mask, backend=backend).transpose(1, 2).flatten(-2)

    return layer


def lstm(d: int, dtype: torch.dtype) -> StackedLSTM:
    """One layer, its weights drawn."""
    stack = StackedLSTM(d, d, 1).to(dtype)
    for parameter in stack.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    return stack


def recurrent(d: int) -> Layer:
    stack = lstm(d, torch.float32)
    return lambda x: stack(x, stack.zeros(x))[0]


def step_by_step(d: int) -> Chain:
    """A recurrent layer as its equations have it."""
    stack = lstm(d, DEEP)

    def chain(words: list[Tensor]) -> list[Tensor]:
        state, out = stack.zeros(words[0]), []
        for word in words:
            h, state = stack.step(word, state)
            out.append(h)
        return out

    return chain


def at_once(layer: Layer) -> Chain:
    return lambda words: list(layer(torch.stack(words, 1)).unbind(1))


def convolutional(d: int, kernel: int, dilation: int = 1, dtype: torch.dtype = torch.float32) -> Layer:
    convolution = nn.Conv1d(d, d, kernel, dilation=dilation, dtype=dtype)
    nn.init.uniform_(convolution.weight, 0.5 / d, 1 / d)  # none vanishes: what is out of reach alone gives no gradient
    reach = (kernel - 1) * dilation
    return lambda x: convolution(nn.functional.pad(x.transpose(1, 2), (reach, 0))).transpose(1, 2)


@dataclass(frozen=True)
class Layers:
    """For each kind by n: `flops` of a layer's forward pass and `layer_ms`, at width d; `depth`: the longest chain of
    operations of a layer, and `path`: the shortest one from the first position to the last through as many layers as
    connect them. By d, at the first of `lengths`: `flops_by_width`. rows: kind -> row."""

    rows: Mapping[str, str]
    lengths: Sequence[int]
    widths: Sequence[int]
    chain_lengths: Sequence[int]
    d: int
    heads: int
    kernel: int
    neighbours: int
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        found: dict[str, dict[str, Any]] = {row: {} for row in self.rows.values()}
        times = self.times()
        for kind, row in self.rows.items():
            layers = {n: self.layer(kind, self.d) for n in self.lengths}
            found[row] = {
                "flops": counted("FLOP", {n: flops_of(layer, n, self.d) for n, layer in layers.items()}),
                "flops_by_width": counted(
                    "FLOP", {d: flops_of(self.layer(kind, d), self.lengths[0], d) for d in self.widths}
                ),
                "depth": counted("operations", {n: self.depth(kind, n) for n in self.chain_lengths}),
                "path": counted("operations", {n: self.path(kind, n) for n in self.chain_lengths}),
                "layer_ms": {"unit": "ms", "at": {str(n): times[kind, n] for n in self.lengths}, "refused": {}},
            }
        return found

    def layer(self, kind: str, d: int) -> Layer:
        if kind == "self_attention":
            return self_attention(d, self.heads, Causal(), "reference")
        if kind == "restricted":
            return self_attention(d, self.heads, Window(self.neighbours, 0), "chunked")
        if kind == "recurrent":
            return recurrent(d)
        if kind == "convolutional":
            return convolutional(d, self.kernel)
        raise ValueError(f"rows: got kind {kind!r}, expected self_attention, recurrent, convolutional or restricted")

    def chain(self, kind: str, nth: int) -> Chain:
        """The nth layer of a stack, as narrow as the heads allow: convolutions widen their reach with each layer, and the
        neighbourhood is one that short texts do not fit into."""
        d = self.heads
        if kind == "recurrent":
            return step_by_step(d)
        if kind == "convolutional":
            return at_once(convolutional(d, self.kernel, self.kernel**nth, DEEP))
        if kind == "restricted":
            return at_once(self_attention(d, self.heads, Window(self.kernel, 0), "chunked"))
        return at_once(self.layer(kind, d))

    def times(self) -> dict[tuple[str, int], list[float]]:
        """Milliseconds of a forward pass, kinds and lengths in turns."""
        timers = {}
        for kind in self.rows:
            for n in self.lengths:
                layer, x = self.layer(kind, self.d), torch.randn(1, n, self.d)
                timers[f"{kind} {n}"] = lambda layer=layer, x=x: forward_seconds(layer, x)
        seconds = interleaved(timers, repeats=self.repeats)
        return {(kind, n): [s * 1e3 for s in seconds[f"{kind} {n}"]] for kind in self.rows for n in self.lengths}

    def depth(self, kind: str, n: int) -> int:
        """Operations on the longest chain in one layer."""
        words = [torch.randn(1, self.heads, dtype=DEEP, requires_grad=True) for _ in range(n)]
        return longest(self.chain(kind, 0)(words)[-1])

    def path(self, kind: str, n: int) -> int:
        """Operations on the shortest chain from the first position to the last, through the fewest layers that have one."""
        first, *rest = (torch.randn(1, self.heads, dtype=DEEP) for _ in range(n))
        words = [first.requires_grad_(), *rest]
        for nth in range(n):
            words = self.chain(kind, nth)(words)
            (reached,) = torch.autograd.grad(words[-1].sum(), first, retain_graph=True)
            if reached.any():
                return shortest(words[-1], first)
        raise AssertionError("no layer reaches further than the one before")


def counted(unit: str, at: Mapping[int, int]) -> dict[str, Any]:
    return {"unit": unit, "at": {str(point): [value] for point, value in at.items()}, "refused": {}}


def flops_of(layer: Layer, n: int, d: int) -> int:
    x = torch.randn(1, n, d)
    return count_flops(lambda: layer(x))


@torch.no_grad()
def forward_seconds(layer: Layer, x: Tensor) -> float:
    return seconds_of(lambda: layer(x))
