"""IBM model 1 against values worked by hand and against EM written out."""

import numpy as np
import pytest

from reproductions.luong.ibm1 import train_ibm1

PAIRS = [("a b", "x y"), ("a", "x"), ("b a a", "y x z"), ("c", "w"), ("c b", "y w")]
WORDS = [(e.split(), f.split()) for e, f in PAIRS]


def written_out(pairs, rounds: int) -> dict[tuple[str, str], float]:
    """EM over dictionaries; the empty word is ''."""
    t: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        counts: dict[tuple[str, str], float] = {}
        for e, f in pairs:
            for word in f:
                shares = {i: t.get((given, word), 1.0 if not t else 0.0) for i, given in enumerate(["", *e])}
                for i, given in enumerate(["", *e]):
                    counts[given, word] = counts.get((given, word), 0.0) + shares[i] / sum(shares.values())
        totals: dict[str, float] = {}
        for (given, _), n in counts.items():
            totals[given] = totals.get(given, 0.0) + n
        t = {(given, word): n / totals[given] for (given, word), n in counts.items()}
    return t


def probability(model, given: str, written: str) -> float:
    e = model.given.ids[given] if given else 0
    where = np.flatnonzero(model.keys == e * len(model.written.ids) + model.written.ids[written])
    return float(model.table[where[0]]) if len(where) else 0.0


def test_one_round_by_hand():
    """`x` stands once beside (a, b, empty) and once beside (a, empty): the count of (a, x) is 1/3 + 1/2, of (a, y) 1/3."""
    model = train_ibm1(WORDS[:2], rounds=1)
    assert probability(model, "a", "x") == pytest.approx((1 / 3 + 1 / 2) / (1 / 3 + 1 / 2 + 1 / 3))
    assert probability(model, "b", "x") == pytest.approx(1 / 2)
    assert probability(model, "", "y") == pytest.approx((1 / 3) / (1 / 3 + 1 / 2 + 1 / 3))


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_every_probability_is_that_of_em_written_out(rounds):
    expected = written_out(WORDS, rounds)
    model = train_ibm1(WORDS, rounds)
    for given in ("", "a", "b", "c"):
        for word in "xyzw":
            assert probability(model, given, word) == pytest.approx(expected.get((given, word), 0.0), abs=1e-12)
        assert sum(probability(model, given, word) for word in "xyzw") == pytest.approx(1)


def test_links_are_places_of_given_then_written_words():
    model = train_ibm1(WORDS, rounds=5)
    assert model.links(["c", "b", "a"], ["x", "w"]) == [(2, 0), (0, 1)]
    assert model.links(["b", "b"], ["y"]) == [(0, 0)]  # the first of equal ones


def test_words_of_which_nothing_is_known_have_no_link():
    model = train_ibm1(WORDS, rounds=5)
    assert model.links(["new", "a"], ["unheard", "x"]) == [(1, 1)]
    assert model.links(["new"], ["x"]) == []  # the empty word wrote it
    assert model.links(["c"], ["z"]) == []  # never seen together
    assert model.links([], ["x"]) == [] == model.links(["a"], [])


def test_the_empty_word_takes_what_belongs_to_no_word():
    pairs = [([given], [given.upper(), "um"]) for given in "abcdefgh"]
    model = train_ibm1(pairs, rounds=5)
    assert model.links(["c"], ["C", "um"]) == [(0, 0)]


def test_empty_sides_are_left_out_and_nothing_is_refused():
    assert train_ibm1([*WORDS, ([], ["x"]), (["a"], [])], 3).table.tolist() == train_ibm1(WORDS, 3).table.tolist()
    with pytest.raises(ValueError, match="no pair with words on both sides"):
        train_ibm1([([], ["x"])], 3)
