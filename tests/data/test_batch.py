import numpy as np
import pyarrow as pa
import pytest
import torch

from data.batch import Seq2SeqBatch, shard
from data.encoded import Encoded, Ragged, encode
from data.vocab import BOS, EOS, PAD, UNK, Vocab

SOURCE = [[7, 8, 9], [], [4], [5, 6]]
TARGET = [[6], [8, 7], [], [9, 9, 4, 5]]


def ragged(rows):
    """Ids of the rows with EOS at the end of each."""
    rows = [[*row, EOS] for row in rows]
    offsets = np.cumsum([0, *map(len, rows)])
    return Ragged(np.asarray([i for row in rows for i in row], dtype=np.int32), offsets)


ENCODED = Encoded(ragged(SOURCE), ragged(TARGET))


def test_padding_by_hand():
    batch = ENCODED.batch(np.asarray([3, 1, 0]))
    assert batch.source.tolist() == [[5, 6, EOS, PAD], [EOS, PAD, PAD, PAD], [7, 8, 9, EOS]]
    assert batch.source_mask.int().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert batch.target_in.tolist() == [[BOS, 9, 9, 4, 5], [BOS, 8, 7, PAD, PAD], [BOS, 6, PAD, PAD, PAD]]
    assert batch.target_out.tolist() == [[9, 9, 4, 5, EOS], [8, 7, EOS, PAD, PAD], [6, EOS, PAD, PAD, PAD]]
    assert batch.target_mask.int().tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert batch.index.tolist() == [3, 1, 0]
    assert batch.target_tokens.item() == batch.update_tokens.item() == 5 + 3 + 2
    assert {batch.source.dtype, batch.target_in.dtype, batch.target_out.dtype, batch.index.dtype} == {torch.int64}
    assert {batch.source_mask.dtype, batch.target_mask.dtype} == {torch.bool}


def test_a_batch_without_any_word():
    batch = ENCODED.batch(np.asarray([2]))
    assert (batch.target_in.tolist(), batch.target_out.tolist(), len(batch)) == ([[BOS]], [[EOS]], 1)


def test_moving_keeps_every_field():
    batch = ENCODED.batch(np.asarray([0, 1]))
    moved = batch.to("meta")
    assert isinstance(moved, Seq2SeqBatch)
    assert {tensor.device.type for tensor in vars(moved).values()} == {"meta"}
    assert moved.target_out.shape == batch.target_out.shape


@pytest.mark.parametrize(("rows", "world"), [(4, 2), (3, 2), (4, 3), (1, 1)])
def test_shards_make_up_the_batch(rows, world):
    batch = ENCODED.batch(np.arange(rows))
    shards = [shard(batch, rank, world) for rank in range(world)]
    for rank, part in enumerate(shards):
        assert part.index.tolist() == list(range(rank, rows, world))
        assert torch.equal(part.target_out, batch.target_out[rank::world])  # with the padding of the whole batch
        assert part.update_tokens.item() == batch.target_tokens.item()  # what the whole update is divided by
    assert sum(int(part.target_tokens) for part in shards) == int(batch.target_tokens)


def test_a_rank_without_a_pair_gets_a_row_that_counts_nothing():
    batch = ENCODED.batch(np.asarray([0]))
    part = shard(batch, 1, 2)
    assert part.source.tolist() == [[EOS, PAD, PAD, PAD]]
    assert part.source_mask.tolist() == [[True, False, False, False]]
    assert part.target_in.tolist() == [[BOS, PAD]]
    assert part.target_out.tolist() == [[PAD, PAD]]
    assert (part.target_tokens.item(), part.update_tokens.item()) == (0, 2)
    assert part.index.tolist() == [-1]


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2)])
def test_a_rank_outside_the_world_is_refused(rank, world):
    with pytest.raises(ValueError, match=f"got rank {rank} of {world}"):
        shard(ENCODED.batch(np.asarray([0])), rank, world)


def test_encoding_a_column():
    vocab = Vocab(("b", "a"))
    rows = [["a", "x", "b"], [], ["b"]]
    encoded = encode(pa.array(rows, type=pa.list_(pa.string())), vocab)
    assert encoded.values.tolist() == [5, UNK, 4, EOS, EOS, 4, EOS]
    assert encoded.offsets.tolist() == [0, 4, 5, 7]
    assert encoded.values.dtype == np.int32


def test_encoding_part_of_a_column():
    """A slice of an Arrow column keeps the whole of its values behind it."""
    column = pa.array([["a"], ["b", "b"], ["a", "b"]], type=pa.list_(pa.string()))
    assert encode(column[1:], Vocab(("b", "a"))).values.tolist() == [4, 4, EOS, 5, 4, EOS]


def test_selecting_and_concatenating_rows():
    rows = ragged(SOURCE)
    picked = rows.select(np.asarray([3, 0, 1]))
    assert picked.values.tolist() == [5, 6, EOS, 7, 8, 9, EOS, EOS]
    assert picked.offsets.tolist() == [0, 3, 7, 8]
    both = Ragged.concatenate([picked, rows.select(np.asarray([2]))])
    assert both.values.tolist() == [5, 6, EOS, 7, 8, 9, EOS, EOS, 4, EOS]
    assert both.lengths.tolist() == [3, 4, 1, 2]
