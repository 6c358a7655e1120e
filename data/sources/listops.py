"""ListOps: nested operators on digits, whose value has to be told from all of the sequence (Nangia and Bowman 2018), as
long as in the Long Range Arena (Tay et al. 2020, section 2.2.1). Generated.

`[MAX 4 3 [MIN 2 3 ] 1 0 ]` has the value 4. Operators: MIN, MAX, MED (median, rounded down), SM (sum modulo 10). A symbol
is a digit, an operator with its opening bracket, or a closing bracket; there are no other brackets.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.long import Document, Generated

OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
NAMES = (*map(str, range(10)), *OPERATORS, END)
"""What the symbols stand for."""
NUMBERS = {name: number for number, name in enumerate(NAMES)}
NESTED = 0.25
"""Chance of an argument to be an expression, where it may be one, as in the released generator of the Arena."""


class TooLong(Exception):
    """An expression grew beyond the limit: drawing the rest of it would be in vain."""


def draw(rng: random.Random, depth: int, arguments: int, room: int) -> tuple[list[int], int]:
    """An expression of at most `room` symbols, a tree of at most `depth` levels, of operators with 2 to `arguments`
    arguments: its symbols and its value. Raises TooLong."""
    operator = rng.choice(tuple(OPERATORS))
    symbols, values = [NUMBERS[operator]], []
    for _ in range(rng.randint(2, arguments)):
        if depth > 2 and rng.random() < NESTED:
            inner, value = draw(rng, depth - 1, arguments, room - len(symbols) - 1)
            symbols += inner
        else:
            value = rng.randrange(10)
            symbols.append(value)
        if len(symbols) >= room:
            raise TooLong
        values.append(value)
    return [*symbols, NUMBERS[END]], OPERATORS[operator](values)


def spelled(text: bytes) -> str:
    """An expression as text."""
    return " ".join(NAMES[symbol] for symbol in text)


@dataclass(frozen=True)
class ListOps(Generated):
    """Expressions of `shortest` to `longest` symbols, trees of at most `depth` levels (the last one of digits alone, as the
    Arena counts), with at most `arguments` arguments.

    train, dev and test are numbers of expressions; none occurs twice. They depend on `seed` (of the data, not of
    training). Lengths and values are as they come: an outermost MIN makes 0 likely, MAX 9.
    """

    shortest: int
    longest: int
    train: int
    dev: int
    test: int
    depth: int = 10
    arguments: int = 10
    seed: int = 0
    domain = "nested operators on digits"
    symbols = len(NAMES)
    classes = tuple("0123456789")
    paired = False

    def __post_init__(self) -> None:
        if not 4 <= self.shortest <= self.longest or self.depth < 2 or self.arguments < 2:
            raise ValueError(f"listops: got {self}, expected 4 <= shortest <= longest, depth >= 2, arguments >= 2")
        most = _longest(self.depth, self.arguments, self.shortest)
        if most < self.shortest:
            raise ValueError(
                f"listops: got shortest {self.shortest}, expected at most {most}: {self} makes none longer"
            )

    @property
    def size_of_test(self) -> tuple[int, int]:
        return self.test, self.test * (self.shortest + self.longest) // 2

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        rng = random.Random(f"listops/{self.seed}")
        seen: set[bytes] = set()
        splits: dict[str, Iterable[Document]] = {}
        for split, n in {"test": self.test, "dev": self.dev, "train": self.train}.items():
            splits[split] = [self.document(f"{split} {i + 1}", rng, seen) for i in range(n)]
            count(counts, split, "read", n)
        return splits

    def document(self, name: str, rng: random.Random, seen: set[bytes]) -> Document:
        """One that was not seen yet. Raises ValueError where it is hard to find one: there are not enough."""
        for _ in range(100_000):
            try:
                symbols, value = draw(rng, self.depth, self.arguments, self.longest)
            except TooLong:
                continue
            if len(symbols) >= self.shortest and (text := bytes(symbols)) not in seen:
                seen.add(text)
                return Document(name, name, text, value)
        raise ValueError(f"listops: got {len(seen)} expressions, expected more: hardly any others are like {self}")


def _longest(depth: int, arguments: int, enough: int) -> int:
    """Symbols of the longest expression; not exact beyond `enough`."""
    size = 1
    for _ in range(depth - 1):
        size = 2 + arguments * size
        if size > enough:
            break
    return size
