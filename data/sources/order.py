"""Generated sequences that ask for the order of words: which of two came first, and whom a pronoun means."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from data.sources.long import Document
from data.sources.recall import Asked

Question = Literal["first", "more"]


@dataclass(frozen=True, kw_only=True)
class _Answered(Asked):
    """`length` symbols, the last of which is the answer."""

    length: int

    @property
    def longest(self) -> int:
        return self.length

    def scored(self, symbols: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """The last symbol, which is the answer."""
        return np.arange(len(symbols)) == len(symbols) - 1


@dataclass(frozen=True, kw_only=True)
class Order(_Answered):
    """`length` symbols: two that matter, a (0) and b (1), among others of an alphabet of `letters`.

    question: first: a and b stand once each, and the class says which is first; more: there are `odd` of both together, and
    the class says which is more often. The classes are as frequent as each other, and with `first` as a bag of symbols all
    sequences of both classes are alike. answered: the last symbol is the class, for models that write it.
    """

    letters: int
    question: Question = "first"
    odd: int = 5
    answered: bool = False
    classes = ("a", "b")
    domain = "random symbols, two of which matter"

    def __post_init__(self) -> None:
        if self.question not in get_args(Question):
            raise ValueError(f"order.question: got {self.question!r}, expected one of {', '.join(get_args(Question))}")
        if not 3 <= self.letters <= 256 or not self.odd % 2 or self.length < self.matter + self.answered:
            raise ValueError(
                f"order: got {self}, expected 3 to 256 letters, an odd number of those that matter, and room for them"
            )

    @property
    def symbols(self) -> int:
        return self.letters

    @property
    def matter(self) -> int:
        return 2 if self.question == "first" else self.odd

    def document(self, name: str) -> Document:
        rng = random.Random(f"order/{self.seed}/{name}")
        room, answer = self.length - self.answered, rng.randrange(2)
        text = rng.choices(range(2, self.letters), k=room)
        places = sorted(rng.sample(range(room), self.matter))
        of_answer = 1 if self.question == "first" else rng.randint(self.odd // 2 + 1, self.odd)
        shown = [answer] * of_answer + [1 - answer] * (self.matter - of_answer)
        if self.question == "more":
            rng.shuffle(shown)
        for place, symbol in zip(places, shown, strict=True):
            text[place] = symbol
        return Document(name, name, bytes([*text, answer] if self.answered else text), answer)


@dataclass(frozen=True, kw_only=True)
class Referent(_Answered):
    """Sentences such as "the trophy did not fit in the case as it was too large": two nouns, a predicate, and the noun that is
    meant, which is scored.

    `nouns` nouns, half of the `predicates` say something of the first of two, half of the second; `length` symbols in all,
    the others are words of `fillers` kinds between and around them. Which of the two is meant is in no bag of these symbols:
    the nouns are drawn alike for both places.
    """

    nouns: int
    predicates: int
    fillers: int
    classes = ("a sentence",)
    domain = "random nouns and a predicate of one of them"

    def __post_init__(self) -> None:
        if self.nouns < 2 or self.predicates < 2 or self.predicates % 2 or self.fillers < 1 or self.symbols > 256:
            raise ValueError(
                f"referent: got {self}, expected 2 nouns or more, an even number of predicates, fillers, and 256 in all"
            )
        if self.length < 4:
            raise ValueError(
                f"referent.length: got {self.length}, expected 4 or more: two nouns, a predicate, the answer"
            )

    @property
    def symbols(self) -> int:
        return self.nouns + self.predicates + self.fillers

    def document(self, name: str) -> Document:
        rng = random.Random(f"referent/{self.seed}/{name}")
        two = rng.sample(range(self.nouns), 2)
        predicate = rng.randrange(self.predicates)
        text = rng.choices(range(self.nouns + self.predicates, self.symbols), k=self.length)
        for place, noun in zip(sorted(rng.sample(range(self.length - 2), 2)), two, strict=True):
            text[place] = noun
        text[-2:] = [self.nouns + predicate, two[self.meant(predicate)]]
        return Document(name, name, bytes(text), 0)

    def meant(self, predicate: int) -> int:
        """0: the first of the two nouns; 1: the second."""
        return int(predicate >= self.predicates // 2)

    def places(self, symbols: Sequence[int]) -> tuple[int, int]:
        """Where the noun that is meant stands, and where the other one, of a sentence's symbols."""
        first, second = (place for place, symbol in enumerate(symbols[:-2]) if symbol < self.nouns)
        return (second, first) if self.meant(symbols[-2] - self.nouns) else (first, second)
