"""Axial attention: along the rows in one layer, along the columns in the next (Ho et al. 2019, section 3)."""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from common import attention as core
from common.nn.sparse.layer import Settings
from common.nn.vision.grid import GridAttention

Axis = Literal["rows", "columns"]


@dataclass(frozen=True, kw_only=True)
class Axial(Settings):
    """Factory: layers 0, 2, .. along the rows, layers 1, 3, .. along the columns, so that two let any pixel reach any other.
    They have the weights of full attention, and of an image of side s 2 n s scores where two full layers have 2 n^2."""

    def __call__(self, d_model: int, heads: int, layer: int) -> "AxialAttention":
        return AxialAttention(d_model, heads, self, "columns" if layer % 2 else "rows")


class AxialAttention(GridAttention):
    """Every pixel sees those of its own row, or of its own column."""

    def __init__(self, d_model: int, heads: int, of: Axial, axis: Axis) -> None:
        super().__init__(d_model, heads, of)
        if axis not in get_args(Axis):
            raise ValueError(f"axis: got {axis!r}, expected one of {', '.join(get_args(Axis))}")
        self.axis: Axis = axis

    def forward(self, x: Tensor) -> Tensor:
        lines = x if self.axis == "rows" else x.transpose(1, 2)  # (B, lines, pixels of a line, d_model)
        seen = self.multihead(lines.flatten(0, 1), mask=core.Full()).unflatten(0, lines.shape[:2])
        return seen if self.axis == "rows" else seen.transpose(1, 2)

    def pairs(self, height: int, width: int) -> int:
        return height * width * (width if self.axis == "rows" else height)
