"""Attention in windows that are shifted from layer to layer (Swin; Liu et al. 2021, section 3.2)."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from common import attention as core
from common.nn.sparse.layer import Settings
from common.nn.vision.grid import GridAttention
from common.nn.vision.images import from_windows, windows


@dataclass(frozen=True, kw_only=True)
class Swin(Settings):
    """Factory: of each two layers the first has regular windows, W-MSA, the second shifted ones, SW-MSA (equation 3).
    window: pixels of a side, M in the paper."""

    window: int

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"window: got {self.window}, expected 2 or more: one pixel has no others to see")

    def __call__(self, d_model: int, heads: int, layer: int) -> "WindowAttention":
        return WindowAttention(d_model, heads, self, self.window // 2 if layer % 2 else 0)


class WindowAttention(GridAttention):
    """Softmax(Q K^T / sqrt(d) + B) V in windows of M x M (equation 4), which begin `shift` pixels to the right and below.

    B: a learnt number for each head and difference of places, `table` (heads, 2M - 1, 2M - 1). Shifted, the windows at the
    border are cut off by it; they are computed two or four in a window of M x M, by a cyclic shift and a mask (figure 4). A
    side of one window is not shifted, as there it would only cut.
    """

    def __init__(self, d_model: int, heads: int, of: Swin, shift: int) -> None:
        super().__init__(d_model, heads, of)
        if not 0 <= shift < of.window:
            raise ValueError(f"shift: got {shift}, expected 0 to {of.window - 1}, less than the window")
        self.window, self.shift = of.window, shift
        self.table = nn.Parameter(torch.empty(heads, 2 * of.window - 1, 2 * of.window - 1))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Raises ValueError where windows do not divide the image: nothing is padded."""
        images, height, width, _ = x.shape
        if height % self.window or width % self.window:
            raise ValueError(f"x: got {height} x {width} pixels, expected multiples of the window {self.window}")
        down, right = (self.shift if side > self.window else 0 for side in (height, width))
        mask = regions(images, height, width, self.window, down, right) if down or right else core.Full()
        inside = windows(x.roll((-down, -right), (1, 2)), self.window)
        seen = self.multihead(inside, mask=mask, bias=self.bias())
        return from_windows(seen, self.window, height, width).roll((down, right), (1, 2))

    def bias(self) -> Tensor:
        """B, (1, heads, M^2, M^2): of query i and key j, table[y_i - y_j + M - 1, x_i - x_j + M - 1]."""
        place = torch.arange(self.window**2, device=self.table.device)
        y, x = place // self.window, place % self.window
        dy, dx = (at[:, None] - at + self.window - 1 for at in (y, x))
        return self.table[:, dy, dx][None]

    def pairs(self, height: int, width: int) -> int:
        return height * width * self.window**2


@lru_cache(maxsize=32)
def regions(images: int, height: int, width: int, window: int, down: int, right: int) -> core.Packed:
    """Which windows of figure 4 the pixels of each window of the cyclically shifted image are of: what came from beyond the
    border is not next to the rest. One object for all layers and calls, as such masks are compared by identity."""
    below, beyond = torch.arange(height) >= height - down, torch.arange(width) >= width - right
    of = 2 * below[:, None].long() + beyond.long()
    return core.Packed(windows(of[None, ..., None], window)[..., 0].repeat(images, 1))
