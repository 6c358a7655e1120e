import hashlib

import pytest

from data.pairs import (
    Pair,
    counted_overlap,
    describe,
    directed,
    english_first,
    in_share,
    ngrams,
    note_lengths,
    plausible,
    split_of,
    splits_without_quotes,
    without_quotes,
)
from data.sources.base import Context


def pair(source, target="", name="p"):
    return Pair(name, "c", source, target)


def test_the_split_is_read_off_a_hash_that_every_machine_agrees_on():
    for name in ("GEN 1", "PSA 150", "libfoo", "Über"):
        place = int(hashlib.sha256(f"split/{name}".encode()).hexdigest()[:16], 16) % 100
        expected = "dev" if place in range(6, 10) else "test" if place < 16 else "train"
        assert split_of(name) == expected


def test_documents_are_split_by_hash_in_about_the_shares_asked_for():
    splits = [split_of(f"chapter {i}") for i in range(5000)]
    assert abs(splits.count("test") / 5000 - 0.12) < 0.02  # over four standard deviations
    assert abs(splits.count("dev") / 5000 - 0.04) < 0.015


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_of_documents_lies_inside_a_larger_one(share):
    inside = [in_share(f"d{i}", share) for i in range(5000)]
    assert abs(sum(inside) / 5000 - share) < 0.03
    assert all(in_share(f"d{i}", share + 0.1) for i in range(5000) if inside[i])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((0, 5), False),
        ((1, 10), True),  # short pairs: any ratio
        ((6, 6), True),
        ((20, 9), True),  # 22 / 11 = 2.0
        ((20, 7), False),  # 22 / 9 = 2.4
        ((7, 18), True),  # 9 / 20 = 0.45
        ((7, 19), False),  # 9 / 21 = 0.43
        ((100, 100), True),
        ((101, 100), False),
        ((100, 130), True),
        ((100, 131), False),
    ],
)
def test_plausible_lengths(words, expected):
    assert plausible("w " * words[0], "w " * words[1]) is expected


def test_ngrams():
    assert ngrams("A b, c d e F.") == {("a", "b", "c", "d", "e"), ("b", "c", "d", "e", "f")}
    assert ngrams("Only three words") == {("only", "three", "words")}


def test_quotes_of_train_are_left_out_and_counted():
    """9 words have 5 five-grams. The first shares 3 of 5 with train, the second 2 of 5."""
    train = [pair("x a b c d e f g x"), pair("nothing else")]
    counts = {}
    held_out = {"dev": [], "test": [pair("a b c d e f g h i"), pair("b b c d e f g h i"), pair("nothing else")]}
    kept = without_quotes(held_out, train, counts)
    assert [p.source for p in kept["test"]] == ["b b c d e f g h i"]
    assert counts["test"]["quoting train"] == 2


def test_splits_hold_no_pair_twice_and_no_quote():
    counts = {}
    made = [("train", pair("one", "un")), ("train", pair("one", "un")), ("train", pair("one", "une"))]
    made += [("test", pair("one", "x")), ("test", pair("two", "deux"))]
    splits = splits_without_quotes(made, Context(None, "en", "fr"), counts)  # type: ignore[arg-type]
    assert {split: [(p.source, p.target) for p in pairs] for split, pairs in splits.items()} == {
        "train": [("one", "un"), ("one", "une")],
        "dev": [],
        "test": [("two", "deux")],
    }
    assert counts["train"]["duplicates"] == 1


def test_pairs_made_with_english_first_are_turned_round():
    there, back = Context(None, "en", "fr"), Context(None, "fr", "en")  # type: ignore[arg-type]
    assert english_first(there) == english_first(back) == "fr"
    assert directed([pair("one", "un")], there) == [pair("one", "un")]
    assert directed([pair("one", "un")], back) == [pair("un", "one")]
    with pytest.raises(ValueError, match="got de to fr, expected English on one side"):
        english_first(Context(None, "de", "fr"))  # type: ignore[arg-type]


def test_a_given_test_set_is_scanned_but_kept_whole():
    """What is misaligned or known from training is only counted: the set is a standard one."""
    good, bad = pair("w " * 20, "w " * 20), pair("w " * 20, "w " * 3)
    held_out = {"dev": [good], "test": [good, bad, pair("known"), pair("known")]}
    counts = {}
    note_lengths(held_out, counts)
    assert list(counted_overlap([pair("new"), pair("known"), pair("known")], held_out, counts)) == [
        pair("new"),
        pair("known"),
        pair("known"),
    ]
    assert counts["test"] == {"implausible lengths (kept)": 3, "source also in train (kept)": 2}
    assert counts["dev"] == {"implausible lengths (kept)": 0, "source also in train (kept)": 0}


def test_counts_in_a_line():
    train = {"used": 70, "kept": 1100, "over 9 words": 1030, "too long": 0, "read": 1200, "duplicates": 100}
    assert describe({"test": {"kept": 3}, "train": train}) == (
        "train: 1,200 read, 100 duplicates, 1,100 kept, 1,030 over 9 words, 70 used; test: 3 kept"
    )
