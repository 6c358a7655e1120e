import itertools
import random
from collections import Counter

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from data.bucketing import BatchSize
from data.pairs import Pair
from data.sources.toy import Toy
from data.translation import TranslationData
from data.vocab import EOS
from tests.data.conftest import settings

SPLITS = ["train", "dev", "test", "test_long"]


def take(stream, n):
    return list(itertools.islice(stream, n))


def indices(batches):
    return [batch.index.tolist() for batch in batches]


def flat(lists):
    return [i for one in lists for i in one]


def pairs(*sides, split="train"):
    return [Pair(f"{i}", f"{split} {i}", source, target) for i, (source, target) in enumerate(sides)]


HELD_OUT = {"dev": pairs(("a", "b")), "test": pairs(("a a a a a a", "b b"), ("", "b"))}


def test_a_batch_holds_the_ids_of_its_examples(toy_data):
    examples = toy_data.examples("train")
    batch = next(toy_data.train_stream())
    for row, index in enumerate(batch.index.tolist()):
        for ids, mask, tokens, vocab in (
            (batch.source, batch.source_mask, examples[index].source_tokens, toy_data.source_vocab),
            (batch.target_out, batch.target_mask, examples[index].target_tokens, toy_data.target_vocab),
        ):
            assert ids[row][mask[row]].tolist() == [*vocab.encode(tokens), EOS]


def test_an_epoch_has_every_pair_once_and_the_next_another_order(toy_data):
    batches = indices(take(toy_data.train_stream(), 26))
    first, second = flat(batches[:13]), flat(batches[13:])
    assert sorted(first) == sorted(second) == list(range(101))
    assert first != second


@pytest.mark.parametrize("start", [1, 12, 13, 40])
def test_a_stream_can_start_at_any_batch(toy_data, start):
    whole = indices(take(toy_data.train_stream(), start + 3))
    assert indices(take(toy_data.train_stream(start), 3)) == whole[start:]


def test_a_stream_ignores_the_global_random_states(toy_data):
    seen = []
    for seed in (1, 2):
        np.random.seed(seed)
        torch.manual_seed(seed)
        random.seed(seed)
        toy_data.latest_plan = None
        seen.append(indices(take(toy_data.train_stream(), 13)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_of_one(toy_data, world):
    """13 batches of 101 pairs: some have 7, which no world divides."""
    alone = indices(take(toy_data.train_stream(), 13))
    ranks = [indices(take(toy_data.train_stream(0, rank, world), 13)) for rank in range(world)]
    for k, batch in enumerate(alone):
        assert [ranks[i % world][k][i // world] for i in range(len(batch))] == batch
        assert sum(len(rank[k]) for rank in ranks) == len(batch)


@pytest.mark.parametrize(("world", "accumulate"), [(1, 3), (2, 2)])
def test_micro_batches_share_out_an_update(toy_data, world, accumulate):
    """All processes' micro-batches of update k are its batch, and each says how many tokens the whole has."""
    alone = take(toy_data.train_stream(), 13)
    ranks = [take(toy_data.train_stream(0, rank, world, accumulate), 13 * accumulate) for rank in range(world)]
    for k, batch in enumerate(alone):
        parts = [part for rank in ranks for part in rank[k * accumulate : (k + 1) * accumulate]]
        assert sorted(i for part in parts for i in part.index.tolist() if i >= 0) == sorted(batch.index.tolist())
        assert {int(part.update_tokens) for part in parts} == {int(batch.target_tokens)}
        assert sum(int(part.target_tokens) for part in parts) == int(batch.target_tokens)


def test_steps_for_tokens_counts_real_target_tokens_with_eos(toy_data):
    lengths = [len(example.target_tokens) + 1 for example in toy_data.examples("train")]
    seen = list(
        itertools.accumulate(sum(lengths[i] for i in batch) for batch in indices(take(toy_data.train_stream(), 30)))
    )
    for steps in (1, 2, 13, 14, 30):
        assert toy_data.steps_for_tokens(seen[steps - 1]) == steps
        assert toy_data.steps_for_tokens(seen[steps - 1] - 1) == steps
    assert toy_data.steps_for_tokens(seen[13] + 1) == 15
    assert toy_data.steps_for_tokens(0) == 0


def test_epochs_counts_pairs_read(toy_data):
    sizes = [len(batch) for batch in indices(take(toy_data.train_stream(), 13))]
    assert toy_data.epochs(0) == 0
    assert toy_data.epochs(13) == 1
    assert toy_data.epochs(15) == pytest.approx(1 + sum(map(len, indices(take(toy_data.train_stream(13), 2)))) / 101)
    assert toy_data.epochs(5) == pytest.approx(sum(sizes[:5]) / 101)


def test_items_are_the_examples(toy_data):
    examples = toy_data.examples("test")
    assert [(item.id, item.cluster) for item in toy_data.items("test")] == [(e.id, e.cluster) for e in examples]
    assert [item.length for item in toy_data.items("test")] == [len(e.source_tokens) for e in examples]
    assert toy_data.downloads is False


@pytest.mark.parametrize("batch", [None, BatchSize("sentences", 1), BatchSize("sentences", 5), BatchSize("tokens", 30)])
def test_evaluation_has_every_pair_once(toy_data, batch):
    for split in SPLITS[1:]:
        order = flat(indices(toy_data.eval_batches(split, batch)))
        assert sorted(order) == list(range(toy_data.size(split)))


def test_only_training_pairs_are_left_out_for_their_length(make_data, listed):
    """Limit 3: a pair goes if either side has more; nothing of dev and test goes, nor is anything cut."""
    train = pairs(("a b c", "x y z"), ("a b c d", "x"), ("a", "w x y z"), ("a", "x"))
    data = make_data(listed({"train": train, **HELD_OUT}), max_words=3)
    assert [example.id for example in data.examples("train")] == ["0", "3"]
    assert data.counts["train"] == {"kept": 4, "outside train_share": 0, "over 3 words": 2, "used": 2}
    assert [len(example.source_tokens) for example in data.examples("test")] == [6, 0]
    assert {tuple(batch.source.shape) for batch in data.eval_batches("test")} == {(2, 7)}


def test_vocabularies_come_from_the_whole_train_split(make_data, listed):
    """The words of pairs over the limit count: the rows of a table, with limits of 30 and 50, share their vocabulary."""
    train = pairs(("a b", "x"), ("c c c c", "y y y"))
    data = make_data(listed({"train": train, **HELD_OUT}), max_words=2)
    assert data.source_vocab.words == ("c", "a", "b")
    assert data.target_vocab.words == ("y", "x")
    counts = Counter(word for pair in train for word in pair.source.split())
    assert counts["c"] == 4  # the most frequent word is in none of the pairs trained on


def test_a_share_of_the_corpus_takes_whole_documents_and_grows(make_data, listed):
    train = [Pair(f"{i}", f"chapter {i // 10}", f"word{i}", f"mot{i}") for i in range(400)]
    kept = {}
    for share in (0.1, 0.5, 1.0):
        data = make_data(listed({"train": train, **HELD_OUT}), train_share=share, source_vocab_size=400)
        kept[share] = {example.id for example in data.examples("train")}
        assert len(data.source_vocab.words) == len(kept[share])
        assert data.counts["train"]["outside train_share"] == 400 - len(kept[share])
    assert kept[0.1] < kept[0.5] < kept[1.0]
    assert len(kept[0.5]) % 10 == 0 and 100 < len(kept[0.5]) < 300
    assert len(kept[1.0]) == 400


def test_the_checksum_is_of_the_prepared_pairs_alone(make_data, listed):
    source = listed({"train": pairs(("a b", "x")), **HELD_OUT})
    first = make_data(source)
    assert make_data(source, max_words=7, seed=9, source_vocab_size=1, train_share=0.9999).checksum == first.checksum
    changed = make_data(listed({"train": pairs(("a b", "y")), **HELD_OUT}), name="other")
    assert changed.checksum != first.checksum


def test_nothing_left_to_train_on_is_an_error(make_data, listed):
    with pytest.raises(ValueError, match="no training pair left of 1; got data.max_words=1"):
        make_data(listed({"train": pairs(("a b", "x")), **HELD_OUT}), max_words=1)


def test_what_was_left_out_is_said_in_a_line(toy_data):
    said = toy_data.describe()
    assert "train: 101 read, 101 kept, 101 used" in said
    assert "batches of 8 sentences" in said
    assert "\n" not in said
    assert toy_data.record["licence"] == "generated, no licence needed"
    assert toy_data.record["source"] == "Toy"
    assert toy_data.splits == SPLITS


def test_the_plan_names_the_state_without_building_anything(tmp_path):
    source = Toy(words=9, shortest=2, longest=4, longest_long=6, train=5, dev=2, test=2, test_long=2)
    data = TranslationData(source=source, **settings(cache=str(tmp_path)))
    assert "nothing to download" in data.plan()
    assert list(tmp_path.iterdir()) == []
    data.prepare()
    assert data.plan() == f"small: prepared in {data.folder}"


@pytest.mark.parametrize("change", [{"train_share": 0}, {"train_share": 1.1}, {"max_words": 0}, {"pool_batches": 0}])
def test_nonsense_is_refused(change):
    with pytest.raises(ValueError, match="expected"):
        TranslationData(source=None, **settings(**change))  # type: ignore[arg-type]


class Recorder(pl.LightningModule):
    """Trains a number and notes which pairs it saw."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: list[list[int]] = []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch.index.tolist())
        return self.weight.sum() * batch.target_tokens

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Count(pl.Callback):
    """Lightning runs the hooks of callbacks before the module's own, and writes checkpoints after both kinds."""

    def on_train_batch_end(self, trainer, *_):
        trainer.datamodule.batch_done()  # type: ignore[attr-defined]


def fit(data, folder, steps, resume=None):
    module = Recorder()
    checkpoint = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        callbacks=[checkpoint, Count()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=False)
    return module.seen


def test_training_resumes_in_the_middle_of_an_epoch(make_data, listed, tmp_path):
    """40 pairs in batches of 4: what is seen before and after the break is one epoch, each pair once."""
    source = listed({"train": pairs(*((f"w{i}", f"m{i}") for i in range(40))), **HELD_OUT})
    batch = {"unit": "sentences", "size": 4}
    before = fit(make_data(source, batch=batch), tmp_path, 3)
    after = fit(make_data(source, batch=batch), tmp_path, 10, resume=tmp_path / "step=3.ckpt")
    assert (len(before), len(after)) == (3, 7)
    assert sorted(flat(before + after)) == list(range(40))
    assert before + after == indices(take(make_data(source, batch=batch).train_stream(), 10))


def test_validation_is_the_whole_dev_set_each_time(toy_data):
    loader = toy_data.val_dataloader()
    for _ in range(2):
        assert sorted(flat(indices(loader))) == list(range(11))
