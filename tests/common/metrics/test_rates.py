"""Bits per symbol and accuracy by hand."""

import math

import numpy as np
import pytest

from common.metrics.rates import accuracy, bits_per_symbol


def test_bits_are_of_all_symbols_and_not_the_mean_of_pieces() -> None:
    """3 symbols of 2 bits and 1 of 6: (3 * 2 + 6) / 4 = 3, where the mean of the pieces would be 4."""
    nll = [3 * 2 * math.log(2), 6 * math.log(2)]
    score = bits_per_symbol(nll=nll, targets=[3, 1])
    assert score.value == pytest.approx(3.0)
    np.testing.assert_allclose(score.statistics, [[6, 3], [6, 1]])


def test_accuracy_is_in_percent_of_all_targets() -> None:
    """1 of 1 and 1 of 3 right: 2 of 4."""
    score = accuracy(hits=[1, 1], targets=[1, 3])
    assert score.value == 50.0
    np.testing.assert_allclose(score.statistics, [[100, 1], [100, 3]])


@pytest.mark.parametrize(("nll", "targets"), [([1.0], [1, 2]), ([], []), ([0.0], [0])])
def test_nothing_to_divide_by(nll: list[float], targets: list[int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        bits_per_symbol(nll=nll, targets=targets)
