"""Networks for images as classifiers of documents, whose symbols are grey values row by row."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from data.symbols import SPECIALS

GREY = 255.0


class Pictures(nn.Module):
    """Grey values from 0 to 1 of square images behind CLS, to logits of a network for images. What is missing at the end of one,
    as of made-up batches, is black, and so is padding."""

    def __init__(
        self, vocabulary: int, *, classes: int, side: int, network: Callable[[int], nn.Module], pairs: bool = False
    ) -> None:
        """network: makes one of its number of classes. Raises ValueError for pairs, which it has no way to compare."""
        super().__init__()
        if pairs:
            raise ValueError("documents: got pairs, expected single images")
        self.side, self.network = side, network(classes)

    def forward(
        self, tokens: Tensor, real: Tensor | None = None, other: Tensor | None = None, other_real: Tensor | None = None
    ) -> Tensor:
        """tokens: int64 (B, 1 + pixels). Returns logits (B, classes). Raises ValueError for more than side^2 pixels."""
        missing = self.side**2 + 1 - tokens.shape[1]
        if missing < 0:
            raise ValueError(f"tokens: got {tokens.shape[1] - 1} pixels, expected at most {self.side} x {self.side}")
        grey = (tokens[:, 1:] - SPECIALS).clamp(min=0) / GREY
        return self.network(functional.pad(grey, (0, missing)).unflatten(1, (1, self.side, self.side)))
