"""Classes of images by self-attention of patches or pixels (Dosovitskiy et al. 2021, section 3.1)."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common.nn.feedforward import projection
from common.nn.transformer import Block, BlockSettings
from common.nn.vision.grid import Factory
from common.nn.vision.images import check_images, patches

Positions = Literal["factorised", "none"]


class VisionClassifier(nn.Module):
    """Patches, pre-norm blocks with GELU, the mean of all patches, classes.

    With layers of `Swin` two blocks are equation 3 of Liu et al. 2021, z + (S)W-MSA(LN(z)) and z + MLP(LN(z)), all stages of
    one resolution.
    """

    def __init__(
        self,
        classes: int,
        layers: int,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        attention: Factory,
        size: tuple[int, int],
        patch: int = 1,
        colours: int = 1,
        positions: Positions = "factorised",
        dropout: float = 0.0,
    ) -> None:
        """size: height and width of the images. patch: pixels of a side; 1: pixels. positions: added to the patches, a
        learnt vector for the row and one for the column (Ho et al. 2019); none for layers that know positions by themselves.
        dropout: of what each sublayer adds. Raises ValueError where patches do not divide the image."""
        super().__init__()
        if patch < 1 or size[0] % patch or size[1] % patch:
            raise ValueError(f"patch: got {patch}, expected a divisor of the image's {size[0]} x {size[1]} pixels")
        if positions not in get_args(Positions):
            raise ValueError(f"positions: got {positions!r}, expected one of {', '.join(get_args(Positions))}")
        self.size, self.patch, self.colours = tuple(size), patch, colours
        self.embedding = projection(colours * patch**2, d_model)
        self.rows = self.columns = None
        if positions == "factorised":
            self.rows, self.columns = (
                nn.Parameter(torch.empty(side // patch, d_model).normal_(std=d_model**-0.5)) for side in size
            )
        settings = BlockSettings(
            d_model=d_model,
            heads=heads,
            d_ff=d_ff,
            backend=attention.backend,
            norm="pre",
            activation="gelu",
            dropout=dropout,
        )
        self.blocks = nn.ModuleList(Block(settings, attention(d_model, heads, n)) for n in range(layers))
        self.last, self.outer = settings.last(), projection(d_model, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, colours, H, W). Returns logits (B, classes)."""
        check_images(images, self.colours)
        if images.shape[2:] != self.size:
            raise ValueError(f"images: got {tuple(images.shape[2:])} pixels, expected {self.size}")
        x = self.embedding(patches(images, self.patch))  # (B, H / patch, W / patch, d_model)
        if self.rows is not None and self.columns is not None:
            x = x + self.rows[:, None] + self.columns
        for block in self.blocks:
            x = block(x)
        return self.outer(self.last(x).mean((1, 2)))
