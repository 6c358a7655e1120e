import itertools

import numpy as np
import pytest
import torch

from data.bucketing import BatchSize
from data.documents import DocumentData, ragged, symbols_of
from data.sources.long import Document
from data.stream import Item
from data.symbols import CLS, PAD, SPECIALS
from tests.data.long_sources import LISTED, GivenDocuments, document_data


def texts(n, split):
    """Document i has i % 9 symbols, all of them i; its label is whether i is odd."""
    return [Document(f"{split} {i}", f"{split} {i // 2}", bytes([i]) * (i % 9), i % 2) for i in range(n)]


@pytest.fixture
def source(request):
    key = request.node.nodeid
    LISTED[key] = {split: texts(n, split) for split, n in (("train", 50), ("dev", 7), ("test", 20))}
    return GivenDocuments(key)


@pytest.fixture
def small(source, tmp_path):
    return document_data(source, tmp_path)


def take(stream, n):
    return list(itertools.islice(stream, n))


def indices(batches):
    return [batch.index.tolist() for batch in batches]


def test_a_batch_holds_its_documents(small):
    for batch in take(small.train_stream(), 26):
        for row, real, label, i in zip(batch.tokens, batch.real, batch.label, batch.index.tolist(), strict=True):
            assert row[real].tolist() == [CLS, *([i + SPECIALS] * min(i % 9, 5))]  # at most 6 ids, CLS counted
            assert (row[~real] == PAD).all() and int(label) == i % 2
        assert batch.real[:, 0].all() and batch.tokens.shape[1] == batch.real.sum(1).max()


def test_what_is_cut_is_counted_and_what_is_empty_is_a_lone_cls(small):
    """Of 20 documents those with 6, 7 and 8 symbols are cut: 6, 7, 8, 15, 16, 17. 0, 9 and 18 are empty."""
    assert small.counts["test"]["over 5 symbols, cut"] == 6
    assert small.counts["test"]["empty"] == 3
    assert "6 over 5 symbols, cut" in small.describe()
    batches = list(small.eval_batches("test", BatchSize("sentences", 1)))
    assert sorted(int(b.index) for b in batches if b.tokens.tolist() == [[CLS]]) == [0, 9, 18]


def test_a_document_as_long_as_the_limit_is_whole(source, tmp_path):
    assert document_data(source, tmp_path, max_length=9).counts["test"]["over 8 symbols, cut"] == 0
    assert document_data(source, tmp_path, max_length=8).counts["test"]["over 7 symbols, cut"] == 2  # 8 and 17


def test_an_epoch_has_every_document_once_and_the_next_another_order(small):
    batches = indices(take(small.train_stream(), 26))
    first, second = (list(itertools.chain(*part)) for part in (batches[:13], batches[13:]))
    assert sorted(first) == sorted(second) == list(range(50)) and first != second
    assert small.epochs(13) == 1 and small.steps_for_tokens(51) == 14 and small.steps_for_tokens(50) == 13


@pytest.mark.parametrize("start", [1, 12, 13, 40])
def test_a_stream_can_start_at_any_batch(small, start):
    assert indices(take(small.train_stream(start), 3)) == indices(take(small.train_stream(), start + 3))[start:]


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (3, 2)])
def test_ranks_and_micro_batches_share_an_update(small, world, accumulate):
    """13 batches of 50 documents: some have 3, which leaves ranks without one."""
    alone = take(small.train_stream(), 13)
    ranks = [take(small.train_stream(0, rank, world, accumulate), 13 * accumulate) for rank in range(world)]
    for k, batch in enumerate(alone):
        parts = [part for rank in ranks for part in rank[k * accumulate : (k + 1) * accumulate]]
        assert sorted(i for part in parts for i in part.index.tolist() if i >= 0) == sorted(batch.index.tolist())
        assert sum(int(part.target_tokens) for part in parts) == len(batch) == int(parts[0].update_tokens)


def test_documents_of_like_length_are_together(source, tmp_path):
    data = document_data(source, tmp_path, pool_batches=100, max_length=20)
    spread = [batch.real.sum(1).max() - batch.real.sum(1).min() for batch in take(data.train_stream(), 13)]
    assert max(spread) <= 2


def test_a_batch_of_symbols_keeps_its_budget(source, tmp_path):
    data = document_data(source, tmp_path, batch={"unit": "symbols", "size": 12})
    batches = take(data.train_stream(), 40)
    assert all(batch.tokens.numel() <= 12 for batch in batches)
    assert max(len(batch) for batch in batches) > 2


@pytest.mark.parametrize("batch", [None, BatchSize("sentences", 3), BatchSize("tokens", 7)])
def test_evaluation_has_every_document_once(small, batch):
    for split in small.splits:
        order = list(itertools.chain(*indices(small.eval_batches(split, batch))))
        assert sorted(order) == list(range(small.size(split)))


def test_items_and_labels_are_in_the_order_of_the_index(small):
    assert small.items("test")[7] == Item("test 7", "test 3", 7)  # its length is that before it is cut
    assert small.labels("test").tolist() == [i % 2 for i in range(20)]
    for batch in small.eval_batches("test"):
        assert batch.label.tolist() == small.labels("test")[batch.index.numpy()].tolist()


def test_a_share_of_train_takes_whole_clusters_and_grows(source, tmp_path):
    kept = {s: {i.id for i in document_data(source, tmp_path, train_share=s).items("train")} for s in (0.3, 0.7, 1.0)}
    assert kept[0.3] < kept[0.7] < kept[1.0] and len(kept[1.0]) == 50
    assert len(kept[0.3]) % 2 == len(kept[0.7]) % 2 == 0
    counts = document_data(source, tmp_path, train_share=0.3).counts["train"]
    assert counts["used"] == len(kept[0.3]) and counts["used"] + counts["outside train_share"] == 50
    with pytest.raises(ValueError, match="no training document left of 50"):
        document_data(source, tmp_path, train_share=1e-9)


def test_counting_leaves_the_manifest_alone(small):
    assert "used" in small.record["counts"]["train"] and "used" not in small.manifest["counts"]["train"]


def test_pairs(request, tmp_path):
    LISTED[request.node.nodeid] = {
        split: [
            Document("short first", "a", b"\x01", 0, b"\x02\x03\x04"),
            Document("cut second", "b", b"\x05\x06", 1, b"\x07" * 6),
            Document("empty", "c", b"", 1, b"\x08" * 4, length=77),
        ]
        for split in ("train", "dev", "test")
    }
    data = document_data(GivenDocuments(request.node.nodeid, paired=True), tmp_path)
    (batch,) = data.eval_batches("test")
    assert batch.index.tolist() == [1, 2, 0] and batch.label.tolist() == [1, 1, 0]  # by the longer side
    assert batch.tokens.tolist() == [[CLS, 9, 10], [CLS, PAD, PAD], [CLS, 5, PAD]]
    assert batch.other is not None and batch.other_real is not None
    assert batch.other.tolist() == [[CLS, *[11] * 5], [CLS, *[12] * 4, PAD], [CLS, 6, 7, 8, PAD, PAD]]
    assert batch.other_real.sum(1).tolist() == [6, 5, 4]
    assert [item.length for item in data.items("test")] == [3, 6, 77]
    assert data.counts["test"]["over 5 symbols, cut"] == 1
    assert data.paired and data.classes == 2 and data.class_names == ["no", "yes"]


def test_what_is_known_before_it_is_prepared(tmp_path):
    """GivenDocuments says 3 documents of 30 symbols in all."""
    batch = {"unit": "symbols", "size": 40}
    data = DocumentData("d", GivenDocuments("none"), 20, batch, 1, 0, cache=str(tmp_path))
    assert (data.test_positions, data.usual_batch, data.vocabulary) == (30, (4, 10), 260)
    assert data.plan() == f"d: nothing to download; to be prepared in {tmp_path}"
    assert not data.prepared and list(tmp_path.iterdir()) == []


def test_ragged_rows():
    rows = ragged([symbols_of(text) for text in (b"", b"\x00\x01\x02", b"\xff")], 3)
    assert rows.values.tolist() == [CLS, CLS, 4, 5, CLS, 259]
    assert rows.offsets.tolist() == [0, 1, 4, 6]
    assert rows.padded(np.array([1, 0])).tolist() == [[CLS, 4, 5], [CLS, PAD, PAD]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train_share": 0}, "data.train_share"),
        ({"max_length": 1}, "expected at least 2"),
        ({"pool_batches": 0}, "expected at least 2 and 1"),
        ({"batch": {"unit": "sentences", "size": 4}}, "expected a unit of"),
        ({"batch": {"unit": "documents", "size": 0}}, "a size of at least 1"),
    ],
)
def test_nonsense_is_refused(tmp_path, change, said):
    with pytest.raises(ValueError, match=said):
        document_data(None, tmp_path, **change)


def test_the_model_is_given_int64(small):
    batch = next(small.train_stream())
    assert {batch.tokens.dtype, batch.label.dtype, batch.index.dtype} == {torch.int64}


def test_words_are_the_most_frequent_of_train(request, tmp_path):
    """the: 4, cat: 3, a and dog: 2; of three words the: 1, cat: 2, a: 3 (a before dog), and any other is 0. In test a is as
    frequent as cat."""
    key = request.node.nodeid
    given = {
        "train": ["the cat the the", "a dog the cat cat", "dog a"], "dev": ["a"], "test": ["dog a  the\tcat", "", "the the the the the the"]
    }  # fmt: skip
    LISTED[key] = {
        split: [Document(f"{split} {i}", f"{split} {i}", text.encode(), i % 2) for i, text in enumerate(found)]
        for split, found in given.items()
    }
    data = document_data(GivenDocuments(key), tmp_path, words=3)
    assert data.vocabulary == SPECIALS + 4
    (batch,) = data.eval_batches("test", BatchSize("sentences", 9))
    found = {int(i): [int(t) for t in row if t != PAD] for i, row in zip(batch.index, batch.tokens, strict=True)}
    the, cat, a, other = (SPECIALS + n for n in (1, 2, 3, 0))
    assert found == {0: [CLS, other, a, the, cat], 1: [CLS], 2: [CLS, *[the] * 5]}
    assert data.counts["test"]["over 5 symbols, cut"] == 1
