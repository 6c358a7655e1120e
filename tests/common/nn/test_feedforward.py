"""SwiGLU by hand; the other activations are in test_transformer.py."""

import math

import pytest
import torch
from torch import nn

from common.nn.feedforward import FeedForward


def test_swiglu_by_hand() -> None:
    """x = (1, 2), W_1 picks the first, W_3 the second: 1 * sigmoid(1) * 2, times W_2 = 3."""
    layer = FeedForward(2, 1, activation="swiglu")
    assert layer.w_3 is not None
    assert [linear.bias for linear in (layer.w_1, layer.w_2, layer.w_3)] == [None] * 3
    layer.w_1.weight.data = torch.tensor([[1.0, 0.0]])
    layer.w_3.weight.data = torch.tensor([[0.0, 1.0]])
    nn.init.constant_(layer.w_2.weight, 3.0)
    expected = 3 * 2 / (1 + math.exp(-1))
    assert layer(torch.tensor([1.0, 2.0])).tolist() == pytest.approx([expected] * 2)
    negative = layer(torch.tensor([-1.0, 2.0]))
    assert negative.tolist() == pytest.approx([-3 * 2 / (1 + math.e)] * 2)
