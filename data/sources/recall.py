"""Generated sequences whose second half asks for what stood in the first: a copy of it, or values by their keys.

How much a model can carry from one half to the other is what such a sequence shows.
"""

import random
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.pairs import Counts
from data.sources.base import Context
from data.sources.long import Document, Generated, numbered


@dataclass(frozen=True, kw_only=True)
class Asked(Generated):
    """train, dev and test are numbers of sequences. They depend on `seed` (of the data, not of training)."""

    train: int
    dev: int
    test: int
    seed: int = 0
    classes = ("a sequence",)
    paired = False

    @property
    @abstractmethod
    def longest(self) -> int: ...

    @abstractmethod
    def document(self, name: str) -> Document:
        """The sequence of this name, which all of it depends on."""

    @property
    def size_of_test(self) -> tuple[int, int]:
        return self.test, self.test * self.longest

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        return numbered(self.train, self.dev, self.test, counts, self.document)


@dataclass(frozen=True, kw_only=True)
class _Halves(Asked):
    """The second half is asked for."""

    def document(self, name: str) -> Document:
        text, length = self.text(random.Random(f"{type(self).__name__}/{self.seed}/{name}"))
        return Document(f"{name} of {length}", name, bytes(text), 0, length=length)

    @abstractmethod
    def text(self, rng: random.Random) -> tuple[Sequence[int], int]:
        """The symbols, and what results are reported by."""


@dataclass(frozen=True, kw_only=True)
class Copy(_Halves):
    """`shortest` to `most` random symbols of an alphabet of `letters`, a separator, and the same again, which is scored
    (Katharopoulos et al. 2020, section 4.1). Reported by their number."""

    letters: int
    shortest: int
    most: int
    domain = "random symbols, twice"

    def __post_init__(self) -> None:
        if not (1 <= self.shortest <= self.most and 2 <= self.letters <= 255):
            raise ValueError(f"copy: got {self}, expected 1 <= shortest <= most, and 2 to 255 letters")

    @property
    def symbols(self) -> int:
        return self.letters + 1

    @property
    def longest(self) -> int:
        return 2 * self.most + 1

    def text(self, rng: random.Random) -> tuple[Sequence[int], int]:
        drawn = rng.choices(range(self.letters), k=rng.randint(self.shortest, self.most))
        return [*drawn, self.letters, *drawn], len(drawn)

    def scored(self, symbols: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """What is behind the separator."""
        return np.arange(len(symbols)) > len(symbols) // 2


@dataclass(frozen=True, kw_only=True)
class Recall(_Halves):
    """Pairs of a key and its value, then each key again in another order, and its value, which is scored: associative recall
    with many questions (Arora et al. 2023, section 3). The number of pairs is one of `pairs`, drawn alike, and what results
    are reported by. No key comes twice in a sequence; `keys` and `values` are sizes of their alphabets."""

    keys: int
    values: int
    pairs: Sequence[int]
    domain = "random keys and values"

    def __post_init__(self) -> None:
        if not self.pairs or not 1 <= min(self.pairs) <= max(self.pairs) <= self.keys:
            raise ValueError(f"recall: got pairs {list(self.pairs)}, expected numbers from 1 to the {self.keys} keys")
        if self.values < 2 or self.symbols > 256:
            raise ValueError(
                f"recall: got {self.keys} keys and {self.values} values, expected 2 values or more, 256 in all"
            )

    @property
    def symbols(self) -> int:
        return self.keys + self.values

    @property
    def longest(self) -> int:
        return 4 * max(self.pairs)

    def text(self, rng: random.Random) -> tuple[Sequence[int], int]:
        keys = rng.sample(range(self.keys), rng.choice(list(self.pairs)))
        value = {key: self.keys + rng.randrange(self.values) for key in keys}
        asked = [*keys, *rng.sample(keys, len(keys))]
        return [symbol for key in asked for symbol in (key, value[key])], len(keys)

    def scored(self, symbols: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Values of the second half."""
        place = np.arange(len(symbols))
        return (place >= len(symbols) // 2) & (place % 2 == 1)
