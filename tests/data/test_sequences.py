"""Sequences asked for their first half again: copies, recall, and how they are read."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.sequences import SequenceData
from data.sources.recall import Copy, Recall
from data.symbols import CLS, PAD, SPECIALS

COPY = Copy(letters=5, shortest=2, most=6, train=40, dev=7, test=11)
RECALL = Recall(keys=12, values=4, pairs=(2, 5), train=40, dev=7, test=60)


def made(source: Any) -> dict[str, list[Any]]:
    counts: dict[str, dict[str, int]] = {}
    found = {split: list(documents) for split, documents in source.documents(None, counts).items()}
    assert {split: row["read"] for split, row in counts.items()} == {"train": 40, "dev": 7, "test": source.test}
    return found


def test_a_copy_is_its_first_half_again() -> None:
    for document in itertools.chain(*made(COPY).values()):
        symbols = list(document.text)
        first, second = symbols[: len(symbols) // 2], symbols[len(symbols) // 2 + 1 :]
        assert symbols[len(first)] == 5 and first == second and max(first) < 5 and document.length == len(first)
        assert len(symbols) <= COPY.longest == 13
    assert {document.length for document in made(COPY)["train"]} == {2, 3, 4, 5, 6}


def test_what_is_behind_the_separator_is_scored_by_hand() -> None:
    symbols = np.array([3, 1, 5, 3, 1], dtype=np.uint8)
    assert COPY.scored(symbols).tolist() == [False, False, False, True, True]


def test_each_key_has_one_value_and_is_asked_once() -> None:
    lengths = set()
    for document in itertools.chain(*made(RECALL).values()):
        symbols = list(document.text)
        half = len(symbols) // 2
        pairs = dict(zip(symbols[:half:2], symbols[1:half:2], strict=True))
        assert len(pairs) == half // 2 == document.length, "no key twice"
        assert all(key < 12 <= value < 16 for key, value in pairs.items())
        asked = dict(zip(symbols[half::2], symbols[half + 1 :: 2], strict=True))
        assert asked == pairs and sorted(asked) == sorted(pairs)
        lengths.add(document.length)
    assert lengths == {2, 5} and RECALL.longest == 20
    assert any(list(d.text)[::2][:5] != list(d.text)[::2][5:] for d in made(RECALL)["test"] if d.length == 5)


def test_values_of_the_second_half_are_scored_by_hand() -> None:
    symbols = np.array([1, 12, 2, 13, 2, 13, 1, 12], dtype=np.uint8)
    assert RECALL.scored(symbols).tolist() == [False] * 5 + [True, False, True]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Copy(letters=5, shortest=7, most=6, train=1, dev=1, test=1), "shortest"),
        (lambda: Recall(keys=3, values=4, pairs=(4,), train=1, dev=1, test=1), "3 keys"),
        (lambda: Recall(keys=250, values=40, pairs=(4,), train=1, dev=1, test=1), "256"),
        (lambda: Recall(keys=3, values=4, pairs=(), train=1, dev=1, test=1), "pairs"),
    ],
)
def test_what_cannot_be_made_is_refused(make: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make()


@pytest.fixture
def data(tmp_path: Path) -> SequenceData:
    found = SequenceData("copy", COPY, batch=4, seed=1, cache=str(tmp_path))
    found.prepare()
    return found


def test_a_batch_shows_each_symbol_what_is_before_it(data: SequenceData) -> None:
    texts = [document.text for document in made(COPY)["train"]]
    for batch in itertools.islice(data.train_stream(), 10):
        assert len(batch) == 4
        for i, n in enumerate(batch.index.tolist()):
            ids = [symbol + SPECIALS for symbol in texts[n]]
            rest = [PAD] * (batch.tokens.shape[1] - len(ids))
            assert batch.tokens[i].tolist() == [CLS, *ids[:-1], *rest]
            assert batch.targets[i].tolist() == [*ids, *rest]
            asked = batch.targets[i][batch.scored[i]].tolist()
            assert asked == ids[len(ids) // 2 + 1 :] and batch.real[i].sum() == len(ids)
    assert data.vocabulary == 6 + SPECIALS and data.longest == 13


def test_an_epoch_has_every_sequence_once_and_counts_what_is_scored(data: SequenceData) -> None:
    batches = list(itertools.islice(data.train_stream(), 10))
    assert sorted(i for batch in batches for i in batch.index.tolist()) == list(range(40))
    scored = sum(int(batch.target_tokens) for batch in batches)
    assert scored == sum(document.length for document in made(COPY)["train"])
    assert data.steps_for_tokens(scored) == 10 and data.epochs(10) == 1


def test_every_scored_symbol_goes_to_its_item(data: SequenceData) -> None:
    counted = torch.zeros(11, dtype=torch.int64)
    for batch in data.eval_batches("test"):
        items = data.item_of("test", batch)
        assert len(items) == int(batch.target_tokens)
        counted += torch.bincount(items, minlength=11)
    assert counted.tolist() == [item.length for item in data.items("test")]


def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.batch: got 0"):
        SequenceData("copy", COPY, batch=0, seed=1, cache=str(tmp_path))
