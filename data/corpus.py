"""A prepared data set in memory: vocabularies, and every split as ids."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray

from data.encoded import Encoded, Ragged, encode
from data.fetch import read_manifest
from data.pairs import Counts, Example, count, in_share
from data.prepare import COLUMNS, load
from data.vocab import Vocab

ROWS_AT_ONCE = 100_000
SIDES = ("source_tokens", "target_tokens")


@dataclass(frozen=True)
class Split:
    """`rows[i]` is the row of the stored split that position i stands for; `encoded` has the same order."""

    stored: Dataset
    rows: NDArray[np.int64]
    encoded: Encoded

    def examples(self) -> list[Example]:
        columns = self.stored.select(self.rows)[:]
        return [Example(*row) for row in zip(*(columns[column] for column in COLUMNS), strict=True)]


@dataclass(frozen=True)
class Corpus:
    source_vocab: Vocab
    target_vocab: Vocab
    splits: dict[str, Split]
    counts: Counts
    """Those of the preparation, and for train what was left out at loading and how many pairs are `used`."""
    manifest: dict[str, Any]


def load_corpus(
    folder: Path,
    vocab_sizes: tuple[int, int],
    max_words: int | None,
    train_share: float,
    subwords: tuple[Vocab, Vocab] | None = None,
) -> Corpus:
    """Read a prepared folder. Vocabularies, unless they are `subwords`, come from the whole train split (its share),
    before the length limit.

    Only train is limited, in length and share; both are counted. Raises ValueError if nothing is left of it.
    """
    manifest = read_manifest(folder)
    stored = load(folder)
    shared = share_of(stored["train"], train_share)
    source_vocab, target_vocab = subwords or (
        Vocab.from_counts(word_counts(stored["train"], side, shared), size)
        for side, size in zip(SIDES, vocab_sizes, strict=True)
    )
    splits = {}
    for split, data in stored.items():
        keep = (shared, max_words) if split == "train" else None
        splits[split] = Split(data, *encode_rows(data, source_vocab, target_vocab, keep))
    train = splits["train"]
    counts: Counts = manifest["counts"]
    count(counts, "train", "outside train_share", int((~shared).sum()))
    if max_words is not None:
        count(counts, "train", f"over {max_words} words", int(shared.sum()) - len(train.rows))
    count(counts, "train", "used", len(train.rows))
    if not len(train.rows):
        raise ValueError(f"{folder}: no training pair left of {len(shared)}; got data.max_words={max_words}")
    return Corpus(source_vocab, target_vocab, splits, counts, manifest)


def share_of(data: Dataset, share: float) -> NDArray[np.bool_]:
    """Which rows belong to the first `share` of the documents."""
    if share == 1:
        return np.ones(len(data), dtype=bool)
    inside = {cluster: in_share(cluster, share) for cluster in data.unique("cluster")}
    return np.fromiter((inside[cluster] for cluster in data["cluster"]), dtype=bool, count=len(data))


def word_counts(data: Dataset, column: str, rows: NDArray[np.bool_]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for tokens, start in token_lists(data, column):
        inside = tokens.filter(pa.array(rows[start : start + len(tokens)]))
        for entry in inside.flatten().value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts


def encode_rows(
    data: Dataset, source_vocab: Vocab, target_vocab: Vocab, keep: tuple[NDArray[np.bool_], int | None] | None
) -> tuple[NDArray[np.int64], Encoded]:
    """Ids of all rows, or of those that are marked in `keep` and have at most so many words on both sides."""
    rows: list[NDArray[np.int64]] = []
    parts: tuple[list[Ragged], list[Ragged]] = [], []
    lists = zip(*(token_lists(data, side) for side in SIDES), strict=True)
    for (source, start), (target, _) in lists:
        encoded = encode(source, source_vocab), encode(target, target_vocab)
        chosen = np.ones(len(source), dtype=bool)
        if keep:
            shared, max_words = keep
            chosen = shared[start : start + len(source)]
            if max_words is not None:
                words = (side.value_lengths().to_numpy(zero_copy_only=False) for side in (source, target))
                chosen = chosen & (np.maximum(*words) <= max_words)
        places = np.flatnonzero(chosen)
        rows.append(start + places)
        for part, side in zip(parts, encoded, strict=True):
            part.append(side.select(places))
    return np.concatenate(rows), Encoded(*map(Ragged.concatenate, parts))


def token_lists(data: Dataset, column: str) -> Iterator[tuple[pa.ListArray, int]]:
    """A column in pieces, with the row that each piece starts at."""
    start = 0
    for table in data.select_columns(column).with_format("arrow").iter(batch_size=ROWS_AT_ONCE):
        tokens = cast(pa.Table, table)[column].combine_chunks()
        yield tokens, start
        start += len(tokens)
