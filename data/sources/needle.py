"""Generated documents whose label stands at one place: behind the only marker, so far from the start, among random
symbols. What reaches CLS from there, and from how far, is what such a document shows.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data.pairs import Counts
from data.sources.base import Context
from data.sources.long import Document, Generated, numbered

VALUES = 10


@dataclass(frozen=True)
class Needle(Generated):
    """Documents of `shortest` to `longest` symbols of an alphabet of `symbols`: values 0 to 9, others, and the marker,
    the last one. The marker stands once, `nearest` to `farthest` places behind the start (CLS is at 0, the first symbol
    at 1), drawn alike, and the value right after it is the label. `decoys`: values stand elsewhere too, so that the
    marker has to be found; else the value is the only one.

    `paired`: two such documents, the label says whether their values are the same (1), which half of them are.
    An example is reported by that distance (of a pair, the longer one). train, dev and test are numbers of examples.
    They depend on `seed` (of the data, not of training).
    """

    symbols: int
    shortest: int
    longest: int
    nearest: int
    farthest: int
    train: int
    dev: int
    test: int
    decoys: bool = True
    paired: bool = False
    seed: int = 0
    domain = "random symbols, one of which is the label"

    def __post_init__(self) -> None:
        if not VALUES + 2 <= self.symbols <= 256:
            raise ValueError(f"needle: got {self.symbols} symbols, expected {VALUES + 2} to 256")
        if not 1 <= self.nearest <= self.farthest < self.shortest <= self.longest:
            raise ValueError(f"needle: got {self}, expected 1 <= nearest <= farthest < shortest <= longest")

    @property
    def classes(self) -> Sequence[str]:
        return ("different", "same") if self.paired else tuple(map(str, range(VALUES)))

    @property
    def size_of_test(self) -> tuple[int, int]:
        return self.test, self.test * (1 + self.paired) * (self.shortest + self.longest) // 2

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        return numbered(self.train, self.dev, self.test, counts, self.document)

    def document(self, name: str) -> Document:
        rng = random.Random(f"needle/{self.seed}/{name}")
        value = rng.randrange(VALUES)
        text, distance = self.text(value, rng)
        if not self.paired:
            return Document(f"{name} at {distance}", name, text, value, length=distance)
        same = rng.random() < 0.5
        other, farther = self.text(value if same else (value + rng.randrange(1, VALUES)) % VALUES, rng)
        distance = max(distance, farther)
        return Document(f"{name} at {distance}", name, text, int(same), other, distance)

    def text(self, value: int, rng: random.Random) -> tuple[bytes, int]:
        """A document and the distance of its marker from CLS."""
        marker = self.symbols - 1
        drawn = rng.choices(range(0 if self.decoys else VALUES, marker), k=rng.randint(self.shortest, self.longest))
        distance = rng.randint(self.nearest, self.farthest)
        drawn[distance - 1 : distance + 1] = [marker, value]
        return bytes(drawn), distance
