import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from data.bucketing import BatchSize
from data.encoded import encode
from data.subwords import START, Subword, Subwords, train_model
from data.vocab import BOS, EOS, PAD, UNK, Vocab
from tests.data.test_translation import HELD_OUT, pairs

# Characters that sentencepiece reserves, names of special pieces, accents apart, white space of no width, emoji.
ODD = ("\u2581", "\u2581x", "a\u2581b", "\u2585\u2585", "nul\0l", "<s>", "</s>", "<unk>", "<pad>")
ODD += ("e\u0301", "\u200bzero", "\U0001f44d\U0001f3fd")
ENGLISH = "the lower newer low new lowest newest wider widest house houses housing hose lows news widen window"
TEXT = (*ENGLISH.split(), "häuser", "中文", "3.14", "--", "...", *ODD)
COUNTS = Counter({word: 1 + i % 5 for i, word in enumerate(TEXT)})
SIZES: dict[Any, int] = {"bpe": 90, "unigram": 52}
ROOT = Path(__file__).parents[2]


def vocabulary(kind: Any = "bpe", size: int | None = None, counts: Mapping[str, int] = COUNTS) -> Subwords:
    return Subwords.of(train_model(counts, Subword(kind, size or SIZES[kind], True)))


VOCABS = {kind: vocabulary(kind) for kind in SIZES}
BOTH = pytest.mark.parametrize("kind", SIZES)
KNOWN = sorted({char for word in TEXT for char in word})


@BOTH
def test_special_ids_are_the_projects_and_not_counted(kind):
    vocab = VOCABS[kind]
    assert len(vocab) == SIZES[kind] + 4 and len(set(vocab.words)) == SIZES[kind]
    assert min(vocab.encode(TEXT)) == 4 and max(vocab.encode(TEXT)) < len(vocab)
    assert vocab.units([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    processor = vocab.processor
    assert [processor.id_to_piece(i) for i in range(4)] == [" <pad> ", " <s> ", " </s> ", " <unk> "]


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(tmp_path / "m"), vocab_size=60, minloglevel=2, model_type="bpe"
    )
    with pytest.raises(ValueError, match=r"special ids \(-1, 1, 2, 0\), expected \(0, 1, 2, 3\)"):
        Subwords.of((tmp_path / "m.model").read_bytes())


@BOTH
@given(st.lists(st.text(st.sampled_from(KNOWN), min_size=1)))
def test_words_of_seen_characters_come_back(kind, words):
    vocab = VOCABS[kind]
    ids = vocab.encode(words)
    assert UNK not in ids
    assert vocab.decode(ids) == words
    assert len(vocab.split(words)) == len(vocab.units(ids)) == len(ids)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(), min_size=1).map(lambda texts: [word for text in texts for word in text.split()]).filter(len))
def test_any_text_comes_back_from_a_model_of_itself(words):
    """As few pieces as there may be: the characters alone. Nothing is normalised, folded or left out."""
    vocab = vocabulary(size=1 + len({char for word in words for char in word}), counts=Counter(words))
    assert UNK not in vocab.encode(words)
    assert vocab.decode(vocab.encode(words)) == words


@BOTH
def test_unseen_characters_are_unknown(kind):
    vocab = VOCABS[kind]
    ids = vocab.encode(["loΩw", "Ω"])
    assert ids.count(UNK) == 2
    assert vocab.decode(ids) == ["lo<unk>w", "<unk>"]
    assert "".join(vocab.split(["loΩw", "Ω"])) == f"{START}loΩw{START}Ω"


def test_a_rare_character_of_a_large_text_is_a_piece():
    """One in 4e8: a coverage in single precision is 1 before it is reached."""
    vocab = vocabulary(size=5, counts={"ab": 200_000_000, "c": 1})
    assert len(vocab) == 9 and {START, "a", "b", "c"} < set(vocab.words)
    assert vocab.encode(["c"]).count(UNK) == 0


def test_pieces_are_joined_to_words():
    vocab = Subwords((f"{START}low", "er", f"{START}new", START, f"{START}\u2002"), VOCABS["bpe"].processor)
    low, er, new, start, stand_in = range(4, 9)
    assert vocab.decode([low, er, new]) == ["lower", "new"]
    assert vocab.decode([er, er, start, er, start, new, start]) == ["erer", "er", "new"]
    assert vocab.decode([low, UNK, er, UNK, new, UNK]) == ["low<unk>er<unk>", "new<unk>"]
    assert vocab.decode([BOS, low, EOS, er, PAD]) == ["<s>", "low", "</s>", "er", "<pad>"]
    assert vocab.decode([stand_in, er]) == [f"{START}er"], "the sign itself, which the text had"
    assert vocab.decode([]) == []
    assert vocab.units([low, er, UNK]) == [f"{START}low", "er", "<unk>"]


def test_frequent_words_are_one_piece_and_no_piece_crosses_words():
    vocab = vocabulary(size=16, counts={"banana": 100, "ananas": 1, "bandana": 1, "x": 1})
    assert vocab.split(["banana"]) == [f"{START}banana"]
    assert len(vocab.split(["ananas"])) > 1
    assert all(START not in piece[1:] for piece in vocab.words)


def test_the_same_counts_give_the_same_bytes_in_any_process():
    code = "import json, sys; from data.subwords import *; counts, settings = json.load(sys.stdin)\n"
    code += "sys.stdout.buffer.write(b'|'.join(train_model(counts, Subword(*s)) for s in settings))"
    given = [[kind, size, True] for kind, size in SIZES.items()]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([COUNTS, given]).encode(),
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "4"},
        capture_output=True,
        check=True,
    )
    assert ran.stdout == b"|".join(train_model(COUNTS, Subword(kind, size, True)) for kind, size in SIZES.items())


@BOTH
def test_the_order_of_the_counts_is_nothing(kind):
    backwards, settings = dict(reversed(COUNTS.items())), Subword(kind, SIZES[kind], True)
    assert train_model(backwards, settings) == train_model(COUNTS, settings)


def test_counts_count():
    assert vocabulary(size=13, counts={"abab": 9, "cdcd": 1}).words[0] in ("ab", f"{START}ab")
    assert vocabulary(size=13, counts={"abab": 1, "cdcd": 9}).words[0] in ("cd", f"{START}cd")


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("bpe", 4, "got 4, expected more than the 4 characters of the training text"),
        ("bpe", 500, "got 500, more pieces than the 2 different words of the training text make"),
        ("unigram", 500, "got 500, more pieces"),
        ("words", 50, "got 50 of kind words, expected some of bpe or unigram"),
        ("bpe", 0, "got 0 of kind bpe"),
    ],
)
def test_sizes_that_the_text_does_not_give_are_refused(kind, size, message):
    with pytest.raises(ValueError, match=message):
        train_model({"abc": 1, "cd": 2}, Subword(kind, size, True))


@pytest.mark.parametrize("word", ["", "a b", "a\u2002b"])
def test_words_hold_no_white_space(word):
    with pytest.raises(ValueError, match="expected words without white space"):
        train_model({word: 1}, Subword("bpe", 9, True))


@pytest.mark.parametrize("vocab", [Vocab(("low", "new")), VOCABS["bpe"]], ids=["words", "subwords"])
@given(st.lists(st.lists(st.sampled_from([*TEXT, "unseen"]), max_size=5), min_size=1))
def test_a_column_is_encoded_as_its_sentences(vocab, sentences):
    found = encode(pa.array(sentences, type=pa.list_(pa.string())), vocab)
    rows = np.split(found.values, found.offsets[1:-1])
    assert [row.tolist() for row in rows] == [[*vocab.encode(sentence), EOS] for sentence in sentences]
    assert (found.values.dtype, found.offsets.dtype) == (np.int32, np.int64)


# A prepared data set

TRAIN = pairs(("low lower", "neu neuer"), ("newer lower", "neuer"), ("wide wider low", "weit weiter neu"))
BPE = {"subword": {"kind": "bpe", "size": 30, "shared": True}, "source_vocab_size": 30, "target_vocab_size": 30}


def changed(**subword):
    return BPE | {"subword": BPE["subword"] | subword} | dict.fromkeys(list(BPE)[1:], subword.get("size", 30))


def test_one_vocabulary_for_both_sides_or_one_each(make_data, listed):
    source = listed({"train": TRAIN, **HELD_OUT})
    shared = make_data(source, **BPE)
    assert shared.source_vocab is shared.target_vocab and len(shared.source_vocab) == 34
    apart = make_data(source, **changed(shared=False, size=14))
    assert (len(apart.source_vocab), len(apart.target_vocab)) == (18, 18)
    assert apart.source_vocab.encode(["low"]).count(UNK) == 0 < apart.target_vocab.encode(["low"]).count(UNK)


def test_the_model_is_of_the_train_split_alone(make_data, listed):
    """Other dev and test text changes the text's checksum, but not the pieces."""
    first = make_data(listed({"train": TRAIN, **HELD_OUT}), **BPE)
    other = {"dev": pairs(("zzz zzz", "zzz")), "test": pairs(("lowlow lowlow lowlow", "qqq"))}
    second = make_data(listed({"train": TRAIN, **other}), name="other", **BPE)
    assert first.text_checksum != second.text_checksum
    assert first.record["subwords"]["checksum"] == second.record["subwords"]["checksum"]
    assert second.source_vocab.encode(["q"]).count(UNK) == 1
    third = make_data(listed({"train": [*TRAIN, *pairs(("lowlow", "neu"))], **HELD_OUT}), name="third", **BPE)
    assert third.record["subwords"]["checksum"] != first.record["subwords"]["checksum"]


def test_the_model_is_of_the_share_trained_on_before_the_length_limit(make_data, listed):
    from data.pairs import Pair, in_share

    train = [Pair(f"{i}", f"chapter {i}", f"abc{chr(945 + i)}", "abc") for i in range(20)]
    source = listed({"train": train, **HELD_OUT})
    half = make_data(source, **changed(size=20), train_share=0.5)
    kept = {pair.source[-1] for pair in train if in_share(pair.cluster, 0.5)}
    assert 0 < len(kept) < 20
    assert {char for char in "".join(half.source_vocab.words) if char > "α" or char == "α"} - {START} == kept
    limited = make_data(listed({"train": TRAIN, **HELD_OUT}), name="other", **BPE, max_words=2)
    assert UNK not in limited.source_vocab.encode(["wide"]) and limited.size("train") == 2


def test_rows_share_a_model_and_other_settings_make_another(make_data, listed, monkeypatch):
    source = listed({"train": TRAIN, **HELD_OUT})
    first = make_data(source, **BPE)
    folders = {first.subword_folder}
    for other in (changed(kind="unigram", size=16), changed(size=29), changed(shared=False, size=14)):
        folders.add(make_data(source, **other).subword_folder)
    folders.add(make_data(source, **BPE, train_share=0.9999).subword_folder)
    assert len(folders) == 5 and {folder.parent for folder in folders} == {first.folder.parent}
    monkeypatch.setattr("data.subword_models.train_model", lambda *_: pytest.fail("trained again"))
    again = make_data(source, **BPE, max_words=2, seed=8)
    assert again.subword_folder == first.subword_folder and again.prepared


def test_a_changed_text_makes_another_model_though_its_settings_are_the_same(make_data, listed):
    first = make_data(listed({"train": TRAIN, **HELD_OUT}), **BPE)
    before = first.subword_folder
    for file in sorted(first.folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    first.folder.rmdir()
    second = make_data(listed({"train": [*TRAIN, *TRAIN[:1]], **HELD_OUT}), **BPE)
    assert second.folder == first.folder and second.subword_folder != before


def test_a_changed_model_file_is_refused(make_data, listed):
    source = listed({"train": TRAIN, **HELD_OUT})
    data = make_data(source, **BPE)
    with (data.subword_folder / "shared.model").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ValueError, match="shared.model: got sha256 .* Delete .* and try again"):
        make_data(source, **BPE)


def test_the_checksum_tells_subwords_and_the_record_says_what_they_are(make_data, listed):
    source = listed({"train": TRAIN, **HELD_OUT})
    words, pieces, fewer = make_data(source), make_data(source, **BPE), make_data(source, **changed(size=29))
    assert len({words.checksum, pieces.checksum, fewer.checksum}) == 3
    assert words.checksum == words.text_checksum == pieces.text_checksum == pieces.record["text_checksum"]
    assert "subwords" not in words.record and "text_checksum" not in words.record
    said = pieces.record["subwords"]
    assert {key: said[key] for key in ("kind", "size", "shared")} == BPE["subword"]
    model = (pieces.subword_folder / "shared.model").read_bytes()
    assert pieces.manifests[1]["models"] == {"shared": hashlib.sha256(model).hexdigest()}
    assert "30 bpe subwords, shared by both sides" in pieces.describe()


def test_limits_count_words_and_batches_count_pieces(make_data, listed):
    source = listed({"train": TRAIN, **HELD_OUT})
    words, pieces = make_data(source, max_words=2), make_data(source, max_words=2, **changed(size=18))
    assert [e.id for e in words.examples("train")] == [e.id for e in pieces.examples("train")] == ["0", "1"]
    assert pieces.counts["train"]["over 2 words"] == 1
    lengths = pieces.corpus.splits["train"].encoded.source.lengths
    assert lengths.tolist() == [len(pieces.source_vocab.encode(e.source_tokens)) + 1 for e in pieces.examples("train")]
    assert lengths.min() > 3, "else nothing is told apart"
    batches = list(pieces.eval_batches("train", BatchSize("tokens", int(lengths.max()))))
    assert [len(batch) for batch in batches] == [1, 1]
    for batch in batches:
        example = pieces.examples("train")[int(batch.index)]
        assert batch.source[0].tolist() == [*pieces.source_vocab.encode(example.source_tokens), EOS]
        assert pieces.target_vocab.decode(batch.target_out[0, :-1].tolist()) == example.target_tokens


def test_both_sizes_must_be_the_models(make_data, listed):
    with pytest.raises(ValueError, match="got 100 and 30, expected 30 twice, the size of data.subword"):
        make_data(listed({"train": TRAIN, **HELD_OUT}), **BPE | {"source_vocab_size": 100})


def test_the_plan_says_what_is_left_to_do(make_data, listed):
    source = listed({"train": TRAIN, **HELD_OUT})
    make_data(source)
    from data.translation import TranslationData
    from tests.data.conftest import settings as arguments

    data = TranslationData(source=source, **arguments(cache=str(make_data(source).context.cache)) | BPE)
    assert data.plan().endswith("; 30 bpe subwords, shared by both sides to be trained") and not data.prepared
    data.prepare()
    assert data.plan() == f"small: prepared in {data.folder}" and data.prepared
