from dataclasses import dataclass

import numpy as np
import pytest

from common.metrics.aer import SIGNATURE, aer, aer_of_sums, alignment_records, link_records, one_to_one
from common.report.measures import METRICS


@dataclass(frozen=True)
class Gold:
    sure: frozenset
    possible: frozenset


@dataclass(frozen=True)
class Sentence:
    id: str
    cluster: str
    source_tokens: list
    target_tokens: list


def gold(sure: set, more: set = frozenset()) -> Gold:  # type: ignore[assignment]
    return Gold(frozenset(sure), frozenset(sure | more))


FIRST = gold({(0, 0), (1, 1)}, {(2, 1), (2, 2)})
SECOND = gold({(0, 1)})


def test_worked_by_hand():
    """First sentence: of three links one is sure, two are possible; 1 - 3/5. Second: one link, right; 1 - 2/2.

    Together 1 - (2 + 3) / (4 + 3), which is not the mean of 2/5 and 0.
    """
    score = aer(links=[{(0, 0), (2, 1), (3, 2)}, {(0, 1)}], gold=[FIRST, SECOND])
    assert score.statistics.tolist() == [[1, 2, 3, 2], [1, 1, 1, 1]]
    assert score.value == pytest.approx(2 / 7)
    assert score.signature == SIGNATURE == METRICS["aer"].default_signature


def test_a_link_is_source_then_target():
    turned = aer(links=[{(0, 0), (1, 2), (2, 3)}], gold=[FIRST])
    assert turned.statistics.tolist() == [[1, 1, 3, 2]]


@pytest.mark.parametrize(
    ("links", "value"),
    [
        ({(0, 0), (1, 1)}, 0.0),  # all sure ones
        ({(0, 0), (1, 1), (2, 2)}, 0.0),  # and a possible one: no error
        ({(2, 1), (2, 2)}, 1 - 2 / 4),  # possible ones alone: the sure ones are missed
        ({(0, 0), (1, 1), (3, 3)}, 1 - 4 / 5),  # a wrong one
        ({(3, 3)}, 1.0),
        (set(), 1.0),
    ],
)
def test_what_counts_as_an_error(links, value):
    assert aer(links=[links], gold=[FIRST]).value == pytest.approx(value)


def test_a_link_made_twice_is_one():
    assert aer(links=[[(0, 0), (0, 0), (1, 1)]], gold=[FIRST]).statistics.tolist() == [[2, 2, 2, 2]]


def test_what_can_not_be_scored_is_refused():
    with pytest.raises(ValueError, match="got 1 and 2"):
        aer(links=[set()], gold=[FIRST, SECOND])
    with pytest.raises(ValueError, match=r"sure links must be possible ones; got others in sentences \[1\]"):
        aer(links=[set(), set()], gold=[FIRST, Gold(frozenset({(0, 0)}), frozenset())])
    with pytest.raises(ValueError, match="no link in 1 sentences"):
        aer(links=[set()], gold=[gold(set())])
    with pytest.raises(ValueError, match="no link in 0 sentences"):
        aer(links=[], gold=[])


def test_expected_sums_give_the_expected_rate():
    """Two links at random over two source words, one of them sure: hit half the time."""
    assert aer_of_sums(np.array([[0.5, 0.5, 2, 1]])).value == pytest.approx(1 - 1 / 3)


WEIGHTS = np.array(
    [
        # three source words, end mark
        [0.1, 0.6, 0.2, 0.1],
        [0.2, 0.1, 0.3, 0.4],  # the end mark has most: the next best word is taken
        [0.5, 0.0, 0.5, 0.0],  # equal: the first
        [0.0, 0.0, 0.0, 1.0],  # no weight on any word: no link
        [0.1, 0.1, 0.7, 0.1],  # of the end mark: no link
    ]
)


def test_the_highest_weight_of_each_target_word_without_the_end_marks():
    assert one_to_one(WEIGHTS) == {(1, 0), (2, 1), (0, 2)}
    assert one_to_one(WEIGHTS.astype(np.float32)) == one_to_one(WEIGHTS)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)])
def test_a_side_without_words_has_no_links(shape):
    assert one_to_one(np.ones(shape)) == set()


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((0, 3)), np.full((2, 2), np.nan), np.ones((2, 2, 2))])
def test_what_is_no_matrix_of_weights_is_refused(weights):
    with pytest.raises(ValueError, match=r"need finite weights .* got shape"):
        one_to_one(weights)


SENTENCES = [
    Sentence("MAT 5:1", "MAT 5", ["a", "b", "c"], ["w", "x", "y", "z"]),
    Sentence("MAT 5:2", "MAT 5", ["a"], ["x"]),
]


def test_records_of_attention():
    references = [gold({(1, 0)}, {(0, 2)}), gold({(0, 0)})]
    records, score = alignment_records([WEIGHTS, np.eye(2)], references, SENTENCES)
    assert records == [
        {"id": "MAT 5:1", "cluster": "MAT 5", "source_tokens": 3, "links": "0-2 1-0 2-1", "aer": [1, 2, 3, 1]},
        {"id": "MAT 5:2", "cluster": "MAT 5", "source_tokens": 1, "links": "0-0", "aer": [1, 1, 1, 1]},
    ]
    assert score.value == pytest.approx(1 - 5 / 6)


@pytest.mark.parametrize("wrong", [WEIGHTS[:-1], WEIGHTS[:, :-1], np.pad(WEIGHTS, ((0, 0), (0, 1))), WEIGHTS.T])
def test_weights_of_another_size_are_refused(wrong):
    """Without the end marks, with padding, or turned."""
    with pytest.raises(ValueError, match=r"MAT 5:1: got weights \(.*\), expected \(5, 4\)"):
        alignment_records([wrong, np.eye(2)], [gold({(1, 0)}), gold({(0, 0)})], SENTENCES)


def test_records_without_links():
    (record, _) = link_records(SENTENCES, aer_of_sums(np.array([[0.5, 0.5, 2, 1], [0, 0, 1, 1]])))
    assert record == {"id": "MAT 5:1", "cluster": "MAT 5", "source_tokens": 3, "aer": [0.5, 0.5, 2, 1]}
