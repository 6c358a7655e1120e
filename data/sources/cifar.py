"""CIFAR-10 in grey, row by row: the image task of the Long Range Arena (Tay et al. 2020, section 2.2.4)."""

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.fetch import FetchError
from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.long import Document, Pictures
from data.sources.raw import Raw

PIXELS = 32 * 32
GREY = np.array([0.299, 0.587, 0.114])
"""Shares of red, green and blue (ITU-R BT.601)."""
MEMBERS = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
DEV = 5_000


def read_pictures(archive: Path, names: Iterable[str]) -> NDArray[np.uint8]:
    """(pictures, 1025): label and grey values. Raises FetchError where the archive is of another form."""
    parts = []
    try:
        with tarfile.open(archive) as tar:
            for name in names:
                member = tar.extractfile(f"cifar-10-batches-bin/{name}")
                assert member is not None
                parts.append(np.frombuffer(member.read(), dtype=np.uint8).reshape(-1, 1 + 3 * PIXELS))
    except (KeyError, tarfile.TarError, ValueError, AssertionError, OSError, EOFError) as error:
        raise FetchError(f"{archive}: cannot read {', '.join(names)} from it ({error!r})") from None
    rows = np.concatenate(parts)
    grey = np.einsum("ncp,c->np", rows[:, 1:].reshape(-1, 3, PIXELS).astype(np.float64), GREY)
    return np.concatenate([rows[:, :1], np.round(grey).astype(np.uint8)], axis=1)


@dataclass(frozen=True)
class Cifar10(Raw, Pictures):
    """50,000 pictures, of which the last 5,000 are dev, and 10,000 to test on."""

    key = "cifar-10-binary"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    download_bytes = 170_052_171
    unpacked_bytes = 70_000_000
    generated, packaged = "toy_documents", "digits"
    licence = "not stated (Krizhevsky 2009); research use"
    domain = "photographs of 10 kinds of things, 32 x 32 grey values"
    symbols = 256
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    paired = False
    size_of_test = 10_000, 10_000 * PIXELS
    longest = PIXELS

    def check(self, file: Path) -> None:
        read_pictures(file, MEMBERS["test"])

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        self.fetch(context)
        train, test = (read_pictures(self.file(context), MEMBERS[split]) for split in ("train", "test"))
        splits: dict[str, Iterable[Document]] = {}
        for split, rows in (("train", train[:-DEV]), ("dev", train[-DEV:]), ("test", test)):
            names = [f"{split} {i + 1}" for i in range(len(rows))]
            count(counts, split, "read", len(rows))
            splits[split] = [
                Document(name, name, row[1:].tobytes(), int(row[0])) for name, row in zip(names, rows, strict=True)
            ]
        return splits
