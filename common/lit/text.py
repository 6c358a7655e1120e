"""Training of models of text: the next symbol of each, those that were hidden, or the label of a whole document."""

import torch
from torch import Tensor

from common.lit.training import Trained
from data.token_batch import LabelBatch, TokenBatch


class LanguageModel(Trained):
    """Targets are the symbols after the scored positions of a batch; the model sees what is before them."""

    def logits(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        return self.of_all(batch)[batch.scored].float(), batch.targets[batch.scored]

    def of_all(self, batch: TokenBatch) -> Tensor:
        """Logits (B, T, V) of every position."""
        return self.model(batch.tokens, stage=batch.stage)

    def counts(self, batch: TokenBatch) -> Tensor:
        return batch.scored.sum(1)


class MaskedLanguageModel(LanguageModel):
    """Targets are the symbols that were hidden (Devlin et al. 2018, section 3.1); the model sees both sides of them."""

    def of_all(self, batch: TokenBatch) -> Tensor:
        return self.model(batch.tokens, batch.real)


class Classifier(Trained):
    """The target of each document, or pair of documents, is its label."""

    def logits(self, batch: LabelBatch) -> tuple[Tensor, Tensor]:
        return self.model(batch.tokens, batch.real, batch.other, batch.other_real).float(), batch.label

    def counts(self, batch: LabelBatch) -> Tensor:
        return torch.ones_like(batch.label)
