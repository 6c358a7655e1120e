"""How far a language model that keeps rounded keys and values drifts from itself, as it reads a text symbol by symbol."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from common.bench.by_length import store
from common.nn.long import LanguageModel
from common.nn.sparse.full import FullAttention
from common.nn.sparse.kept import DTYPES, Stored


class Reader(Protocol):
    """A language model with full attention as it was tested, and texts, (B, T) ids."""

    @property
    def tested(self) -> Any: ...
    @property
    def tokens(self) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Against the same model with caches of fp32, at the positions given (number n is that of the n-th symbol), a sample for
    each text: `divergence`, D(exact || rounded) of the distributions of the next symbol, in thousandths of a bit; `lost_bits`, by
    how much more the next symbol costs, in the mean of all positions up to there, in thousandths of a bit; `agreement`, per
    cent of the positions up to there where both would choose the same symbol.

    rows: row -> how caches are stored. What is read is the text and not what is chosen, so that both read the same.
    """

    of: Reader
    rows: Mapping[str, Stored]
    positions: Sequence[int]
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        tokens = self.of.tokens[:, : max(self.positions) + 1]
        exact = read(self.of.tested, tokens)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        for row, stored in self.rows.items():
            rounded = read(rounding(self.of.tested, stored), tokens)
            bits = 1e3 / torch.log(torch.tensor(2.0, dtype=torch.float64))
            divergence = (exact.exp() * (exact - rounded)).sum(-1) * bits
            chosen = tokens[:, 1:, None]
            lost = (exact - rounded).gather(-1, chosen)[..., 0] * bits
            same = exact.argmax(-1) == rounded.argmax(-1)
            for position in self.positions:
                store(rows, row, "divergence", position, "millibits").extend(divergence[:, position - 1].tolist())
                store(rows, row, "lost_bits", position, "millibits").extend(lost[:, :position].mean(1).tolist())
                agreed = 100 * same[:, :position].double().mean(1)
                store(rows, row, "agreement", position, "%").extend(agreed.tolist())
        return rows


def read(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log-probabilities of the symbol after each but the last, (B, T - 1, vocabulary), in double precision."""
    memory, found = None, []
    for symbol in tokens[:, :-1].unbind(1):
        logits, memory = model.step(symbol, memory)
        found.append(logits.double().log_softmax(-1))
    return torch.stack(found, 1)


def rounding(model: LanguageModel, stored: Stored) -> LanguageModel:
    """The same model with caches of that kind."""
    made = copy.deepcopy(model)
    for module in made.modules():
        if isinstance(module, FullAttention):
            module.stored = DTYPES[stored]
    return made
