"""Padding masks that are one object where they say the same, so that what is worked out for one layer serves all."""

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from common.attention.layouts import Padding


def real_keys(keep: Tensor) -> Padding:
    """`Padding(keep)`, by value: equal contents, on whatever device, give the same mask. keep: bool (B, Lk).

    `Padding` itself is compared by identity, so a model whose layers each made their own would have its block lists worked
    out anew in every layer, sample by sample. The mask has a copy of keep, on the CPU, where such lists are made.
    """
    Padding(keep)  # for its errors
    host = keep.detach().cpu().contiguous()
    return _of_content(ctypes.string_at(host.data_ptr(), host.numel()), tuple(host.shape))


@lru_cache(maxsize=32)
def _of_content(content: bytes, shape: tuple[int, int]) -> Padding:
    return Padding(torch.tensor(list(content), dtype=torch.bool).view(shape))
