"""python -m reproductions.flash_attention.trace > TRACE.md: online softmax, step by step, on numbers that can be followed by hand.

Dao et al. 2022, algorithm 1, for one block of queries: of each block of keys the scores, the running maximum m, the factor by
which everything before is rescaled, the running sum l and the output, and the bytes that have moved so far.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from common.attention import Full
from common.attention.traffic import Shape, flash_forward, standard_forward

QUERIES = ((2.0, 0.0, 0.0, 2.0), (0.0, 2.0, 0.0, 0.0))
KEYS = ((1.0, 1.0, 0.0, 0.0), (0.0, 2.0, 1.0, 0.0), (1.0, 0.0, 0.0, 2.0),
        (-1.0, 1.0, 1.0, 0.0), (0.0, -1.0, 0.0, 1.0), (1.0, 3.0, 0.0, 1.0))  # fmt: skip
VALUES = ((1.0, 0.0), (0.0, 1.0), (2.0, 2.0), (-1.0, 0.0), (0.0, -1.0), (4.0, 1.0))
BLOCK = 2
"""Keys at a time. Both queries are one block."""
HALF = 2
"""Bytes of an element of the inputs and of the output; lse is fp32."""


@dataclass(frozen=True)
class Step:
    """After a block of keys: scores (q, block), maximum, factor and running_sum (q,), output (q, Dv), not yet divided by the sum.

    read: bytes of keys and values so far, and of the queries.
    """

    keys: range
    scores: Tensor
    maximum: Tensor
    factor: Tensor
    weights: Tensor
    running_sum: Tensor
    output: Tensor
    read: int


def steps(q: Tensor, k: Tensor, v: Tensor, block: int) -> Iterator[Step]:
    """Of q (Q, D), k (K, D), v (K, Dv), in fp64, scores over sqrt(D)."""
    maximum, running_sum = q.new_full((len(q),), -torch.inf), q.new_zeros(len(q))
    output, read = q.new_zeros(len(q), v.shape[1]), q.numel() * HALF
    for first in range(0, len(k), block):
        some = slice(first, first + block)
        scores = q @ k[some].T / q.shape[1] ** 0.5
        before, maximum = maximum, torch.maximum(maximum, scores.amax(1))
        factor = (before - maximum).exp()
        weights = (scores - maximum[:, None]).exp()
        running_sum = factor * running_sum + weights.sum(1)
        output = factor[:, None] * output + weights @ v[some]
        read += (k[some].numel() + v[some].numel()) * HALF
        yield Step(range(first, first + len(k[some])), scores, maximum, factor, weights, running_sum, output, read)


def case() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.tensor(rows, dtype=torch.float64) for rows in (QUERIES, KEYS, VALUES))
    return q, k, v


def page() -> str:
    q, k, v = case()
    shape = Shape(1, 1, 1, len(q), len(k), q.shape[1], v.shape[1], HALF)
    ours, written_out = flash_forward(shape, Full(), len(q), BLOCK), standard_forward(shape)
    done = list(steps(q, k, v, BLOCK))
    last = done[-1]
    lines = [
        "# Online softmax, step by step",
        "",
        "Made by `python -m reproductions.flash_attention.trace`; its end is compared with the reference in a test.",
        "",
        f"Two queries, {len(k)} keys, {BLOCK} at a time; scores are q k / {q.shape[1] ** 0.5:g}, the root of a head's size. A row of attention needs the maximum of",
        "all scores, and no block knows it. So each takes the largest so far, m, and what was summed with a smaller one is",
        "multiplied by exp(m before - m now): the factor. The scores of a block are gone when the next one comes.",
        "",
        *_inputs(q, k, v),
    ]
    for number, step in enumerate(done, 1):
        lines += _step(number, step)
    lines += [
        "## The end",
        "",
        "Output over l; log-sum-exp, m + ln l, is kept for the backward pass.",
        "",
        *_table(("query", "output", "lse"), [
            (str(i + 1), _vector(last.output[i] / last.running_sum[i]), _number(last.maximum[i] + last.running_sum[i].log()))
            for i in range(len(q))
        ]),
        "",
        f"Bytes: {ours.total()} in all, {last.read} of inputs read and {ours.total() - last.read} of output and lse (fp32) written.",
        f"Attention written out moves {written_out.total()}: it stores the {len(q)} x {len(k)} scores, reads them, stores the weights, and",
        "reads those. Here that is little; it grows with the product of both lengths, the inputs with their sum.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _inputs(q: Tensor, k: Tensor, v: Tensor) -> Iterator[str]:
    yield from _table(("query", "q"), [(str(i + 1), _vector(row)) for i, row in enumerate(q)])
    yield ""
    yield from _table(("key", "k", "v"), [(str(i + 1), _vector(k[i]), _vector(v[i])) for i in range(len(k))])
    yield ""


def _step(number: int, step: Step) -> Iterator[str]:
    yield f"## Block {number}: keys {step.keys.start + 1} to {step.keys.stop}"
    yield ""
    header = ("query", "scores", "m", "factor", "exp(scores - m)", "l", "output, not yet divided")
    yield from _table(header, [
        (str(i + 1), _vector(step.scores[i]), _number(step.maximum[i]), _number(step.factor[i]), _vector(step.weights[i]),
         _number(step.running_sum[i]), _vector(step.output[i]))
        for i in range(len(step.scores))
    ])  # fmt: skip
    yield ""
    yield f"{step.read} bytes read so far."
    yield ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"


def _number(value: Tensor) -> str:
    text = f"{float(value):.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _vector(row: Tensor) -> str:
    return ", ".join(map(_number, row))


if __name__ == "__main__":
    print(page(), end="")
