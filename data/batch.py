"""What all batches are made of, how ranks share one, and a batch of sentence pairs as padded id tensors."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from data.vocab import BOS, EOS, PAD, SPECIALS


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(ABC):
    """B rows: tensors that have a row each as their first dimension, scalars, and plain values."""

    index: Tensor
    """(B,) position in the split; -1 for the stand-in row of an empty shard"""
    update_tokens: Tensor
    """() target tokens of the whole update of which this batch is a share: what a loss summed over it is divided by"""

    @property
    @abstractmethod
    def target_tokens(self) -> Tensor:
        """Number of targets in this batch; a scalar."""

    @abstractmethod
    def stand_in(self) -> Self:
        """One row that can be computed and counts nothing: its index is -1, and it has no target."""

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self.map(Tensor.pin_memory)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The batch with every tensor changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in values.items() if isinstance(value, Tensor)})

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The batch with every tensor changed that has rows; scalars stay."""
        return self.map(lambda tensor: change(tensor) if tensor.dim() else tensor)


RowsT = TypeVar("RowsT", bound=Rows)


@dataclass(frozen=True, eq=False)
class Seq2SeqBatch(Rows):
    """B pairs; ids are int64, padded on the right with PAD; masks are True at real tokens."""

    source: Tensor
    """(B, S) words and EOS"""
    source_mask: Tensor
    """(B, S) bool"""
    target_in: Tensor
    """(B, T) BOS and words"""
    target_out: Tensor
    """(B, T) words and EOS"""
    target_mask: Tensor
    """(B, T) bool, of target_in and target_out alike"""

    @classmethod
    def of(cls, source: Tensor, target: Tensor, index: Tensor | None = None) -> Self:
        """From ids (B, S) and (B, T) that end with EOS and are padded with PAD; index by default 0 .. B-1."""
        mask = target != PAD
        shifted = torch.where(mask[:, 1:], target[:, :-1], PAD)
        return cls(
            source=source,
            source_mask=source != PAD,
            target_in=torch.cat([torch.full_like(target[:, :1], BOS), shifted], 1),
            target_out=target,
            target_mask=mask,
            index=torch.arange(len(source)) if index is None else index,
            update_tokens=mask.sum(),
        )

    @property
    def target_tokens(self) -> Tensor:
        """Number of target tokens to predict, EOS counted; a scalar."""
        return self.target_mask.sum()

    def stand_in(self) -> Self:
        """An empty source, and no target token at all: `target_mask` is False throughout."""
        row = self.map_rows(lambda tensor: torch.zeros_like(tensor[:1]))
        source, target_in = torch.full_like(row.source, PAD), torch.full_like(row.target_in, PAD)
        source[:, 0], target_in[:, 0] = EOS, BOS
        return replace(row, source=source, source_mask=source != PAD, target_in=target_in, index=row.index - 1)


def shard(batch: RowsT, rank: int, world: int) -> RowsT:
    """Every `world`-th row of the batch, from `rank` on: the shards of all ranks together are the batch.

    The padding stays, so that a row is computed as in the whole batch. A rank that gets nothing (fewer rows than ranks)
    gets a stand-in, so that it runs the same code as the others; it adds nothing to a loss summed over targets.
    """
    if not 0 <= rank < world:
        raise ValueError(f"got rank {rank} of {world}, expected 0 <= rank < {world}")
    return batch.map_rows(lambda tensor: tensor[rank::world]) if rank < len(batch) else batch.stand_in()


def made_up_batch(source_words: int, target_words: int, sentences: int, words: int) -> Seq2SeqBatch:
    """Random sentences of that many words each side; the vocabulary sizes count the special ids."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(len(SPECIALS), source_words, (sentences, words + 1), generator=generator)
    target = torch.randint(len(SPECIALS), target_words, (sentences, words + 1), generator=generator)
    source[:, -1] = target[:, -1] = EOS
    return Seq2SeqBatch.of(source, target)
