"""What each remedy for too little memory saves and costs, one training update of a language model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common.bench.by_length import store
from common.bench.memory import peak_bytes
from common.bench.timing import interleaved, seconds_of
from common.nn.hybrid import Sliding
from common.nn.long import LanguageModel
from common.nn.sparse import Full
from common.nn.sparse.layer import Factory

REMEDIES = ("kernel", "window", "accumulation", "bf16", "checkpointing")


@dataclass(frozen=True, kw_only=True)
class Remedies:
    """Of `row`, whose attention is written out, in fp32, the whole batch at once, and of one remedy each in place of that: a
    fused kernel, a window, a batch in halves whose gradients are added, products in bfloat16, and blocks that are computed
    again for the backward pass. Rows are named `<row>_<remedy>`.

    `memory_mb`: peak of forward and backward beyond weights; `step_ms`: their time, in turns; `error`: of the gradient, over
    its size, against that of the same attention in fp64, of two sequences, a sample a draw of tokens.
    """

    row: str
    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    length: int
    batch: int
    window: int
    draws: int
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        names = {"": self.row} | {remedy: f"{self.row}_{remedy}" for remedy in REMEDIES}
        rows: dict[str, dict[str, Any]] = {row: {} for row in names.values()}
        tokens = self.tokens(seed, self.batch)
        steps = {remedy: partial(self.step, self.model(remedy, seed), remedy, tokens) for remedy in names}
        for remedy, step in steps.items():
            step()  # what is made once
            store(rows, names[remedy], "memory_mb", "default", "MB").append(peak_bytes(step) / 1e6)
        taken = interleaved({r: partial(seconds_of, step) for r, step in steps.items()}, repeats=self.repeats)
        for remedy, seconds in taken.items():
            store(rows, names[remedy], "step_ms", "default").extend(1e3 * s for s in seconds)
        for draw in range(self.draws):
            one = self.tokens(seed * self.draws + draw, 2)
            dense, window = (self.gradient(self.model(kind, seed).double(), "", one) for kind in ("", "window"))
            for remedy, row in names.items():
                exact = window if remedy == "window" else dense
                found = self.gradient(self.model(remedy, seed), remedy, one)
                store(rows, row, "error", "default", "of 1").append(((found - exact).norm() / exact.norm()).item())
        return rows

    def tokens(self, seed: int, batch: int) -> Tensor:
        return torch.randint(self.vocabulary, (batch, self.length + 1), generator=torch.Generator().manual_seed(seed))

    def model(self, remedy: str, seed: int) -> LanguageModel:
        torch.manual_seed(seed)
        attention: Factory = Full(backend="sdpa" if remedy == "kernel" else "reference", causal=True)
        if remedy == "window":
            attention = Sliding(backend="chunked", window=self.window)
        return LanguageModel(
            self.vocabulary, self.layers, self.d_model, self.heads, self.d_ff, attention=attention, positions="learned",
            max_length=self.length,
        )  # fmt: skip

    def step(self, model: LanguageModel, remedy: str, tokens: Tensor) -> None:
        model.zero_grad(set_to_none=True)
        parts = tokens.chunk(2) if remedy == "accumulation" else (tokens,)
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=remedy == "bf16"):
                logits = again(model, part[:, :-1]) if remedy == "checkpointing" else model(part[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1).to(model.trunk.embedding.weight.dtype), part[:, 1:].flatten()
            )
            (loss * len(part) / len(tokens)).backward()

    def gradient(self, model: LanguageModel, remedy: str, tokens: Tensor) -> Tensor:
        self.step(model, remedy, tokens)
        return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def again(model: LanguageModel, tokens: Tensor) -> Tensor:
    """model(tokens), of which each block's inner results are computed once more for the backward pass."""
    x = model.trunk.embedding(tokens)
    for block in model.trunk.blocks:
        call: Callable[[Tensor], Tensor] = block
        x = checkpoint(call, x, use_reentrant=False)
    return nn.functional.linear(model.trunk.last(x), model.trunk.embedding.weight)
