"""Pairs of chapters, from a small database in a wheel of our own."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.pairs import split_of
from data.sources.long import place
from data.sources.matching import Matching, chapters_of, pairs_of, partners
from data.store import load, prepare_documents
from tests.data.test_bible import wheel as wheel  # noqa: PLC0414 (a fixture)


def test_chapters_by_hand():
    verses = {(1, 2, 1): "Thus", (1, 1, 2): "and the earth.", (1, 1, 1): "In the beginning", (40, 1, 1): "The book"}
    expected = {"GEN 1": "In the beginning and the earth.", "GEN 2": "Thus", "MAT 1": "The book"}
    assert chapters_of(verses) == expected


def test_partners_by_hand():
    """Neighbours in length inside a book; of those left over, neighbours in length; the last one its nearest."""
    lengths = {"GEN 1": 10, "GEN 2": 50, "GEN 3": 12, "GEN 4": 55, "GEN 5": 90, "EXO 1": 30, "LEV 1": 31}
    counts = {}
    found = partners(lengths, counts, "test")
    assert found == {
        "GEN 1": "GEN 3",
        "GEN 3": "GEN 1",
        "GEN 2": "GEN 4",
        "GEN 4": "GEN 2",
        "EXO 1": "LEV 1",
        "LEV 1": "EXO 1",
        "GEN 5": "GEN 4",
    }
    assert counts == {"test": {"chapters without a partner in their book": 3}}


@given(st.dictionaries(st.tuples(st.sampled_from("ABC"), st.integers(1, 9)), st.integers(1, 100), min_size=2))
def test_all_have_a_partner_and_almost_all_share_it(lengths):
    named = {f"{book} {chapter}": n for (book, chapter), n in lengths.items()}
    found = partners(named, {}, "test")
    assert found.keys() == named.keys() and all(a != b for a, b in found.items())
    assert sum(found[b] != a for a, b in found.items()) == len(named) % 2


VERSIONS = {v: {f"GEN {i}": f"{v}{i} " * (i + 4) for i in range(1, 7)} for v in ("x", "y", "z")}


def test_pairs_of_chapters():
    counts = {}
    pairs = pairs_of(list(VERSIONS["x"]), VERSIONS, "dev", counts)
    assert len(pairs) == len({pair.id for pair in pairs}) == 6 * 3 * 2 == counts["dev"]["read"]
    assert sum(pair.label for pair in pairs) == 18
    beside = Counter()
    for pair in pairs:
        assert pair.other is not None and len(pair.text) == len(pair.other)  # lengths tell nothing
        (a, i), (b, j) = ((side[:1], side[1:2]) for side in (pair.text, pair.other))
        assert a != b and pair.label == (i == j)
        beside[i] += pair.label == 0
        beside[j] += pair.label == 0
    assert set(beside.values()) == {6}  # each chapter in as many negatives as positives, counted on both sides
    assert {pair.text[:1] < pair.other[:1] for pair in pairs if pair.other} == {True, False}


def test_from_the_wheel_to_the_splits(wheel, tmp_path):
    where = place(tmp_path / "cache", False)
    splits = load(prepare_documents("m", Matching(["web", "kjv", "bbe"]), where))
    for split, data in splits.items():
        assert {split_of(chapter) for name in data["id"] for chapter in chapters(name)} == {split}
        assert sum(data["label"]) * 2 == len(data)
        beside = dict(chapters(name) for name, label in zip(data["id"], data["label"], strict=True) if not label)
        for name, cluster in zip(data["id"], data["cluster"], strict=True):  # the two chapters that meet are one unit
            assert cluster == min(chapters(name)[0], beside[chapters(name)[0]])


def chapters(name):
    """Both chapters of `GEN 1 web GEN 2 kjv`."""
    words = name.split()
    return " ".join(words[:2]), " ".join(words[3:5])


@pytest.mark.parametrize("english", [[], ["web"], ["web", "web"], ["web", "segond"], ["web", "nope"]])
def test_translations_that_do_not_fit_are_refused(english):
    with pytest.raises(ValueError, match="expected two or more different ones"):
        Matching(english)
