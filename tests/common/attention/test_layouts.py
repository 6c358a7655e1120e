"""Masks that hold data, against matrices written by hand and against what they leave out."""

import pytest
import torch

from common.attention import Blocks, Causal, Mask, Packed, Padding, Random, attention
from tests.common.attention.test_masks import written


def test_padding_by_hand_wherever_it_lies():
    mask = Padding(torch.tensor([[True, True, False], [False, True, True]]))
    assert mask.groups == (2, 1)
    assert torch.equal(mask.dense(2, 3)[0, 0], written("110", "110"))
    assert torch.equal(mask.dense(2, 3)[1, 0], written("011", "011"))


def test_padding_by_lengths():
    mask = Padding.lengths(torch.tensor([0, 2, 3]), 3)
    assert torch.equal(mask.keep, written("000", "110", "111"))


@pytest.mark.parametrize("lengths", [torch.tensor([4]), torch.tensor([-1]), torch.tensor([1.0]), torch.tensor([[1]])])
def test_lengths_that_do_not_fit_are_refused(lengths: torch.Tensor):
    with pytest.raises(ValueError, match=r"Padding lengths: got .*, expected integers \(batch,\) from 0 to 3"):
        Padding.lengths(lengths, 3)


@pytest.mark.parametrize("keep", [torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]]), torch.tensor([True])])
def test_padding_takes_bool_only(keep: torch.Tensor):
    """A 0/1 mask of numbers can be meant either way."""
    with pytest.raises(ValueError, match=r"expected bool \(batch, keys\), True = a real key"):
        Padding(keep)


def test_packed_by_hand():
    """Two sequences and padding: a query sees the keys of its own segment; padding sees nothing and is not seen."""
    mask = Packed(torch.tensor([[0, 0, 1, -1]]))
    assert torch.equal(mask.dense(4, 4), written("1100", "1100", "0010", "0000"))


def test_packed_queries_and_keys_of_different_lengths():
    mask = Packed(torch.tensor([[3, 5, 5]]), torch.tensor([[5, 3, 3, 7]]))
    assert torch.equal(mask.dense(3, 4), written("0110", "1000", "1000"))


def test_packed_by_lengths_may_hold_empty_sequences():
    assert Packed.lengths(torch.tensor([2, 0, 1])).queries.tolist() == [[0, 0, 2]]


def test_packed_of_one_row_for_a_batch_of_others():
    mask = Packed(torch.tensor([[0, 1]]), torch.tensor([[0, 0], [1, 1], [0, 1]]))
    assert mask.groups == (3, 1)
    dense = mask.dense(2, 2)[:, 0]
    assert torch.equal(dense, torch.stack([written("11", "00"), written("00", "11"), written("10", "01")]))


def test_packed_of_two_batches_is_refused():
    with pytest.raises(ValueError, match="Packed: got a batch of 3 for queries and 2 for keys, expected the same"):
        Packed(torch.zeros(3, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long))


@pytest.mark.parametrize("segments", [torch.zeros(1, 4), torch.zeros(4, dtype=torch.long), torch.ones(1, 4).bool()])
def test_packed_takes_integers_only(segments: torch.Tensor):
    with pytest.raises(ValueError, match=r"Packed queries: got .*, expected integers \(batch, time\)"):
        Packed(segments)


def test_blocks_by_hand_cut_off_by_the_lengths():
    mask = Blocks(torch.tensor([[True, False], [False, True]]), 2)
    assert torch.equal(mask.dense(3, 3), written("110", "110", "001"))


def test_blocks_by_batch_and_head():
    table = torch.zeros(2, 3, 1, 2, dtype=torch.bool)
    table[1, 2, 0, 1] = True
    dense = Blocks(table, 2).dense(2, 4)
    assert dense.shape == (2, 3, 2, 4) and int(dense.sum()) == 4
    assert torch.equal(dense[1, 2], written("0011", "0011"))


@pytest.mark.parametrize(
    ("table", "block"),
    [(torch.ones(2, 2), 2), (torch.ones(2, 2, 2, dtype=torch.bool), 2), (torch.ones(2, 2, dtype=torch.bool), 0)],
)
def test_a_table_that_is_none_is_refused(table: torch.Tensor, block: int):
    with pytest.raises(ValueError, match="Blocks: got a table of .* expected bool"):
        Blocks(table, block)


def test_random_sees_count_blocks_a_row_each_once():
    """7 queries in blocks of 2: four rows of blocks; 11 keys: six columns, the last one cut off."""
    table = Random(3, 2, seed=5).table(7, 11)
    assert table.shape == (4, 6) and table.sum(1).tolist() == [3, 3, 3, 3]
    assert torch.equal(
        Random(3, 2, seed=5).dense(7, 11), table.repeat_interleave(2, 0).repeat_interleave(2, 1)[:7, :11]
    )
    assert bool(Random(9, 2, seed=5).dense(4, 4).all()) and not bool(Random(0, 2, seed=5).dense(4, 4).any())


def test_random_is_the_same_always_and_other_for_another_seed():
    state = torch.get_rng_state()
    first = Random(3, 4, seed=1).dense(64, 64)
    assert torch.equal(Random(3, 4, seed=1).dense(64, 64), first)
    assert not torch.equal(Random(3, 4, seed=2).dense(64, 64), first)
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator moved"


def test_random_chooses_each_block_equally_often():
    """Each of 8 columns is one of 2 chosen with probability 1/4: over 200 seeds of 8 rows, 400 +- 5 standard deviations."""
    chosen = sum(Random(2, 1, seed=seed).table(8, 8).sum(0) for seed in range(200))
    assert isinstance(chosen, torch.Tensor) and (chosen - 400).abs().max() < 5 * (1600 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("arguments", [(-1, 4), (2, 0)])
def test_random_of_impossible_sizes_is_refused(arguments: tuple[int, int]):
    with pytest.raises(ValueError, match="expected a count of 0 or more and a block of 1 or more"):
        Random(*arguments, seed=0)


def inputs(batch: int = 2, lq: int = 4, lk: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, lq, 8), torch.randn(batch, 3, lk, 8)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (Padding(torch.ones(3, 6, dtype=torch.bool)), "got 3 for batch, expected 1 or 2"),
        (Padding(torch.ones(2, 5, dtype=torch.bool)), "Padding: got a mask of 5 keys, expected 6"),
        (Packed(torch.zeros(2, 4, dtype=torch.long)), "got segments of 4 queries and 4 keys, expected 4 and 6"),
        (Packed(torch.zeros(3, 4).long(), torch.zeros(1, 6).long()), "got 3 for batch, expected 1 or 2"),
        (Blocks(torch.ones(2, 2, dtype=torch.bool), 2), r"got a table of \(2, 2\) blocks, expected \(2, 3\)"),
        (Blocks(torch.ones(1, 2, 2, 3, dtype=torch.bool), 2), "got 2 for heads, expected 1 or 3"),
        (Causal() & Padding(torch.ones(2, 5, dtype=torch.bool)), "Padding: got a mask of 5 keys, expected 6"),
        (Padding(torch.ones(2, 5, dtype=torch.bool)) | Causal(), "Padding: got a mask of 5 keys, expected 6"),
    ],
)
def test_masks_that_do_not_fit_the_inputs_are_refused(mask: Mask, message: str):
    q, k = inputs()
    with pytest.raises(ValueError, match=message):
        attention(q, k, k, mask=mask, backend="reference")
