import itertools
import lzma

import numpy as np
import pytest
import torch

from data import language_modeling, long_text
from data.bucketing import BatchSize
from data.sources.toy_bytes import ToyBytes
from data.stream import Item
from data.symbols import MASK, PAD, SPECIALS
from tests.data.long_sources import byte_data, text_source

TRAIN = [bytes(range(60)), bytes(range(60, 100))]  # byte i stands at place i
DEV, TEST = [b"abcdefghijk"], [b"abc", b"", b"defgh", b"ijk"]


@pytest.fixture
def source(request):
    return text_source(request.node.nodeid, train=TRAIN, dev=DEV, test=TEST)


@pytest.fixture
def small(source, tmp_path):
    return byte_data(source, tmp_path)


def take(stream, n):
    return list(itertools.islice(stream, n))


def symbols(ids):
    return bytes(int(i) - SPECIALS for i in ids if i >= SPECIALS)


def same(a, b):
    names = ("tokens", "targets", "scored", "real", "index", "update_tokens")
    return a.stage == b.stage and all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def test_targets_are_the_next_symbols(small):
    for batch in take(small.train_stream(), 20):
        assert batch.tokens.shape == (2, 8) and batch.scored.all() and batch.real.all()
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
        place = (batch.index[:, None] + torch.arange(8)) % 100
        assert torch.equal(batch.tokens, place + SPECIALS)  # byte i stands at place i of the text
        assert torch.equal(batch.targets, (place + 1) % 100 + SPECIALS)


def test_an_epoch_goes_once_around_the_text_from_another_place_each_time(small):
    """100 bytes make 12 sequences of 8: six batches; 4 bytes are left over, each epoch others."""
    epochs = [[i for batch in take(small.train_stream(6 * e), 6) for i in batch.index.tolist()] for e in range(20)]
    for starts in epochs:
        read = {(start + i) % 100 for start in starts for i in range(8)}
        assert len(read) == 96
    assert len({min(starts) % 8 for starts in epochs}) > 1 and len({tuple(starts) for starts in epochs}) == 20


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("start", [1, 5, 6, 31])
def test_a_stream_can_start_at_any_batch(source, tmp_path, objective, start):
    whole = take(byte_data(source, tmp_path, objective=objective).train_stream(), start + 3)
    resumed = take(byte_data(source, tmp_path, objective=objective).train_stream(start), 3)
    assert all(same(a, b) for a, b in zip(resumed, whole[start:], strict=True))


def test_the_seed_decides_and_nothing_else(source, tmp_path):
    def stream(seed):
        return take(byte_data(source, tmp_path, objective="masked", seed=seed).train_stream(), 5)

    first = stream(1)
    np.random.seed(0)
    torch.manual_seed(0)
    assert all(same(a, b) for a, b in zip(first, stream(1), strict=True))
    assert not all(same(a, b) for a, b in zip(first, stream(2), strict=True))


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 2), (3, 1)])
def test_ranks_and_micro_batches_share_an_update(source, tmp_path, objective, world, accumulate):
    data = byte_data(source, tmp_path, objective=objective)
    alone = take(data.train_stream(), 4)
    ranks = [take(data.train_stream(0, rank, world, accumulate), 4 * accumulate) for rank in range(world)]
    for k, batch in enumerate(alone):
        parts = [part for rank in ranks for part in rank[k * accumulate : (k + 1) * accumulate]]
        assert sum(int(part.target_tokens) for part in parts) == int(batch.update_tokens)
        assert {int(part.update_tokens) for part in parts} == {int(batch.update_tokens)}
        rows = {int(i): row for part in parts for i, row in zip(part.index, part.tokens, strict=True) if i >= 0}
        for i, row in zip(batch.index, batch.tokens, strict=True):
            assert torch.equal(rows[int(i)], row)


def test_evaluation_by_hand(small):
    """abcdefghijk in pieces of 6, of which the last 2 targets count after the first piece."""
    (batch,) = small.eval_batches("dev", BatchSize("sentences", 9))
    assert [symbols(row) for row in batch.tokens] == [b"abcdef", b"cdefgh", b"efghij"]
    assert [symbols(row[chosen]) for row, chosen in zip(batch.targets, batch.scored, strict=True)] == [
        b"bcdefg",
        b"hi",
        b"jk",
    ]
    assert small.items("dev") == [Item("dev 0 +0", "dev 0, part 1", 11)]
    assert (batch.index.tolist(), small.size("dev"), batch.stage) == ([0, 1, 2], 3, 0)


def test_items_are_blocks_of_the_text_whatever_the_pieces(source, tmp_path, monkeypatch):
    """abc|defgh|ijk, an empty document between, in blocks of 4: abcd, efgh, ijk. Each target belongs where it stands; the
    first symbol is none."""
    monkeypatch.setattr(language_modeling, "BLOCK", 4)
    for length, step in ((3, 3), (7, 2), (100, 1)):
        data = byte_data(source, tmp_path, eval_length=length, eval_step=step)
        assert data.items("test") == [
            Item("test 0 +0", "test 0, part 1", 4),
            Item("test 2 +1", "test 2, part 1", 4),
            Item("test 3 +0", "test 3, part 1", 3),
        ]
        found = {0: [], 1: [], 2: []}
        for b in data.eval_batches("test"):
            for item, symbol in zip(data.item_of("test", b).tolist(), symbols(b.targets[b.scored]), strict=True):
                found[item].append(chr(symbol))
        assert ["".join(found[i]) for i in range(3)] == ["bcd", "efgh", "ijk"]


def test_a_long_document_is_resampled_in_parts(source, tmp_path, monkeypatch):
    monkeypatch.setattr(language_modeling, "BLOCK", 4)
    monkeypatch.setattr(long_text, "PART", 8)
    data = byte_data(source, tmp_path)
    assert [item.cluster for item in data.items("dev")] == ["dev 0, part 1", "dev 0, part 1", "dev 0, part 2"]


def test_the_same_bytes_are_hidden_whatever_the_length(source, tmp_path, monkeypatch):
    monkeypatch.setattr(language_modeling, "HIDDEN_BY", 5)
    shown = []
    for length in (1, 3, 5, 100):
        data = byte_data(source, tmp_path, objective="masked", eval_length=length, eval_step=length, mask_rate=0.4)
        batches = list(data.eval_batches("train"))
        shown.append(
            [torch.cat([t[b.real] for b in batches for t in [getattr(b, name)]]) for name in ("tokens", "scored")]
        )
    for tokens, scored in shown[1:]:
        assert torch.equal(tokens, shown[0][0]) and torch.equal(scored, shown[0][1])
    assert int(shown[0][1][:5].sum()) == 2


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("split", ["dev", "test", "train"])
def test_every_target_belongs_to_an_item(source, tmp_path, objective, split, monkeypatch):
    monkeypatch.setattr(language_modeling, "BLOCK", 4)
    data = byte_data(source, tmp_path, objective=objective, eval_length=7, eval_step=3, mask_rate=0.3)
    scored = {int(i): int(n) for b in data.eval_batches(split) for i, n in zip(b.index, b.scored.sum(1), strict=True)}
    assert sorted(scored) == list(range(data.size(split)))
    places = torch.cat([data.item_of(split, b) for b in data.eval_batches(split)])
    assert len(places) == sum(scored.values()) and set(places.tolist()) <= set(range(len(data.items(split))))
    if objective == "causal":
        assert sum(scored.values()) == len(data.texts[split]) - 1


def test_a_short_last_piece_is_padded(source, tmp_path):
    data = byte_data(source, tmp_path, eval_length=4, eval_step=4)
    last = list(data.eval_batches("dev"))[-1]
    assert symbols(last.tokens[-1]) == b"ij" and symbols(last.targets[-1]) == b"jk"
    assert last.tokens[-1].tolist()[2:] == last.targets[-1].tolist()[2:] == [PAD, PAD]
    assert last.real[-1].tolist() == last.scored[-1].tolist() == [True, True, False, False]


def test_a_text_shorter_than_a_sequence_is_padded(source, tmp_path):
    data = byte_data(source, tmp_path, length=128)
    batch = next(data.train_stream())
    assert batch.tokens.shape == (2, 128)
    assert batch.real.sum(1).tolist() == batch.scored.sum(1).tolist() == [99, 99]
    assert [symbols(row) for row in batch.targets] == [bytes(range(1, 100))] * 2
    assert data.steps_for_tokens(2 * 99 + 1) == 2 and data.epochs(1) == 2


def test_masked_evaluation_is_the_same_whatever_the_seed_and_the_batch(source, tmp_path):
    def tested(seed, rows):
        data = byte_data(source, tmp_path, objective="masked", seed=seed, mask_rate=0.4)
        return torch.cat([batch.tokens for batch in data.eval_batches("test", BatchSize("sentences", rows))])

    assert torch.equal(tested(1, 1), tested(2, 5))


def test_masked_batches(source, tmp_path):
    data = byte_data(source, tmp_path, objective="masked", mask_rate=0.25)
    shown, places = set(), set()
    for k, batch in enumerate(take(data.train_stream(), 40)):
        places |= {(k % 4, *row) for row in batch.scored.tolist()}
        assert batch.scored.sum(1).tolist() == [2, 2]  # a quarter of 8
        assert torch.equal(batch.targets, (batch.index[:, None] + torch.arange(8)) % 100 + SPECIALS)
        assert torch.equal(batch.tokens[~batch.scored], batch.targets[~batch.scored])
        shown |= set((batch.tokens[batch.scored] == MASK).tolist())
    assert shown == {True, False} and len(places) > 40  # of 80 rows; a row has 28 choices
    pieces = [symbols(row) for batch in data.eval_batches("test") for row in batch.targets]
    assert b"".join(pieces) == b"abcdefghijk"
    assert [len(piece) for piece in pieces] == [6, 5]


def test_evaluation_takes_as_many_symbols_at_once_as_training(source, tmp_path):
    data = byte_data(source, tmp_path, length=8, batch=3, eval_length=6)
    assert [len(batch) for batch in data.eval_batches("train")] == [4] * 12
    assert [len(batch) for batch in data.eval_batches("train", BatchSize("tokens", 5))][:2] == [1, 1]


STAGES = [{"share": 0.25, "length": 4, "batch": 3}, {"share": 0.75, "length": 16, "batch": 2}]


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_stages_share_the_tokens(source, tmp_path, objective):
    data = byte_data(source, tmp_path, objective=objective, stages=STAGES, target_tokens=480)
    steps = data.steps_for_tokens(480)
    batches = take(data.train_stream(), steps + 1)
    seen = [int(batch.target_tokens) for batch in batches]
    assert sum(seen[: steps - 1]) < 480 <= sum(seen[:steps])
    stages = [batch.stage for batch in batches]
    assert stages == sorted(stages) and set(stages) == {0, 1}
    first = stages.index(1)
    assert first == data.stages.ends[0] and sum(seen[: first - 1]) < 120 <= sum(seen[:first])
    assert [batches[0].tokens.shape, batches[first].tokens.shape] == [(3, 4), (2, 16)]
    assert data.epochs(first) == pytest.approx(first * 12 / 100)
    assert data.epochs(steps) == pytest.approx((first * 12 + (steps - first) * 32) / 100)
    around = {(int(i) + j) % 100 for batch in take(data.train_stream(first), 3) for i in batch.index for j in range(16)}
    assert len(around) == 96  # a stage starts with an epoch of its own: six sequences of 16
    resumed = take(data.train_stream(first - 1), 3)
    assert all(same(a, b) for a, b in zip(resumed, batches[first - 1 :], strict=False))


def test_stages_need_to_know_how_many_tokens_they_share(source, tmp_path):
    with pytest.raises(ValueError, match="got no data.target_tokens"):
        byte_data(source, tmp_path, stages=STAGES)


@pytest.mark.parametrize("tokens", [0, 1, 16, 17, 160])
def test_steps_for_tokens(small, tokens):
    """An update has 2 * 8 targets."""
    assert small.steps_for_tokens(tokens) == -(-tokens // 16)


def test_what_is_said_of_it(small):
    content = {"train": b"".join(TRAIN), "dev": b"".join(DEV), "test": b"".join(TEST)}
    extreme = 9 | lzma.PRESET_EXTREME
    bound = {split: 8 * len(lzma.compress(text, preset=extreme)) / len(text) for split, text in content.items()}
    assert small.record["xz_bits_per_byte"] == pytest.approx(bound)
    assert small.record["counts"]["test"] == {"bytes": 11, "kept": 4}
    assert (small.record["name"], small.record["licence"], small.record["source"]) == ("small", "none", "GivenTexts")
    assert "2 sequences of 8 bytes" in small.describe() and "\n" not in small.describe()
    assert (small.vocabulary, small.splits, small.downloads) == (260, ["train", "dev", "test"], False)
    assert small.plan() == f"small: prepared in {small.folder}"


def test_the_checksum_is_of_the_text_alone(source, small, tmp_path):
    other = byte_data(source, tmp_path, objective="masked", length=4, seed=7)
    assert (other.checksum, other.folder) == (small.checksum, small.folder)
    changed = text_source("changed", train=[*TRAIN, b"!"], dev=DEV, test=TEST)
    assert byte_data(changed, tmp_path).checksum != small.checksum


def test_a_checkpoint_holds_the_place_in_the_stream(source, tmp_path):
    before, after = byte_data(source, tmp_path), byte_data(source, tmp_path)
    whole = take(before.train_stream(), 5)
    for _ in range(3):
        before.batch_done()
    after.load_state_dict(before.state_dict())
    assert all(same(a, b) for a, b in zip(after.train_dataloader(), whole[3:], strict=False) if a is not None)
    assert sum(len(batch) for batch in after.val_dataloader()) == after.size("dev")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"objective": "both"}, "data.objective both"),
        ({"mask_rate": 0}, "a rate above 0"),
        ({"mask_rate": 1.1}, "a rate above 0"),
        ({"length": 0}, "expected at least 1"),
        ({"eval_step": 7}, "a step of at most eval_length"),
        ({"eval_step": 0}, "a step of at most eval_length"),
    ],
)
def test_nonsense_is_refused(tmp_path, change, said):
    with pytest.raises(ValueError, match=said):
        byte_data(None, tmp_path, **change)


def test_generated_records_keep_their_values():
    texts = ToyBytes(keys=5, value=6, letters=4, records=40, train=3, dev=1, test=1).texts(None, {})  # type: ignore[arg-type]
    seen = set()
    for text in (text for split in texts.values() for text in split):
        pairs = [line.split(":") for line in text.text.decode().splitlines()]
        values = dict(pairs)
        assert len(pairs) == 40 and len(values) == 5 and all(values[key] == value for key, value in pairs)
        assert set("".join(values.values())) <= set("abcd") and len(text.text) == 40 * 10
        seen.add(text.text)
    assert len(seen) == 5


@pytest.mark.parametrize("change", [{"keys": 0}, {"keys": 677}, {"letters": 1}, {"test": 0}, {"value": 0}])
def test_records_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="toy_bytes: got"):
        ToyBytes(**{"keys": 5, "value": 6, "letters": 4, "records": 40, "train": 3, "dev": 1, "test": 1} | change)


def test_evaluation_is_as_the_last_stage(source, tmp_path):
    stages = [{"share": 0.5, "length": 4, "batch": 2}, {"share": 0.5, "length": 8, "batch": 1}]
    data = byte_data(source, tmp_path, stages=stages, target_tokens=100)
    assert {batch.stage for batch in data.eval_batches("test")} == {1}
    assert {batch.stage for batch in byte_data(source, tmp_path).eval_batches("test")} == {0}
