"""Which sentences make a batch, from their lengths alone. Pure functions of numpy arrays: the same on every machine.

Lengths are in tokens, EOS counted. A batch is measured in sentences, or in tokens: then
sentences * longest side <= budget, where the longest side is the longest source or target in the batch. The budget is
thus the area that a batch fills with its padding, on its larger side. A pair longer than it is a batch by itself.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BatchSize:
    """`size` sentences, or a budget of `size` tokens as defined above."""

    unit: Literal["sentences", "tokens"]
    size: int

    def __post_init__(self) -> None:
        if self.unit not in ("sentences", "tokens") or self.size < 1:
            raise ValueError(f"batch: got {self.size} {self.unit}, expected at least one of sentences or tokens")

    def __str__(self) -> str:
        if self.unit == "sentences":
            return f"batches of {self.size} sentences"
        return f"batches of at most {self.size} tokens (sentences * longest source or target, with EOS and padding)"


@dataclass(frozen=True)
class Plan:
    """Batches over indices: batch k is `order[bounds[k]:bounds[k + 1]]`."""

    order: Ints
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, k: int) -> Ints:
        if not 0 <= k < len(self):
            raise IndexError(k)
        return self.order[self.bounds[k] : self.bounds[k + 1]]

    def permuted(self, batches: Ints) -> Self:
        """The same batches in another order."""
        sizes = np.diff(self.bounds)[batches]
        return type(self)(np.concatenate([self[int(k)] for k in batches]), np.concatenate([[0], np.cumsum(sizes)]))


def even_bounds(pairs: int, size: int) -> Ints:
    """As few batches as hold all pairs, of sizes that differ by at most one: none is left with a handful."""
    batches = -(-pairs // size)
    return np.arange(batches + 1) * pairs // batches


def budget_bounds(longest: Ints, budget: int, group: Ints) -> Ints:
    """Batches over pairs with these longest sides, filled until the next pair would exceed the budget.

    `group` ascends; a batch never holds pairs of two groups.
    """
    bounds = [0]
    top = 0
    for i, (length, new) in enumerate(zip(longest.tolist(), np.diff(group, prepend=group[0]).tolist(), strict=True)):
        top = max(top, length)
        if i > bounds[-1] and (new or (i + 1 - bounds[-1]) * top > budget):
            bounds.append(i)
            top = length
    return np.asarray([*bounds, len(longest)])


def sorted_batches(source: Ints, target: Ints, size: BatchSize) -> Plan:
    """Every pair once, the longest first: the largest batch comes at once, and not after an hour."""
    longest = np.maximum(source, target)
    order = np.lexsort((-(source + target), -longest))
    if size.unit == "sentences":
        return Plan(order, even_bounds(len(order), size.size))
    return Plan(order, budget_bounds(longest[order], size.size, np.zeros_like(longest)))


def epoch_batches(source: Ints, target: Ints, size: BatchSize, pool_batches: int, seed: int, epoch: int) -> Plan:
    """One epoch: pairs shuffled, read in pools of about `pool_batches` batches, sorted by length inside a pool, cut
    into batches; batches shuffled inside their pool. Every pair is in exactly one batch of an epoch.

    The paper (appendix B.2) reads 1600 pairs before every 20th update, sorts them and cuts 20 batches of 80.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = rng.permutation(len(source))
    longest, both = np.maximum(source, target)[order], (source + target)[order]
    if size.unit == "sentences":
        bounds = even_bounds(len(order), size.size)
        pool = np.repeat(np.arange(len(bounds) - 1) // pool_batches, np.diff(bounds))
        by_length = np.lexsort((both, longest, pool))  # stable: ties stay shuffled
    else:
        pool = (np.cumsum(longest) - longest) // (size.size * pool_batches)
        by_length = np.lexsort((both, longest, pool))
        bounds = budget_bounds(longest[by_length], size.size, pool)
    batches = np.lexsort((rng.random(len(bounds) - 1), pool[bounds[:-1]]))
    return Plan(order[by_length], bounds).permuted(batches)
