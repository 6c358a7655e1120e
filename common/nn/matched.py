"""Feed-forward layers widened until a model has as many weights as with multi-head attention (Shazeer 2019, section 4.1)."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import nn

from common.nn.feedforward import Activation

Match = Literal["none", "params"]


def matched_d_ff(
    match: Match,
    d_model: int,
    d_ff: int,
    attentions: Sequence[Callable[[], nn.Module]],
    feedforwards: int,
    activation: Activation,
) -> int:
    """d_ff, or with match="params" the width with which the model has as many weights as with multi-head attention of
    d_model / heads each and d_ff: 4096 becomes 5440 in table 1 and 8192 becomes 9088 in table 3.

    attentions: what makes each of the model's attentions, built without memory; feedforwards: how many feed-forward layers
    share what the attentions save. Biases and norms are not counted, the width is rounded to a whole number. Raises
    ValueError for other matches, and where attention has so many weights more that nothing would be left.
    """
    if match not in get_args(Match):
        raise ValueError(f"match: got {match!r}, expected one of {', '.join(get_args(Match))}")
    if match == "none":
        return d_ff
    with torch.device("meta"):
        saved = sum(4 * d_model**2 - _matrices(attention()) for attention in attentions)
    a_unit = feedforwards * d_model * (3 if activation == "swiglu" else 2)
    width = d_ff + round(saved / a_unit)
    if width < 1:
        raise ValueError(f"match=params: got a feed-forward width of {width}, expected 1 or more: give a larger d_ff")
    return width


def _matrices(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.ndim == 2)
