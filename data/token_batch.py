"""Batches of long sequences of symbols: texts whose symbols are predicted, and documents that are classified.

Ids are those of `data.symbols`, int64, padded on the right with PAD.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from data.batch import Rows
from data.symbols import CLS, MASK, PAD, SPECIALS

NO_LABEL = -100
"""The label of a stand-in row; what `torch.nn.functional.cross_entropy` ignores."""


@dataclass(frozen=True, eq=False)
class TokenBatch(Rows):
    """B sequences of which some symbols are predicted, all from what precedes them or masked ones from all others.

    A causal model's `targets[b, t]` is the symbol after `tokens[b, t]`; a masked model's is the symbol at t itself.
    """

    tokens: Tensor
    """(B, T) ids"""
    targets: Tensor
    """(B, T) ids; PAD where there is none"""
    scored: Tensor
    """(B, T) bool: a loss is taken here"""
    real: Tensor
    """(B, T) bool: neither padding nor a stand-in"""
    stage: int = 0
    """Of staged training: which stage the batch belongs to"""

    @classmethod
    def of(
        cls, tokens: Tensor, targets: Tensor, scored: Tensor, real: Tensor, index: Tensor | None = None, stage: int = 0
    ) -> Self:
        """Of a whole update; index by default 0 .. B-1."""
        index = torch.arange(len(tokens)) if index is None else index
        return cls(tokens, targets, scored, real, stage, index=index, update_tokens=scored.sum())

    @property
    def target_tokens(self) -> Tensor:
        """Number of symbols to predict; a scalar."""
        return self.scored.sum()

    def stand_in(self) -> Self:
        """A lone CLS; nothing is scored."""
        row = self.map_rows(lambda tensor: torch.zeros_like(tensor[:1]))
        tokens, real = _lone_cls(row.tokens)
        return replace(row, tokens=tokens, real=real, targets=torch.full_like(tokens, PAD), index=row.index - 1)


@dataclass(frozen=True, eq=False)
class LabelBatch(Rows):
    """B documents, or pairs of them, each with a label. What an update counts is documents (pairs)."""

    tokens: Tensor
    """(B, T) ids, CLS first"""
    real: Tensor
    """(B, T) bool"""
    label: Tensor
    """(B,) int64, from 0; NO_LABEL for a stand-in row"""
    other: Tensor | None = None
    """(B, T2) the second documents of pairs, CLS first"""
    other_real: Tensor | None = None
    """(B, T2) bool"""

    @classmethod
    def of(cls, tokens: Tensor, label: Tensor, other: Tensor | None = None, index: Tensor | None = None) -> Self:
        """Of a whole update; what is not PAD is real. Index by default 0 .. B-1."""
        index = torch.arange(len(tokens)) if index is None else index
        other_real = None if other is None else other != PAD
        update_tokens = torch.tensor(len(tokens))
        return cls(tokens, tokens != PAD, label, other, other_real, index=index, update_tokens=update_tokens)

    @property
    def target_tokens(self) -> Tensor:
        """Number of documents to classify; a scalar."""
        return (self.label != NO_LABEL).sum()

    def stand_in(self) -> Self:
        """A lone CLS on each side, whose label counts nothing."""
        row = self.map_rows(lambda tensor: torch.zeros_like(tensor[:1]))
        tokens, real = _lone_cls(row.tokens)
        other, other_real = (None, None) if row.other is None else _lone_cls(row.other)
        label = torch.full_like(row.label, NO_LABEL)
        row = replace(row, tokens=tokens, real=real, label=label, index=row.index - 1)
        return replace(row, other=other, other_real=other_real)


def _lone_cls(like: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the shape of `like` (1, T), CLS and padding, and which are real."""
    tokens = torch.full_like(like, PAD)
    tokens[:, 0] = CLS
    return tokens, tokens != PAD


def made_up_tokens(symbols: int, sequences: int, length: int, masked: bool = False, stage: int = 0) -> TokenBatch:
    """Random sequences; every seventh position is masked and scored, or all are scored."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(SPECIALS, SPECIALS + symbols, (sequences, length + 1), generator=generator)
    real = torch.ones(sequences, length, dtype=torch.bool)
    if not masked:
        return TokenBatch.of(text[:, :-1].clone(), text[:, 1:].clone(), real.clone(), real, stage=stage)
    scored = (torch.arange(length) % 7 == 0).expand(sequences, -1).clone()
    targets = text[:, :-1].clone()
    return TokenBatch.of(targets.masked_fill(scored, MASK), targets, scored, real, stage=stage)


def made_up_labels(symbols: int, classes: int, documents: int, length: int, paired: bool = False) -> LabelBatch:
    """Random documents (or pairs) of that many ids, CLS counted."""
    generator = torch.Generator().manual_seed(0)
    tokens, other = torch.randint(SPECIALS, SPECIALS + symbols, (2, documents, length), generator=generator)
    tokens[:, 0] = other[:, 0] = CLS
    label = torch.randint(classes, (documents,), generator=generator)
    return LabelBatch.of(tokens, label, other if paired else None)
