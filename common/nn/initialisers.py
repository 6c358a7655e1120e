"""Initial weights as Bahdanau et al. 2014, appendix B.1 give them."""

import torch
from torch import Tensor, nn


def gaussian_(tensor: Tensor, std: float) -> Tensor:
    """Gaussian with mean 0 and the given standard deviation, in place."""
    return nn.init.normal_(tensor, 0.0, std)


def orthogonal_(tensor: Tensor) -> Tensor:
    """Random orthogonal square blocks, in place: (..., H, k*H) holds k independent (H, H) blocks a matrix."""
    rows, columns = tensor.shape[-2:]
    assert columns % rows == 0, f"columns {columns} are no multiple of rows {rows}"
    with torch.no_grad():
        for matrix in tensor.view(-1, rows, columns):
            for block in matrix.split(rows, dim=1):
                nn.init.orthogonal_(block)
    return tensor
