"""What gates are compared with: as many weights without attention."""

import torch
from torch import Tensor, nn

from common.nn.feedforward import projection
from common.nn.vision.cbam import CBAM, Use


class Bottleneck(nn.Module):
    """x + W_1 max(0, W_0 x) at each place: the weights that the gates of `CBAM` would have, in an ordinary residual layer
    of 1 x 1 convolutions that pools nothing and multiplies nothing.

    In place of channel attention it has exactly as many, W_0 and W_1 being of the same shape; else its width is rounded to a
    whole number of 1 or more, each 2 C weights. It computes H W times as much as channel attention with these weights.
    """

    def __init__(self, channels: int, reduction: int = 16, kernel: int = 7, match: Use = "both") -> None:
        """match: the `use` whose size it has; none: x as it is."""
        super().__init__()
        with torch.device("meta"):
            weights = sum(p.numel() for p in CBAM(channels, reduction, kernel, match).parameters())
        width = max(1, round(weights / (2 * channels)))
        self.w_0 = projection(channels, width, bias=False) if weights else None
        self.w_1 = projection(width, channels, bias=False) if weights else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        if self.w_0 is None or self.w_1 is None:
            return x
        return x + self.w_1(torch.relu(self.w_0(x.movedim(1, -1)))).movedim(-1, 1)
