"""What a decoder asks of a model, and what it hands back."""

from dataclasses import dataclass
from typing import Any, Protocol, Self

from torch import Tensor

Memory = dict[str, Tensor]
"""The encoded source, (batch, ...). One copy a sentence: every beam of a sentence reads the same row."""


class Rows(Protocol):
    """What is kept of batch * beam hypotheses in another form than a tensor."""

    def __len__(self) -> int: ...

    def reordered(self, index: Tensor) -> Self:
        """That of index[n] at n; index: int64, of any length."""
        ...


State = dict[str, Any]
"""All that changes from word to word: tensors (batch, beam, ...), or `Rows`. Everything in it is reordered when beams are."""


class StepModel(Protocol):
    """A model that can be asked for one target word after another."""

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, State]:
        """Encode source (B, S), mask True = real word; the state has one beam: (B, 1, ...)."""
        ...

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor | None]:
        """Read the last word of every beam, tokens (B, K), and score the next one.

        Returns natural log-probs (B, K, V), the new state (B, K, ...), and the attention weights (B, K, S) with which
        the next word is predicted, or None.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence."""

    tokens: list[int]
    """Word ids, without EOS."""
    log_prob: float
    """Sum of the natural log-probs of the words, and of EOS if it is finished."""
    score: float
    """log_prob / length ** length_penalty, or as another length_rule has it; the length counts EOS if it is finished."""
    weights: Tensor | None
    """Attention (length, real source words) of the very path that was chosen; the last row of a finished one is EOS's.
    Columns of padding are cut, so it does not depend on the batch."""
    finished: bool
    """False if the length limit came before EOS."""
