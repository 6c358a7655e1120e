"""Generated pairs: each word is replaced through a table, and the order reversed."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from data.fetch import Download
from data.pairs import Aligned, Counts, Pair, count
from data.sources.base import Context

ONSETS, VOWELS = "bdfgklmnprstvz", "aeiou"


def word_list(n: int, rng: random.Random) -> list[str]:
    """`n` different made-up words of two or three syllables."""
    words: dict[str, None] = {}
    while len(words) < n:
        words["".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice((2, 3))))] = None
    return list(words)


def linked(name: str, source: list[str], target: list[str]) -> Aligned:
    """The pair with its word links, which are known here."""
    links = frozenset((len(source) - 1 - j, j) for j in range(len(target)))
    return Aligned(name, name, " ".join(source), " ".join(target), source, target, links, links)


@dataclass(frozen=True)
class Toy:
    """`target[j] = table[source[n - 1 - j]]`: what belongs together lies far apart, so a summary of the source in one
    vector has to hold all of it, while attention can look it up. Which word belongs to which is kept as links.

    Lengths are uniform from `shortest` to `longest` words, beyond that up to `longest_long` in test_long; words are
    uniform over `words`. The sizes are numbers of pairs. No source occurs twice, within or between splits.
    The pairs depend on `seed` (of the data, not of training) and the other settings.
    """

    words: int
    shortest: int
    longest: int
    longest_long: int
    train: int
    dev: int
    test: int
    test_long: int
    seed: int = 0
    licence = "generated, no licence needed"
    domain = "made-up words, reversed and substituted"

    def __post_init__(self) -> None:
        if not (self.words >= 2 and 1 <= self.shortest <= self.longest < self.longest_long):
            raise ValueError(f"toy: got {self}, expected words >= 2 and 1 <= shortest <= longest < longest_long")
        room = self.words**self.longest
        if self.train + self.dev + self.test > room // 2:
            raise ValueError(
                f"toy: {self.train + self.dev + self.test} different pairs do not fit: {self.words} words make only "
                f"{room} sentences of {self.longest}. Raise words or longest, or ask for fewer pairs."
            )

    def downloads(self, context: Context) -> list[Download]:
        return []

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return {}

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        rng = random.Random(f"toy/{self.seed}")
        names = word_list(2 * self.words, rng)
        source_words, target_words = names[: self.words], names[self.words :]
        table = dict(zip(source_words, target_words, strict=True))
        seen: set[str] = set()

        def make(split: str, n: int, shortest: int, longest: int) -> list[Pair]:
            made: list[Pair] = []
            while len(made) < n:
                words = rng.choices(source_words, k=rng.randint(shortest, longest))
                if (source := " ".join(words)) in seen:
                    continue
                seen.add(source)
                name = f"{split} {len(made) + 1}"
                made.append(linked(name, words, [table[word] for word in reversed(words)]))
            count(counts, split, "read", n)
            return made

        sizes = {"train": self.train, "dev": self.dev, "test": self.test}
        splits = {split: make(split, n, self.shortest, self.longest) for split, n in sizes.items()}
        return {**splits, "test_long": make("test_long", self.test_long, self.longest + 1, self.longest_long)}
