"""Length bins and slopes on constructed data."""

import numpy as np
import pytest

from common.report.lengths import Bins, counts, slope


def test_bins_are_inclusive_and_cut_to_a_range():
    bins = Bins(width=10, up_to=40, fewest=5)
    assert bins.ranges() == [(1, 10), (11, 20), (21, 30), (31, 40)]
    assert bins.ranges(5, 25) == [(5, 10), (11, 20), (21, 25)]


def test_counts_take_both_edges():
    assert counts(np.array([1, 10, 11, 20, 21]), [(1, 10), (11, 20)]) == [2, 2]


def test_slope_of_a_line_is_exact_whatever_the_weights():
    lengths = np.array([5.0, 15.0, 27.0, 33.0])
    values = 30 - 0.4 * lengths
    for weights in (np.ones(4), np.array([100.0, 1, 7, 3])):
        assert slope(values, lengths, weights) == pytest.approx(-4.0)  # per 10 words


def test_slope_is_weighted_least_squares():
    lengths, values, weights = np.array([5.0, 15, 25]), np.array([10.0, 6, 9]), np.array([1.0, 2, 9])
    design = np.stack([np.ones(3), lengths], axis=1)
    scaled = design * weights[:, None] ** 0.5
    [_, expected], *_ = np.linalg.lstsq(scaled, values * weights**0.5, rcond=None)
    assert slope(values, lengths, weights) == pytest.approx(10 * expected)


def test_a_bin_without_sentences_drops_out_even_if_its_score_is_undefined():
    lengths, weights = np.array([5.0, 15, 25]), np.array([4.0, 0, 4])
    assert slope(np.array([10.0, np.nan, 6]), lengths, weights) == pytest.approx(-2.0)


def test_slope_is_vectorised_over_resamples():
    lengths = np.array([5.0, 15, 25])
    values, weights = np.array([[1.0, 2, 3], [3, 2, 1]]), np.ones((2, 3))
    assert slope(values, lengths, weights) == pytest.approx([1.0, -1.0])
