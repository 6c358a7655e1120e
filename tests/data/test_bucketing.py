import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.bucketing import BatchSize, epoch_batches, sorted_batches

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)


def arrays(pairs):
    source, target = zip(*pairs, strict=True)
    return np.asarray(source), np.asarray(target)


def batches(plan):
    return [plan[k].tolist() for k in range(len(plan))]


def test_token_budget_by_hand():
    """Longest sides 9, 3, 50, 40, 4, 4; budget 50: the area is sentences * longest side, whichever side that is."""
    source, target = np.asarray([2, 3, 50, 3, 4, 4]), np.asarray([9, 2, 3, 40, 4, 2])
    plan = sorted_batches(source, target, BatchSize("tokens", 50))
    assert batches(plan) == [[2], [3], [0, 4, 5, 1]]  # 1 * 50, 1 * 40, 4 * 9
    assert batches(sorted_batches(source, target, BatchSize("tokens", 35))) == [[2], [3], [0, 4, 5], [1]]


@given(LENGTHS, st.integers(1, 200), st.integers(0, 3))
def test_token_batches_hold_every_pair_once_within_the_budget(pairs, budget, epoch):
    source, target = arrays(pairs)
    size = BatchSize("tokens", budget)
    for plan in (sorted_batches(source, target, size), epoch_batches(source, target, size, 2, 7, epoch)):
        assert sorted(i for batch in batches(plan) for i in batch) == list(range(len(pairs)))
        for batch in batches(plan):
            longest = max(max(pairs[i]) for i in batch)
            assert batch and (len(batch) * longest <= budget or len(batch) == 1)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 4))
def test_sentence_batches_are_even(pairs, size, pool):
    """As few batches as hold all pairs, none left with a handful."""
    source, target = arrays(pairs)
    plan = epoch_batches(source, target, BatchSize("sentences", size), pool, 7, 0)
    sizes = [len(batch) for batch in batches(plan)]
    assert sorted(i for batch in batches(plan) for i in batch) == list(range(len(pairs)))
    assert len(sizes) == -(-len(pairs) // size)
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


def test_a_pool_is_sorted_and_cut_and_its_batches_shuffled():
    """12 pairs, batches of 2, pools of 3 batches, done step by step from the same random numbers."""
    length = np.asarray([5, 3, 8, 1, 9, 2, 7, 4, 6, 12, 11, 10])
    rng = np.random.Generator(np.random.PCG64([3, 5]))
    shuffled = rng.permutation(12).tolist()
    keys = rng.random(6).tolist()
    expected = []
    for pool in (0, 1):
        pairs = sorted(shuffled[6 * pool : 6 * pool + 6], key=lambda i: length[i])
        cut = [pairs[0:2], pairs[2:4], pairs[4:6]]
        order = sorted(range(3), key=lambda b: keys[3 * pool + b])
        expected += [cut[b] for b in order]
    assert batches(epoch_batches(length, length, BatchSize("sentences", 2), 3, seed=3, epoch=5)) == expected
    assert expected[:3] != sorted(expected[:3], key=lambda batch: length[batch[0]])  # the shuffle shows


def test_a_pool_of_tokens_holds_about_its_batches():
    """400 pairs of 10: a pool of 2 batches of 100 tokens takes 20 pairs, so batches are of 10 and none is torn."""
    length = np.full(400, 10)
    plan = epoch_batches(length, length, BatchSize("tokens", 100), 2, 1, 0)
    assert np.diff(plan.bounds).tolist() == [10] * 40


def test_order_depends_on_seed_and_epoch_alone():
    length = np.arange(1, 50)

    def plan(seed, epoch):
        return batches(epoch_batches(length, length, BatchSize("sentences", 4), 3, seed, epoch))

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)
    assert plan(1, 2) != plan(2, 1)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_evaluation_is_sorted_the_longest_first_and_ties_in_order(size):
    """Ties are in order, so that outputs scattered back by index never depend on the batch size."""
    length = np.asarray([5, 1, 5, 3, 1])
    plan = sorted_batches(length, length, BatchSize("sentences", size))
    assert plan.order.tolist() == [0, 2, 3, 1, 4]


def test_nonsense_is_refused_and_the_definition_is_printed():
    with pytest.raises(ValueError, match="got 0 sentences"):
        BatchSize("sentences", 0)
    with pytest.raises(ValueError, match="words"):
        BatchSize("words", 3)  # type: ignore[arg-type]
    assert "sentences * longest source or target" in str(BatchSize("tokens", 4000))
