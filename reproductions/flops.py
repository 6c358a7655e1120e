"""Training compute, counted by one rule: the FLOPs of all matrix products of a forward and a backward pass, a multiply-add
as two, full attention as if it were written out, sparse attention as its backend computes it, whole blocks and the scores a
second time in the backward pass. Softmax, norms, gates and the optimiser's own work do not count.

Vaswani et al. 2017, section 6.1, estimate theirs otherwise: training time times the GPUs' sustained rate.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from common.bench import count_flops
from common.lit.training import Trained


def flops_per_token(module: Trained, batches: Iterable[Any]) -> float:
    """Of a training update, per target (a word, a symbol, a document); the module's gradients are cleared."""
    flops, tokens = 0, 0
    with _written_out(module):
        for batch in batches:
            batch = batch.to(module.device)
            flops += count_flops(lambda batch=batch: module.nll(batch).sum().backward())
            tokens += int(batch.target_tokens)
    module.zero_grad()
    return flops / tokens


@contextmanager
def _written_out(module: nn.Module) -> Iterator[None]:
    attentions: list[Any] = [part for part in module.modules() if getattr(part, "counts_as_written_out", False)]
    backends = [part.backend for part in attentions]
    try:
        for part in attentions:
            part.backend = "reference"
        yield
    finally:
        for part, backend in zip(attentions, backends, strict=True):
            part.backend = backend
