"""A batch of sentence pairs as padded id tensors."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from data.vocab import BOS, EOS, PAD, SPECIALS


@dataclass(frozen=True, eq=False)
class Seq2SeqBatch:
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
    index: Tensor
    """(B,) position in the split; -1 for the stand-in row of an empty shard"""
    update_tokens: Tensor
    """() target tokens of the whole update of which this batch is a share: what a loss summed over it is divided by"""

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

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self._map(Tensor.pin_memory)

    def _map(self, change) -> Self:
        return replace(self, **{field.name: change(getattr(self, field.name)) for field in fields(self)})


def shard(batch: Seq2SeqBatch, rank: int, world: int) -> Seq2SeqBatch:
    """Every `world`-th pair of the batch, from `rank` on: the shards of all ranks together are the batch.

    The padding stays, so that a pair is computed as in the whole batch. A rank that gets nothing (fewer pairs than
    ranks) gets a stand-in, so that it runs the same code as the others: an empty source and no target token at all.
    Such a row has index -1 and, `target_mask` being False throughout, adds nothing to a loss summed over real tokens.
    """
    if not 0 <= rank < world:
        raise ValueError(f"got rank {rank} of {world}, expected 0 <= rank < {world}")
    if rank < len(batch):
        return batch._map(lambda tensor: tensor[rank::world] if tensor.dim() else tensor)
    row = batch._map(lambda tensor: torch.zeros_like(tensor[:1]) if tensor.dim() else tensor)
    source, target_in = torch.full_like(row.source, PAD), torch.full_like(row.target_in, PAD)
    source[:, 0], target_in[:, 0] = EOS, BOS
    return replace(row, source=source, source_mask=source != PAD, target_in=target_in, index=row.index - 1)


def made_up_batch(source_words: int, target_words: int, sentences: int, words: int) -> Seq2SeqBatch:
    """Random sentences of that many words each side; the vocabulary sizes count the special ids."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(len(SPECIALS), source_words, (sentences, words + 1), generator=generator)
    target = torch.randint(len(SPECIALS), target_words, (sentences, words + 1), generator=generator)
    source[:, -1] = target[:, -1] = EOS
    return Seq2SeqBatch.of(source, target)
