from dataclasses import replace

import pytest

from data.sources.base import Context
from data.sources.toy import Toy

TOY = Toy(words=20, shortest=3, longest=8, longest_long=14, train=500, dev=40, test=50, test_long=60)
CONTEXT = Context(None, "en", "fr")  # type: ignore[arg-type]


def made(source: Toy) -> dict[str, list]:
    return {split: list(pairs) for split, pairs in source.pairs(CONTEXT, {}).items()}


SPLITS = made(TOY)


def test_sizes_and_lengths():
    assert {split: len(pairs) for split, pairs in SPLITS.items()} == {
        "train": 500,
        "dev": 40,
        "test": 50,
        "test_long": 60,
    }
    for split, pairs in SPLITS.items():
        lengths = {len(pair.source.split()) for pair in pairs}
        assert lengths == (set(range(9, 15)) if split == "test_long" else set(range(3, 9)))


def test_the_target_is_the_source_word_by_word_backwards():
    """One table for all splits, found from the aligned words: word j belongs to the j-th from the end."""
    table: dict[str, set[str]] = {}
    for pair in (pair for pairs in SPLITS.values() for pair in pairs):
        for a, b in zip(pair.source.split(), reversed(pair.target.split()), strict=True):
            table.setdefault(a, set()).add(b)
    assert len(table) == 20
    assert all(len(words) == 1 for words in table.values())
    assert len(set.union(*table.values())) == 20
    assert not set.union(*table.values()) & set(table)


def test_no_source_occurs_twice():
    sources = [pair.source for pairs in SPLITS.values() for pair in pairs]
    assert len(set(sources)) == len(sources) == 650
    assert len({pair.id for pairs in SPLITS.values() for pair in pairs}) == 650


def test_no_source_occurs_twice_where_there_are_few():
    """3 words make 117 sentences of 2 to 4; 40 drawn at random would repeat some."""
    small = made(Toy(words=3, shortest=2, longest=4, longest_long=6, train=30, dev=5, test=5, test_long=5))
    sources = [pair.source for pairs in small.values() for pair in pairs]
    assert len(set(sources)) == len(sources) == 45


def test_the_seed_decides():
    assert made(TOY) == SPLITS
    assert made(replace(TOY, seed=1))["train"][0] != SPLITS["train"][0]


@pytest.mark.parametrize("change", [{"words": 1}, {"shortest": 9}, {"longest_long": 8}, {"shortest": 0}])
def test_nonsense_is_refused(change):
    with pytest.raises(ValueError, match="expected words >= 2 and 1 <= shortest <= longest < longest_long"):
        replace(TOY, **change)


def test_more_pairs_than_there_are_sentences_are_refused():
    with pytest.raises(ValueError, match="590 different pairs do not fit: 2 words make only 256 sentences of 8"):
        replace(TOY, words=2)
