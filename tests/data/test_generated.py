"""ListOps and needles: generated documents."""

import re
from collections import Counter

import pytest

from data.sources.listops import NAMES, NUMBERS, OPERATORS, ListOps, spelled
from data.sources.needle import VALUES, Needle
from tests.data.long_sources import document_data

LISTOPS = ListOps(shortest=10, longest=60, train=300, dev=50, test=50)
NEEDLE = Needle(symbols=20, shortest=40, longest=50, nearest=3, farthest=39, train=400, dev=50, test=50)


def made(source):
    counts = {}
    splits = {split: list(found) for split, found in source.documents(None, counts).items()}
    assert {split: row["read"] for split, row in counts.items()} == {
        "train": source.train,
        "dev": source.dev,
        "test": source.test,
    }
    return splits


def value_of(text: str) -> int:
    """From the inside out, by rewriting the text: another way than that of the generator."""
    while "[" in text:
        match = re.search(r"\[(\w+)((?: \d)+) \]", text)
        assert match, text
        numbers = sorted(map(int, match[2].split()))
        middle = (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) // 2
        found = {"MIN": numbers[0], "MAX": numbers[-1], "MED": middle, "SM": sum(numbers) % 10}[match[1]]
        text = text[: match.start()] + str(found) + text[match.end() :]
    return int(text)


def depth_of(text: str) -> int:
    """Levels, the digits counted."""
    level = deepest = 0
    for symbol in text.split():
        level += symbol.startswith("[") - (symbol == "]")
        deepest = max(deepest, level)
    return deepest + 1


def test_the_value_by_hand():
    """The example of Nangia and Bowman 2018 as the Arena prints it, and medians of even numbers rounded down."""
    assert value_of("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]") == 5
    assert value_of("[SM 9 8 [MAX 1 7 ] ]") == 4
    assert value_of("[MED 1 2 ]") == 1 and value_of("[MED 3 4 8 9 ]") == 6


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("[MIN", [4, 2, 9], 2),
        ("[MAX", [4, 2, 9], 9),
        ("[MED", [9, 1, 4], 4),
        ("[MED", [1, 2], 1),  # 1.5, rounded down
        ("[MED", [3, 9, 4, 8], 6),
        ("[SM", [9, 8, 7], 4),
    ],
)
def test_operators_by_hand(operator, values, expected):
    assert OPERATORS[operator](values) == expected


def test_labels_are_the_values_of_the_expressions():
    for found in made(LISTOPS).values():
        for document in found:
            text = spelled(document.text)
            assert value_of(text) == document.label
            assert 10 <= len(text.split()) <= 60 and 2 <= depth_of(text) <= 10
            inner = re.findall(r"\[\w+((?: \d)+) \]", text)
            assert all(2 <= len(arguments.split()) <= 10 for arguments in inner)


def test_expressions_use_all_that_there_is():
    splits = made(LISTOPS)
    assert set(b"".join(document.text for document in splits["train"])) == set(range(len(NAMES)))
    assert NUMBERS["0"] == 0 and NUMBERS["9"] == 9 and len(NAMES) == 15
    assert max(depth_of(spelled(document.text)) for document in splits["train"]) >= 6
    assert {document.label for document in splits["train"]} == set(range(10))


@pytest.mark.parametrize("depth", [2, 3])
def test_the_depth_is_kept(depth):
    source = ListOps(shortest=4, longest=40, train=60, dev=5, test=5, depth=depth, arguments=3)
    assert max(depth_of(spelled(d.text)) for found in made(source).values() for d in found) == depth


def test_an_operator_takes_from_two_to_the_limit():
    source = ListOps(shortest=4, longest=8, train=400, dev=5, test=5, depth=2, arguments=5)
    sizes = Counter(len(document.text) - 2 for found in made(source).values() for document in found)
    assert set(sizes) == {2, 3, 4, 5}


def test_no_expression_is_twice():
    source = ListOps(shortest=4, longest=6, train=300, dev=20, test=20, depth=2, arguments=4)
    texts = [document.text for found in made(source).values() for document in found]
    assert len(set(texts)) == len(texts) == 340


def test_too_few_expressions_are_an_error(monkeypatch):
    source = ListOps(shortest=4, longest=4, train=500, dev=5, test=5, depth=2, arguments=2)  # 400 there are
    with pytest.raises(ValueError, match="hardly any others"):
        made(source)


@pytest.mark.parametrize(
    "change",
    [{"shortest": 3}, {"shortest": 61}, {"depth": 1}, {"arguments": 1}, {"depth": 2, "shortest": 20, "longest": 90}],
)
def test_expressions_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="listops: got"):
        ListOps(**{"shortest": 10, "longest": 60, "train": 3, "dev": 1, "test": 1} | change)


def test_the_seed_makes_the_data():
    again, other = (ListOps(10, 60, 20, 5, 5, seed=seed) for seed in (0, 1))
    assert made(again) == made(ListOps(10, 60, 20, 5, 5)) != made(other)


@pytest.mark.parametrize("decoys", [True, False])
def test_the_label_stands_behind_the_marker(decoys):
    source = Needle(20, 40, 50, 3, 39, 400, 50, 50, decoys=decoys)
    splits = made(source)
    for found in splits.values():
        for document in found:
            assert document.text.count(19) == 1  # the marker
            place = document.text.index(19)
            assert document.text[place + 1] == document.label
            assert document.length == place + 1  # CLS is at 0
            assert document.id.endswith(f" at {place + 1}") and 40 <= len(document.text) <= 50
            assert sum(symbol < VALUES for symbol in document.text) > 1 or not decoys
            assert sum(symbol < VALUES for symbol in document.text) == 1 or decoys
    distances = [document.length or 0 for document in splits["train"]]
    assert min(distances) == 3 and max(distances) == 39
    assert len({document.text for found in splits.values() for document in found}) == 500


def test_distances_are_the_lengths_of_items(tmp_path):
    data = document_data(NEEDLE, tmp_path, max_length=51)
    for batch in data.eval_batches("test"):
        for row, i in zip(batch.tokens, batch.index.tolist(), strict=True):
            assert row[data.items("test")[i].length].item() == 4 + 19
    assert data.classes == 10 and data.vocabulary == 24


def test_pairs_say_whether_their_values_are_the_same():
    source = Needle(20, 40, 50, 3, 39, 400, 50, 50, paired=True)
    found = made(source)["train"]
    for document in found:
        assert document.other is not None
        places = [side.index(19) for side in (document.text, document.other)]
        values = [side[at + 1] for side, at in zip((document.text, document.other), places, strict=True)]
        assert document.label == (values[0] == values[1]) and document.length == max(places) + 1
    assert 150 < sum(document.label for document in found) < 250
    assert source.classes == ("different", "same")


@pytest.mark.parametrize(
    "change", [{"symbols": 11}, {"symbols": 257}, {"nearest": 0}, {"farthest": 40}, {"longest": 39}]
)
def test_needles_that_cannot_be_are_refused(change):
    settings = {
        "symbols": 20,
        "shortest": 40,
        "longest": 50,
        "nearest": 3,
        "farthest": 39,
        "train": 1,
        "dev": 1,
        "test": 1,
    }
    with pytest.raises(ValueError, match="needle: got"):
        Needle(**settings | change)
