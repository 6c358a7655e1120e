import numpy as np
import pytest

from common.metrics import monotonicity


def test_the_identity_rises_and_its_reverse_falls():
    eye = np.eye(6)
    assert monotonicity(eye, seed=0)[0] == pytest.approx(1)
    assert monotonicity(eye[::-1], seed=0)[0] == pytest.approx(-1)


def test_by_hand():
    """Expected positions 0.5, 2, 1: ranks 1, 3, 2. Spearman 1 - 6 * (0 + 1 + 1) / (3 * 8) = 0.5."""
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    assert monotonicity(weights, seed=0)[0] == pytest.approx(0.5)


def test_looking_nowhere_in_particular_is_no_order():
    uniform = np.full((5, 7), 1 / 7) + 1e-8 * np.random.default_rng(0).normal(size=(5, 7))  # float noise
    assert monotonicity(uniform, seed=0) == (0.0, 0.0)


def test_the_null_averages_zero_with_the_spread_of_chance():
    """Of n words in random order, Spearman's correlation has mean 0 and variance 1 / (n - 1)."""
    nulls = np.array([monotonicity(np.eye(10), seed=(7, i))[1] for i in range(1000)])
    assert abs(nulls.mean()) < 4 / np.sqrt(9 * 1000)
    assert nulls.var() == pytest.approx(1 / 9, rel=0.15)


def test_the_null_is_fixed_by_its_seed():
    assert monotonicity(np.eye(9), seed=(1, 2)) == monotonicity(np.eye(9), seed=(1, 2))
    assert len({monotonicity(np.eye(9), seed=(1, i))[1] for i in range(10)}) > 5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((1, 1)), r"shape \(1, 1\)"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((2, 2)), "summing"),
        (np.array([[2.0, -1.0], [0.5, 0.5]]), "distribution"),
        (np.full((2, 2), np.nan), "distribution"),
    ],
)
def test_what_is_no_attention_matrix_is_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        monotonicity(weights, seed=0)
