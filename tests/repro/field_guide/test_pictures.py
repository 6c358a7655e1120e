"""Grey values on their way from symbols to a network."""

import pytest
import torch
from torch import nn

from data.symbols import CLS, PAD, SPECIALS
from reproductions.field_guide.pictures import Pictures


class Kept(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes, self.given = classes, torch.empty(0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.given = images
        return images.new_zeros(len(images), self.classes)


def test_rows_of_grey_values() -> None:
    model = Pictures(260, classes=3, side=2, network=Kept)
    tokens = torch.tensor([[CLS, *(value + SPECIALS for value in (0, 51, 102, 255))]])
    assert model(tokens).shape == (1, 3)
    assert isinstance(model.network, Kept)
    torch.testing.assert_close(model.network.given, torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]]))


def test_what_is_missing_is_black() -> None:
    model = Pictures(260, classes=3, side=2, network=Kept)
    model(torch.tensor([[CLS, 255 + SPECIALS, PAD]]))
    assert isinstance(model.network, Kept)
    torch.testing.assert_close(model.network.given, torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]]))


def test_refused() -> None:
    with pytest.raises(ValueError, match="got 5 pixels, expected at most 2 x 2"):
        Pictures(260, classes=3, side=2, network=Kept)(torch.zeros(1, 6, dtype=torch.int64))
    with pytest.raises(ValueError, match="got pairs"):
        Pictures(260, classes=3, side=2, network=Kept, pairs=True)
