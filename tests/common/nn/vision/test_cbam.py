"""Gates by hand and by plain loops, and the control that has as many weights."""

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from common.nn.vision import CBAM, Bottleneck
from common.nn.vision.cbam import ChannelAttention, SpatialAttention, Use
from tests.common.nn.vision.spec import picture

HAND = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[1.0, 1.0], [1.0, 1.0]]]])
"""Channel 1: mean 3, maximum 6; channel 2: both 1. Means of the channels 1, 1.5, 2, 3.5, maxima 1, 2, 3, 6."""


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def large(module: Any) -> Any:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def channel_gate(x: Any, w_0: Any, w_1: Any) -> list[float]:
    """Equation 2 of one image, all of it lists."""
    places = [[value for row in channel for value in row] for channel in x]
    pooled = [[sum(values) / len(values) for values in places], [max(values) for values in places]]
    inner = [[max(0.0, sum(w * s for w, s in zip(row, some, strict=True))) for row in w_0] for some in pooled]
    return [sigmoid(sum(w * (a + b) for w, a, b in zip(row, *inner, strict=True))) for row in w_1]


def spatial_gate(x: Any, weight: Any) -> list[list[float]]:
    """Equation 3 of one image; weight: (2, kernel, kernel)."""
    height, width, half = len(x[0]), len(x[0][0]), len(weight[0]) // 2
    columns = [[[channel[y][z] for channel in x] for z in range(width)] for y in range(height)]
    maps = [[[f(at) for at in row] for row in columns] for f in (lambda at: sum(at) / len(at), max)]
    gate = [[0.0] * width for _ in range(height)]
    for y in range(height):
        for z in range(width):
            for m in range(2):
                for u in range(max(0, y - half), min(height, y + half + 1)):
                    for v in range(max(0, z - half), min(width, z + half + 1)):
                        gate[y][z] += weight[m][u - y + half][v - z + half] * maps[m][u][v]
    return [[sigmoid(value) for value in row] for row in gate]


def refined(module: CBAM, x: Tensor) -> Tensor:
    """Equation 1, the channels first."""
    out = []
    for image in x.tolist():
        if module.channel is not None:
            gate = channel_gate(image, module.channel.w_0.weight.tolist(), module.channel.w_1.weight.tolist())
            image = [[[g * value for value in row] for row in c] for g, c in zip(gate, image, strict=True)]
        if module.spatial is not None:
            places = spatial_gate(image, module.spatial.convolution.weight[0].tolist())
            image = [
                [[g * value for g, value in zip(*rows, strict=True)] for rows in zip(places, channel, strict=True)]
                for channel in image
            ]
        out.append(image)
    return torch.tensor(out, dtype=x.dtype)


def test_channel_gate_by_hand() -> None:
    """W_0 = (1, -4) gives max(0, 3 - 4) = 0 of the means and 6 - 4 = 2 of the maxima."""
    layer = ChannelAttention(2, 2)
    assert layer.w_0.weight.shape == (1, 2) and layer.w_1.weight.shape == (2, 1)
    means = torch.tensor([[1.0, -4.0]])
    layer.w_0.weight.data, layer.w_1.weight.data = means, torch.tensor([[0.5], [-1.0]])
    assert layer(HAND).flatten().tolist() == pytest.approx([sigmoid(1), sigmoid(-2)])
    assert layer(HAND).shape == (1, 2, 1, 1)
    layer.w_0.weight.data = torch.tensor([[1.0, -1.0]])  # 2 of the means, 5 of the maxima
    assert layer(HAND).flatten().tolist() == pytest.approx([sigmoid(3.5), sigmoid(-7)])


def test_spatial_gate_by_hand() -> None:
    """The mean of the place itself, twice that of the place to its right, less the maximum of the place above it."""
    layer = SpatialAttention(7)
    nn.init.zeros_(layer.convolution.weight)
    with torch.no_grad():
        layer.convolution.weight[0, 0, 3, 3], layer.convolution.weight[0, 0, 3, 4] = 1.0, 2.0
        layer.convolution.weight[0, 1, 2, 3] = -1.0
    expected = [sigmoid(1 + 2 * 1.5), sigmoid(1.5), sigmoid(2 + 2 * 3.5 - 1), sigmoid(3.5 - 2)]
    assert layer(HAND).flatten().tolist() == pytest.approx(expected)
    assert layer(HAND).shape == (1, 1, 2, 2)


@pytest.mark.parametrize("use", get_args(Use))
@pytest.mark.parametrize(("kernel", "size"), [(7, (2, 2)), (3, (3, 5)), (1, (4, 1))])
def test_plain_loops(use: Use, kernel: int, size: tuple[int, int]) -> None:
    module, x = large(CBAM(4, 2, kernel, use)), picture(2, 4, *size)
    torch.testing.assert_close(module(x), refined(module, x))


def test_channels_come_first() -> None:
    module, x = large(CBAM(4, 2, 3)), picture(1, 4, 3, 3)
    other = module.spatial(x) * x
    other = module.channel(other) * other
    assert (module(x) - other).abs().max() > 1e-3


def test_gates_lie_between_0_and_1() -> None:
    module, x = large(CBAM(8, 4)), picture(3, 8, 5, 6)
    for gate, shape in ((module.channel(x), (3, 8, 1, 1)), (module.spatial(x), (3, 1, 5, 6))):
        assert gate.shape == shape and gate.min() > 0 and gate.max() < 1 and gate.std() > 0.01
    assert torch.equal(module.channel(torch.zeros_like(x)), torch.full((3, 8, 1, 1), 0.5, dtype=x.dtype))
    assert torch.equal(module.spatial(torch.zeros_like(x)), torch.full((3, 1, 5, 6), 0.5, dtype=x.dtype))


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("use", "weights", "width"), [("none", 0, 0), ("channel", 128, 4), ("spatial", 98, 3), ("both", 226, 7)]
)
def test_weights_of_the_gates_and_of_their_control(use: Use, weights: int, width: int) -> None:
    """16 channels, reduction 4: 2 * 16 * 4, and 2 * 7 * 7. The control's come by 32: 128, 96, 224."""
    assert size(CBAM(16, 4, use=use)) == weights
    assert size(Bottleneck(16, 4, match=use)) == 32 * width
    assert size(CBAM(128, 16, use=use)) == {"none": 0, "channel": 2048, "spatial": 98, "both": 2146}[use]
    assert size(Bottleneck(128, 16, match=use)) == {"none": 0, "channel": 2048, "spatial": 256, "both": 2048}[use]


def test_the_control_looks_at_one_place_at_a_time() -> None:
    module, x = large(Bottleneck(4, 2, match="channel")), picture(2, 4, 2, 3)
    w_0, w_1 = module.w_0.weight, module.w_1.weight
    for b in range(2):
        for y in range(2):
            for z in range(3):
                at = x[b, :, y, z]
                torch.testing.assert_close(module(x)[b, :, y, z], at + w_1 @ (w_0 @ at).clamp(min=0))
    assert torch.equal(Bottleneck(4, 2, match="none")(x), x)


def test_counting_draws_nothing() -> None:
    """Seeds of the rows that are compared stay theirs."""
    torch.manual_seed(3)
    Bottleneck(4, 2, match="none")
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after)


@pytest.mark.parametrize("kind", [CBAM, Bottleneck])
def test_what_does_not_fit_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="reduction: got 3, expected a divisor of 8 channels"):
        kind(8, 3)
    with pytest.raises(ValueError, match="reduction: got 16, expected a divisor of 8 channels"):
        kind(8)
    with pytest.raises(ValueError, match="kernel: got 4, expected an odd one"):
        kind(8, 4, 4)
    with pytest.raises(ValueError, match="use: got 'all', expected one of none, channel, spatial, both"):
        kind(8, 4, 7, "all")
    kind(8, 3, 4, "none")  # neither is used
