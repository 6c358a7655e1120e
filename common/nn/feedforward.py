"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["relu", "gelu", "swiglu"]
ACTIVATIONS = {"relu": torch.relu, "gelu": nn.functional.gelu, "swiglu": nn.functional.silu}


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (equation 2), f = max(0, x), or x Phi(x) (Hendrycks and Gimpel 2016).

    swiglu: (x W_1 sigmoid(x W_1) * x W_3) W_2 without biases (Shazeer 2020, equation 6), three matrices instead of two.
    Weights are drawn as Glorot and Bengio 2010 do, biases are zero.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: got {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
        self.activation = ACTIVATIONS[activation]
        gated = activation == "swiglu"
        self.w_1, self.w_2 = projection(d_model, d_ff, bias=not gated), projection(d_ff, d_model, bias=not gated)
        self.w_3 = projection(d_model, d_ff, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) to (..., d_model)."""
        inner = self.activation(self.w_1(x))
        return self.w_2(inner if self.w_3 is None else inner * self.w_3(x))


def projection(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """x W + b, W uniform with variance 2 / (inputs + outputs), b zero."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
