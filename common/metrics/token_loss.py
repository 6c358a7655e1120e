"""Negative log-likelihood of a split while a model is trained. The one metric that needs torch."""

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenLoss(Metric):
    """Sums of a split while a model is trained, over all batches and DDP ranks.

    A distributed sampler repeats sentences to fill its last batch; here each sentence counts once, by its index.
    """

    full_state_update = False
    higher_is_better = False

    nll: Tensor
    tokens: Tensor
    seen: Tensor

    def __init__(self, sentences: int) -> None:
        """For a split of this many sentences."""
        super().__init__()
        self.add_state("nll", torch.zeros(sentences), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros(sentences, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("seen", torch.zeros(sentences, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nll: Tensor, tokens: Tensor, index: Tensor) -> None:
        """nll (B,) in nats, summed over each sentence; tokens (B,), EOS counted; index (B,), position in the split."""
        self.nll[index] = nll.to(self.nll.dtype)
        self.tokens[index] = tokens.to(self.tokens.dtype)
        self.seen[index] = 1

    def compute(self) -> dict[str, Tensor]:
        """nll per token and per sentence, in nats, and perplexity, of the sentences seen so far.

        Raises:
            ValueError: if none was.
        """
        once = self.seen.clamp(min=1)  # ranks that saw the same sentence
        nll, tokens, sentences = (self.nll / once).sum(), (self.tokens // once).sum(), (self.seen > 0).sum()
        if sentences == 0:
            raise ValueError("TokenLoss has seen no sentence: call update first")
        return {
            "nll_per_token": nll / tokens,
            "nll_per_sentence": nll / sentences,
            "perplexity": (nll / tokens).exp(),
        }
