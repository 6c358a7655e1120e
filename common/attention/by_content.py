"""Masks that hold data as one object where they say the same, so that what is worked out for one serves all.

`Padding` and `Blocks` are compared by identity: a model whose layers or calls each made their own would have its block
lists worked out anew every time, sample by sample.
"""

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from common.attention.layouts import Blocks, Padding


def real_keys(keep: Tensor) -> Padding:
    """`Padding(keep)`, by value: equal contents, on whatever device, give the same mask. keep: bool (B, Lk). It has a copy of
    keep on the CPU, where block lists are made."""
    Padding(keep)  # for its errors
    return _padding(*_content(keep))


def block_table(table: Tensor, block: int) -> Blocks:
    """`Blocks(table, block)`, likewise."""
    Blocks(table, block)
    return _blocks(*_content(table), block)


def _content(flags: Tensor) -> tuple[bytes, tuple[int, ...]]:
    host = flags.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel()), tuple(host.shape)


def _tensor(content: bytes, shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(list(content), dtype=torch.bool).view(shape)


@lru_cache(maxsize=32)
def _padding(content: bytes, shape: tuple[int, ...]) -> Padding:
    return Padding(_tensor(content, shape))


@lru_cache(maxsize=64)
def _blocks(content: bytes, shape: tuple[int, ...], block: int) -> Blocks:
    return Blocks(_tensor(content, shape), block)
