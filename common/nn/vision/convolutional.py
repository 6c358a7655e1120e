"""A small residual network of convolutions, with or without gates in its stages (He et al. 2016; Woo et al. 2018)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from common.nn.feedforward import projection
from common.nn.vision.images import check_images


class Stage(nn.Module):
    """max(0, S(x) + A(BN(conv(max(0, BN(conv(x))))))), convolutions of 3 x 3, A what is to be compared: it acts on what the
    convolutions add, before the sum (Woo et al. 2018, figure 3). S: x itself, or a convolution of 1 x 1 where the shape
    changes (He et al. 2016, section 3.3, option B)."""

    def __init__(self, inputs: int, outputs: int, stride: int, attention: nn.Module) -> None:
        super().__init__()
        self.added = nn.Sequential(
            convolution(inputs, outputs, 3, stride), nn.ReLU(), convolution(outputs, outputs, 3, 1), attention
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, ceil(H / stride), ceil(W / stride))."""
        return torch.relu(self.shortcut(x) + self.added(x))


class ConvClassifier(nn.Module):
    """A convolution, stages with twice the channels and half the sides each from the second on, mean pooling, classes."""

    def __init__(
        self, classes: int, channels: int, stages: int, *, attention: Callable[[int], nn.Module], colours: int = 1
    ) -> None:
        """channels: of the first stage. attention: makes what each stage has, for its number of channels, such as
        `functools.partial(CBAM, reduction=4, use="both")`; `Bottleneck` for as many weights. colours: of the images."""
        super().__init__()
        if stages < 1:
            raise ValueError(f"stages: got {stages}, expected 1 or more")
        self.colours = colours
        self.first = nn.Sequential(convolution(colours, channels, 3, 1), nn.ReLU())
        widths = [channels * 2**n for n in range(stages)]
        self.stages = nn.Sequential(
            *(
                Stage(before, width, 1 if n == 0 else 2, attention(width))
                for n, (before, width) in enumerate(zip([channels, *widths], widths, strict=False))
            )
        )
        self.outer = projection(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, colours, H, W) of any sides, those that are halved being rounded up. Returns logits (B, classes)."""
        check_images(images, self.colours)
        return self.outer(self.stages(self.first(images)).mean((2, 3)))


def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """Zeros beyond the border; batch norm in place of a bias (He et al. 2016, section 3.4)."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )
