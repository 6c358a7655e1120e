"""Training of sequence-to-sequence models: a word at a time, given those before it."""

from typing import Protocol, cast

from torch import Tensor

from common.decode.types import StepModel
from common.lit.training import Trained
from data.batch import Seq2SeqBatch


class Seq2SeqModel(Protocol):
    """Teacher forcing: logits (N, V) of the N real target positions, in the order of target_mask."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor: ...


class Seq2Seq(Trained):
    """Targets are the real words of a batch's target sentences, EOS counted, in the order of target_mask."""

    @property
    def translator(self) -> StepModel:
        """The model as the decoder asks it."""
        return cast(StepModel, self.model)

    def logits(self, batch: Seq2SeqBatch) -> tuple[Tensor, Tensor]:
        logits = self.model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)
        return logits.float(), batch.target_out[batch.target_mask]

    def counts(self, batch: Seq2SeqBatch) -> Tensor:
        return batch.target_mask.sum(1)
