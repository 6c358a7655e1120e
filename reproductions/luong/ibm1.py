"""IBM model 1 (Brown et al. 1993): word translation probabilities from sentence pairs alone, by EM.

Each word f of one side is written by one word e of the other, or by none (the empty word), all equally likely beforehand:
p(f | sentence) = sum_e t(f | e) / (words + 1). Its links give each word f the e that most likely wrote it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Words = Sequence[str]
EMPTY = 0
"""Number of the empty word, the last of every sentence: of equal probabilities a word's counts first."""


@dataclass
class Numbers:
    """Words as numbers, from `first` on."""

    first: int
    ids: dict[str, int] = field(default_factory=dict)

    def learn(self, words: Words) -> list[int]:
        return [self.ids.setdefault(word, self.first + len(self.ids)) for word in words]

    def known(self, words: Words) -> NDArray[np.int64]:
        """-1 for a word that was never seen."""
        return np.array([self.ids.get(word, -1) for word in words], dtype=np.int64)


@dataclass(frozen=True)
class IBM1:
    """t(f | e): `table[k]` is that of the pair `keys[k]` = e * number of f + f; sorted. Pairs never seen together: 0."""

    given: Numbers
    written: Numbers
    keys: NDArray[np.int64]
    table: NDArray[np.float64]

    def links(self, given: Words, written: Words) -> list[tuple[int, int]]:
        """(place of e, place of f) of each f that was most likely written by a word; none where nothing is known of f."""
        e = np.append(self.given.known(given), EMPTY)
        f = self.written.known(written)[:, None]
        wanted = e * len(self.written.ids) + f
        places = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        seen = (self.keys[places] == wanted) & (e >= 0) & (f >= 0)
        p = np.where(seen, self.table[places], 0.0)
        best = p.argmax(axis=1)
        return [(int(i), j) for j, i in enumerate(best) if i < len(given) and p[j, i] > 0]


def train_ibm1(pairs: Iterable[tuple[Words, Words]], rounds: int) -> IBM1:
    """Pairs (given, written), `rounds` of EM from equal probabilities.

    Raises:
        ValueError: without a pair with words on both sides.
    """
    given, written = Numbers(first=1), Numbers(first=0)
    sides = [([*given.learn(e), EMPTY], written.learn(f)) for e, f in pairs if e and f]
    if not sides:
        raise ValueError("IBM model 1: got no pair with words on both sides, expected some")
    wide = np.array([len(e) for e, _ in sides])
    choices = np.repeat(wide, [len(f) for _, f in sides])  # words that could have written each f
    total = int(choices.sum())
    e = np.fromiter(chain.from_iterable(e * len(f) for e, f in sides), dtype=np.int64, count=total)
    f = np.repeat(np.fromiter(chain.from_iterable(f for _, f in sides), dtype=np.int64, count=len(choices)), choices)
    keys, cells = np.unique(e * len(written.ids) + f, return_inverse=True)
    starts = np.cumsum(choices) - choices
    owner = keys // len(written.ids)
    table = np.ones(len(keys))
    for _ in range(rounds):
        p = table[cells]
        p /= np.repeat(np.add.reduceat(p, starts), choices)  # who wrote it, in each sentence
        counts = np.bincount(cells, p, len(keys))
        table = counts / np.bincount(owner, counts)[owner]
    return IBM1(given, written, keys, table)
