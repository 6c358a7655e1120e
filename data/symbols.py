"""Ids of symbols: a byte, a pixel or a token of a formal language, numbered from 0, has its number + SPECIALS as id."""

import numpy as np
from numpy.typing import NDArray

PAD, CLS, MASK, SEP = range(4)
SPECIALS = 4
BYTES = 256

Ids = NDArray[np.int64]


def vocabulary(symbols: int) -> int:
    """Number of ids of an alphabet of so many symbols, the special ones among them."""
    return SPECIALS + symbols


def ids_of(symbols: NDArray[np.uint8]) -> Ids:
    """Ids of symbols given by their numbers, any shape."""
    return symbols.astype(np.int64) + SPECIALS
