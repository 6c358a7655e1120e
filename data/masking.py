"""Which symbols a masked model has to predict, and what it sees in their place (Devlin et al. 2018, section 3.1)."""

import numpy as np
from numpy.typing import NDArray

from data.symbols import MASK, SPECIALS, Ids


def masked_count(length: int, rate: float) -> int:
    """How many of so many symbols are predicted: that share of them, at least one."""
    return min(length, max(1, int(rate * length + 0.5)))


def mask(ids: Ids, rate: float, symbols: int, rng: np.random.Generator) -> tuple[Ids, NDArray[np.bool_]]:
    """Ids (T,) as the model sees them, and which of them it has to predict (T,) bool.

    `masked_count` places are chosen at random; of them 80 per cent become MASK, 10 per cent a symbol drawn from all of
    the alphabet (maybe the same again), 10 per cent stay.
    """
    chosen = rng.permutation(len(ids))[: masked_count(len(ids), rate)]
    kind = rng.random(len(chosen))
    drawn = SPECIALS + rng.integers(symbols, size=len(chosen))
    seen = ids.copy()
    seen[chosen] = np.where(kind < 0.8, MASK, np.where(kind < 0.9, drawn, ids[chosen]))
    scored = np.zeros(len(ids), dtype=bool)
    scored[chosen] = True
    return seen, scored
