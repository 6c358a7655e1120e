"""Word links of a prepared data set: in the order of its examples, and part of its checksum."""

from dataclasses import replace

import pytest

from data.gold import FILE, Gold, gold_links
from data.pairs import Aligned, Example, Pair
from data.sources.toy import Toy


def aligned(name: str, links: set, sure: set) -> Aligned:
    source, target = ["A.", "b"], [f"{name}!", "y", "z"]
    return Aligned(name, "c", "raw a", "raw x", source, target, frozenset(sure), frozenset(links))


TRAIN = [Example("t1", "t", "raw", "raw", ["a,b"], ["c"]), Pair("t2", "t", "Say: yes.", "Oui.")]
DEV = [aligned("d1", {(0, 0)}, set())]
TEST = [aligned("e1", {(1, 2), (0, 0)}, {(0, 0)}), aligned("e2", set(), set()), aligned("e3", {(1, 0)}, {(1, 0)})]


def test_links_are_those_of_the_examples_in_order(make_data, listed):
    data = make_data(listed({"train": TRAIN, "dev": DEV, "test": TEST}))
    expected = {"e1": ({(0, 0)}, {(0, 0), (1, 2)}), "e2": (set(), set()), "e3": ({(1, 0)}, {(1, 0)})}
    links = gold_links(data, "test")
    assert links == [Gold(*map(frozenset, expected[example.id])) for example in data.examples("test")]
    assert gold_links(data, "dev") == [Gold(frozenset(), frozenset({(0, 0)}))]
    with pytest.raises(ValueError, match=r"no word links for train.*splits with links: \['dev', 'test'\]"):
        gold_links(data, "train")


def test_tokens_that_a_source_knows_are_kept_as_they_are(make_data, listed):
    data = make_data(listed({"train": TRAIN, "dev": DEV, "test": TEST}))
    assert data.examples("train")[0] == TRAIN[0]  # Moses would take the comma apart
    assert data.examples("train")[1].source_tokens == ["Say", ":", "yes", "."]
    assert data.examples("test")[0].target_tokens == ["e1!", "y", "z"]


def test_links_count_in_the_checksum(make_data, listed):
    splits = {"train": TRAIN, "dev": DEV, "test": TEST}
    first = make_data(listed(splits), name="first")
    same = make_data(listed(splits), name="same")
    other = make_data(listed(splits | {"test": [TEST[0], TEST[1], replace(TEST[2], sure=frozenset())]}), name="other")
    assert first.checksum == same.checksum != other.checksum


def test_a_data_set_without_links_says_so(make_data, listed):
    plain = [Pair("1", "c", "one", "un")]
    data = make_data(listed({"train": plain, "dev": plain, "test": plain}))
    assert not (data.folder / FILE).exists()
    with pytest.raises(ValueError, match=r"no word links for test.*splits with links: \[\]"):
        gold_links(data, "test")


def test_links_outside_the_words_are_refused():
    with pytest.raises(ValueError, match=r"x: got links \[\(2, 0\)\] outside 2 x 3 words"):
        aligned("x", {(0, 0), (2, 0)}, set())
    with pytest.raises(ValueError, match=r"got links \[\(0, 3\)\] outside"):
        aligned("x", {(0, 3)}, set())
    with pytest.raises(ValueError, match="1 sure links that are not possible"):
        aligned("x", {(0, 0)}, {(1, 1)})


def test_all_pairs_of_a_split_have_links_or_none(make_data, listed):
    with pytest.raises(AssertionError, match="all pairs of a split"):
        make_data(listed({"train": TRAIN, "dev": DEV, "test": [*TEST, Pair("e4", "c", "one", "un")]}))


def test_the_toy_set_knows_its_links(make_data):
    data = make_data(Toy(words=9, shortest=2, longest=4, longest_long=6, train=20, dev=3, test=4, test_long=2))
    table: dict[str, set[str]] = {}
    for split in ("dev", "test", "test_long"):
        for example, gold in zip(data.examples(split), gold_links(data, split), strict=True):
            assert gold.sure == gold.possible and len(gold.sure) == len(example.source_tokens)
            for i, j in gold.sure:
                table.setdefault(example.source_tokens[i], set()).add(example.target_tokens[j])
    assert len(table) == 9 and all(len(words) == 1 for words in table.values())
