"""Classes of documents, and of pairs of them (Tay et al. 2021, sections 2.2.2, 2.2.3 and appendix A.1)."""

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from common.nn.feedforward import projection
from common.nn.long import Options, Trunk, encoder_only


class Classifier(nn.Module):
    """An encoder, one vector a document, and a network of two layers with ReLU.

    pooling: "cls", the vector of the first token, or "mean", that of all real tokens. pairs: documents come in pairs, each
    goes through the same encoder, and the network reads [X1, X2, X1 * X2, X1 - X2]. Where the attention has global tokens
    the first token is one (Beltagy et al. 2020, section 3.1).
    """

    def __init__(
        self,
        vocabulary: int,
        layers: int,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        classes: int,
        pooling: Literal["cls", "mean"] = "cls",
        pairs: bool = False,
        head_size: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        """head_size: of the network's inner layer, d_ff unless given. Raises ValueError for causal attention."""
        super().__init__()
        if pooling not in ("cls", "mean"):
            raise ValueError(f"pooling: got {pooling!r}, expected cls or mean")
        self.trunk = Trunk(vocabulary, layers, d_model, heads, d_ff, **options)
        encoder_only(self.trunk)
        self.pooling, self.pairs = pooling, pairs
        size = d_ff if head_size is None else head_size
        self.inner, self.outer = projection(d_model * (4 if pairs else 1), size), projection(size, classes)
        self.dropout = nn.Dropout(options.get("dropout", 0.0))

    def forward(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        other: Tensor | None = None,
        other_real: Tensor | None = None,
        *,
        stage: int = 0,
    ) -> Tensor:
        """tokens: int64 (B, T), CLS first; other: (B, T2), the second documents of pairs. Returns logits (B, classes)."""
        if (other is not None) != self.pairs:
            got, expected = ("single documents", "pairs") if self.pairs else ("pairs", "single documents")
            raise ValueError(f"documents: got {got}, expected {expected} (pairs={self.pairs})")
        found = self.vectors(tokens, real, stage)
        if other is not None:
            second = self.vectors(other, other_real, stage)
            found = torch.cat((found, second, found * second, found - second), -1)
        return self.outer(self.dropout(torch.relu(self.inner(found))))

    def vectors(self, tokens: Tensor, real: Tensor | None, stage: int = 0) -> Tensor:
        """(B, d_model), one for each document."""
        is_global = None
        if self.trunk.uses_global:
            is_global = torch.zeros(tokens.shape, dtype=torch.bool, device=tokens.device)
            is_global[:, 0] = True
        hidden = self.trunk(tokens, real, is_global, stage=stage)
        if self.pooling == "cls":
            return hidden[:, 0]
        if real is None:
            return hidden.mean(1)
        return hidden.masked_fill(~real[..., None], 0.0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
