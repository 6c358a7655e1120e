"""Generated text whose bytes can be told from far back: records `key:value`, each key with one value a document.

A key names its value by two letters. The first time, the value is random; from then on it is what it was, some hundred
bytes back: whoever can look there predicts it, and nothing nearer tells it.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from data.pairs import Counts
from data.sources.base import Context
from data.sources.long import Generated, Text, numbered

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class ToyBytes(Generated):
    """`records` records a document, of `keys` keys each drawn alike; a value is `value` of the first `letters` letters.

    A record is `value` + 4 bytes long, so a key comes again after keys * (value + 4) bytes on average.
    train, dev and test are numbers of documents. The text depends on `seed` (of the data, not of training).
    """

    keys: int
    value: int
    letters: int
    records: int
    train: int
    dev: int
    test: int
    seed: int = 0
    domain = "made-up records, each key with one value a document"

    def __post_init__(self) -> None:
        if not (1 <= self.keys <= len(LETTERS) ** 2 and self.value >= 1 and 2 <= self.letters <= len(LETTERS)):
            raise ValueError(f"toy_bytes: got {self}, expected 1 to 676 keys, value >= 1 and 2 to 26 letters")
        if min(self.records, self.train, self.dev, self.test) < 1:
            raise ValueError(f"toy_bytes: got {self}, expected at least one record and one document a split")

    @property
    def size_of_test(self) -> tuple[int, int]:
        return self.test, self.test * self.records * (self.value + 4)

    def texts(self, context: Context, counts: Counts) -> dict[str, Iterable[Text]]:
        return numbered(self.train, self.dev, self.test, counts, self.text)

    def text(self, name: str) -> Text:
        rng = random.Random(f"toy_bytes/{self.seed}/{name}")
        names = [a + b for a, b in rng.sample([(a, b) for a in LETTERS for b in LETTERS], self.keys)]
        values = {key: "".join(rng.choices(LETTERS[: self.letters], k=self.value)) for key in names}
        lines = [f"{key}:{values[key]}\n" for key in rng.choices(names, k=self.records)]
        return Text(name, name, "".join(lines).encode())
