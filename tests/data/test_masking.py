"""Devlin et al. 2018, section 3.1: 15 per cent are predicted; of them 80 per cent MASK, 10 per cent random, 10 per cent
unchanged."""

import numpy as np
import pytest
from scipy.stats import binomtest

from data.masking import mask, masked_count
from data.symbols import MASK, SPECIALS

SYMBOLS, LENGTH = 256, 40_000


@pytest.fixture(scope="module")
def masked():
    ids = SPECIALS + np.random.default_rng(0).integers(SYMBOLS, size=LENGTH)
    return ids, *mask(ids, 0.15, SYMBOLS, np.random.default_rng(1))


def fits(hits, n, p):
    return binomtest(int(hits), int(n), p).pvalue > 1e-3


def test_what_is_chosen_and_what_is_shown(masked):
    ids, seen, scored = masked
    assert scored.sum() == masked_count(LENGTH, 0.15) == 6_000
    assert (seen[~scored] == ids[~scored]).all()
    chosen, shown = ids[scored], seen[scored]
    assert fits((shown == MASK).sum(), 6_000, 0.8)
    kept = 0.1 + 0.1 / SYMBOLS  # a drawn symbol may be the same
    assert fits((shown == chosen).sum(), 6_000, kept)
    assert fits(((shown != MASK) & (shown != chosen)).sum(), 6_000, 0.1 * (1 - 1 / SYMBOLS))
    assert shown[shown != MASK].min() >= SPECIALS and shown.max() < SPECIALS + SYMBOLS


def test_drawn_symbols_come_from_all_of_the_alphabet(masked):
    ids, seen, scored = masked
    drawn = seen[scored & (seen != MASK) & (seen != ids)] - SPECIALS
    assert fits((drawn < SYMBOLS // 2).sum(), len(drawn), 0.5)


def test_places_are_chosen_alike(masked):
    scored = masked[2]
    assert fits(scored[: LENGTH // 2].sum(), scored.sum(), 0.5)
    assert fits((scored[:-1] & scored[1:]).sum(), LENGTH - 1, 0.15**2)  # one says nothing of its neighbour


@pytest.mark.parametrize(
    ("length", "rate", "expected"), [(100, 0.15, 15), (10, 0.15, 2), (3, 0.15, 1), (1, 0.15, 1), (4, 1, 4)]
)
def test_a_share_but_at_least_one(length, rate, expected):
    assert masked_count(length, rate) == expected


def test_what_the_model_sees_is_a_copy():
    ids = np.arange(SPECIALS, SPECIALS + 50)
    mask(ids, 0.5, SYMBOLS, np.random.default_rng(0))
    assert ids.tolist() == list(range(SPECIALS, SPECIALS + 50))
