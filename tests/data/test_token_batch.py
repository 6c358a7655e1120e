import pytest
import torch
from torch.nn.functional import cross_entropy

from data.batch import shard
from data.symbols import CLS, MASK, PAD, SPECIALS, vocabulary
from data.token_batch import NO_LABEL, LabelBatch, TokenBatch, made_up_labels, made_up_tokens


def tokens(rows: int, stage: int = 2) -> TokenBatch:
    """Row i has i + 1 scored places."""
    made = made_up_tokens(7, rows, 5, stage=stage)
    scored = torch.arange(5) <= torch.arange(rows)[:, None]
    return TokenBatch.of(made.tokens, made.targets, scored, made.real, stage=stage)


@pytest.mark.parametrize(("rows", "world"), [(4, 2), (3, 2), (4, 3), (2, 4)])
def test_shards_of_tokens_add_up(rows, world):
    batch = tokens(rows)
    shards = [shard(batch, rank, world) for rank in range(world)]
    assert sum(int(part.target_tokens) for part in shards) == int(batch.target_tokens) == sum(range(1, rows + 1))
    assert {int(part.update_tokens) for part in shards} == {int(batch.target_tokens)}
    assert {part.stage for part in shards} == {2}
    assert sorted(i for part in shards for i in part.index.tolist() if i >= 0) == list(range(rows))
    for rank, part in enumerate(shards[:rows]):
        for name in ("tokens", "targets", "scored", "real"):
            assert torch.equal(getattr(part, name), getattr(batch, name)[rank::world])


def test_a_rank_without_a_text_gets_one_that_counts_nothing():
    part = shard(tokens(1), 1, 2)
    assert part.tokens.tolist() == [[CLS, PAD, PAD, PAD, PAD]]
    assert part.real.tolist() == [[True, False, False, False, False]]
    assert not part.scored.any() and int(part.target_tokens) == 0
    assert (part.index.tolist(), part.stage, int(part.update_tokens)) == ([-1], 2, 1)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("rows", "world"), [(4, 2), (3, 2), (1, 3)])
def test_shards_of_documents_add_up(rows, world, paired):
    batch = made_up_labels(9, 3, rows, 6, paired)
    shards = [shard(batch, rank, world) for rank in range(world)]
    assert sum(int(part.target_tokens) for part in shards) == int(batch.update_tokens) == rows
    assert all((part.other is not None) == (part.other_real is not None) == paired for part in shards)
    for rank, part in enumerate(shards[:rows]):
        assert torch.equal(part.tokens, batch.tokens[rank::world])
        assert torch.equal(part.label, batch.label[rank::world])
        if part.other is not None and batch.other is not None:
            assert torch.equal(part.other, batch.other[rank::world])


def test_a_stand_in_document_adds_nothing_to_a_loss():
    part = shard(made_up_labels(9, 3, 1, 6, paired=True), 1, 2)
    assert part.label.tolist() == [NO_LABEL] and part.index.tolist() == [-1]
    assert part.tokens.tolist() == [[CLS, PAD, PAD, PAD, PAD, PAD]] and part.other is not None
    assert torch.equal(part.other, part.tokens)
    assert cross_entropy(torch.randn(1, 3), part.label, reduction="sum").item() == 0


def test_moving_keeps_what_is_no_tensor():
    moved = tokens(2).to("meta")
    assert (moved.stage, moved.tokens.device.type, moved.index.device.type, len(moved)) == (2, "meta", "meta", 2)
    single = made_up_labels(9, 3, 2, 6).to("meta")
    assert single.other is None and single.label.device.type == "meta"


def test_what_is_not_padding_is_real():
    ids = torch.tensor([[CLS, 7, 8], [CLS, PAD, PAD]])
    batch = LabelBatch.of(ids, torch.tensor([0, 1]), ids[:, :2])
    assert batch.real.tolist() == [[True, True, True], [True, False, False]]
    assert batch.other_real is not None and batch.other_real.tolist() == [[True, True], [True, False]]
    assert (int(batch.update_tokens), batch.index.tolist()) == (2, [0, 1])


def test_made_up_batches_are_what_a_model_gets():
    causal, masked = made_up_tokens(7, 3, 20), made_up_tokens(7, 3, 20, masked=True)
    assert torch.equal(causal.tokens[:, 1:], causal.targets[:, :-1]) and causal.scored.all()
    assert torch.equal(masked.tokens == MASK, masked.scored) and torch.equal(masked.targets, causal.tokens)
    assert int(masked.tokens.max()) < vocabulary(7) and int(causal.tokens.min()) >= SPECIALS
    assert made_up_labels(7, 2, 3, 20).tokens[:, 0].tolist() == [CLS] * 3
