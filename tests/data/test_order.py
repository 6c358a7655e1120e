"""Order, counts and pronouns: what is asked has the answer that another way of looking gives."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from data.sources.order import Order, Referent

SIZES: dict[str, Any] = {"train": 300, "dev": 20, "test": 20}
FIRST = Order(length=12, letters=6, **SIZES)
MORE = Order(length=12, letters=6, question="more", odd=5, **SIZES)
WHO = Referent(length=10, nouns=6, predicates=4, fillers=3, **SIZES)


def made(source):
    return list(source.documents(None, {})["train"])


@pytest.mark.parametrize("source", [FIRST, MORE], ids=["first", "more"])
def test_classes_are_as_frequent_as_each_other(source):
    found = Counter(document.label for document in made(source))
    assert abs(found[0] - found[1]) < 4 * 300**0.5  # four standard deviations of a fair coin, twice


def test_which_came_first():
    for document in made(FIRST):
        text = list(document.text)
        assert len(text) == 12 and max(text) < 6
        assert text.count(0) == text.count(1) == 1
        assert document.label == (text.index(1) < text.index(0))


def test_which_is_more_frequent():
    for document in made(MORE):
        a, b = (document.text.count(symbol) for symbol in (0, 1))
        assert a + b == 5 and document.label == (b > a)
    assert {document.text.count(1) for document in made(MORE)} == {0, 1, 2, 3, 4, 5}


def test_an_answer_is_the_last_symbol_and_alone_is_scored():
    source = Order(length=13, letters=6, answered=True, **SIZES)
    for document in made(source):
        text = list(document.text)
        assert len(text) == 13 and text[-1] == document.label == (text.index(1) < text.index(0))
        scored = source.scored(np.frombuffer(document.text, dtype=np.uint8))
        assert scored.tolist() == [False] * 12 + [True]


def test_the_seed_decides():
    other = Order(length=12, letters=6, seed=1, **SIZES)
    assert [d.text for d in made(FIRST)] == [d.text for d in made(FIRST)] != [d.text for d in made(other)]


def test_a_pronoun_means_the_noun_that_its_predicate_asks_for():
    """Predicates 6 and 7 of the first noun, 8 and 9 of the second."""
    meant = Counter()
    for document in made(WHO):
        *words, predicate, answer = document.text
        nouns = [word for word in words if word < 6]
        assert len(document.text) == 10 and len(nouns) == 2 and nouns[0] != nouns[1]
        assert 6 <= predicate < 10 and answer == nouns[0 if predicate < 8 else 1]
        right, other = WHO.places(document.text)
        assert document.text[right] == answer and document.text[other] in set(nouns) - {answer}
        meant[predicate < 8] += 1
    assert min(meant.values()) > 100


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Order(length=12, letters=6, question="last", **SIZES), "question"),  # type: ignore[arg-type]
        (lambda: Order(length=12, letters=2, **SIZES), "3 to 256 letters"),
        (lambda: Order(length=4, letters=6, question="more", odd=5, **SIZES), "room"),
        (lambda: Order(length=12, letters=6, question="more", odd=4, **SIZES), "odd"),
        (lambda: Referent(length=10, nouns=6, predicates=3, fillers=3, **SIZES), "even number of predicates"),
        (lambda: Referent(length=3, nouns=6, predicates=4, fillers=3, **SIZES), "length"),
    ],
)
def test_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()
