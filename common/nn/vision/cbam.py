"""The convolutional block attention module: which channels, then which places count (Woo et al. 2018, section 3)."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common.nn.feedforward import projection

Use = Literal["none", "channel", "spatial", "both"]


class ChannelAttention(nn.Module):
    """M_c(F) = sigmoid(W_1 max(0, W_0 F_avg) + W_1 max(0, W_0 F_max)) (equation 2): one network reads each channel's mean
    and its maximum over all places. W_0: C to C / reduction, W_1: back to C, no biases, as in the equation."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        if reduction < 1 or channels % reduction:
            raise ValueError(f"reduction: got {reduction}, expected a divisor of {channels} channels")
        self.w_0 = projection(channels, channels // reduction, bias=False)
        self.w_1 = projection(channels // reduction, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the gate, (B, C, 1, 1)."""
        pooled = torch.stack((x.mean((2, 3)), x.amax((2, 3))))  # (2, B, C)
        return self.w_1(torch.relu(self.w_0(pooled))).sum(0).sigmoid()[..., None, None]


class SpatialAttention(nn.Module):
    """M_s(F) = sigmoid(f([F_avg; F_max])) (equation 3): one convolution reads each place's mean and maximum over the
    channels, zeros beyond the border. Without bias, and without the batch norm that is in the authors' code only."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        if kernel < 1 or not kernel % 2:
            raise ValueError(f"kernel: got {kernel}, expected an odd one, so that the gate is as large as the image")
        self.convolution = nn.Conv2d(2, 1, kernel, padding=kernel // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the gate, (B, 1, H, W)."""
        return self.convolution(torch.stack((x.mean(1), x.amax(1)), 1)).sigmoid()


class CBAM(nn.Module):
    """F' = M_c(F) * F, F'' = M_s(F') * F' (equation 1), or one of the two, or x as it is."""

    def __init__(self, channels: int, reduction: int = 16, kernel: int = 7, use: Use = "both") -> None:
        """reduction, kernel: the paper's unless given. Raises ValueError for a reduction that does not divide the channels
        and for an even kernel, where they are used."""
        super().__init__()
        if use not in get_args(Use):
            raise ValueError(f"use: got {use!r}, expected one of {', '.join(get_args(Use))}")
        self.channel = ChannelAttention(channels, reduction) if use in ("channel", "both") else None
        self.spatial = SpatialAttention(kernel) if use in ("spatial", "both") else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        if self.channel is not None:
            x = self.channel(x) * x
        return x if self.spatial is None else self.spatial(x) * x
