"""Every file of conf/data gives a data module."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from data.bucketing import BatchSize
from data.documents import DocumentData
from data.language_modeling import ByteData
from data.sequences import SequenceData
from data.sources.bible import Bible
from data.subwords import Subword
from data.translation import TranslationData
from tests.data.kinds import NAMES, kind

CONF = Path(__file__).parents[2] / "conf"
OWN = [
    "data.source_lang=en",
    "data.target_lang=fr",
    *(f"data.source.splits.{s}=[a,b]" for s in ("train", "dev", "test")),
]


LONG: dict[str, type] = {"ByteData": ByteData, "DocumentData": DocumentData, "SequenceData": SequenceData}
FILES = {k: sorted(name for name in NAMES if kind(name) == k) for k in ("TranslationData", *LONG)}


def instance(name: str, *overrides: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return instantiate(compose(overrides=[f"+data={name}", "+seed=3", *overrides]).data)


def build(name: str, *overrides: str) -> TranslationData:
    return instance(name, *overrides)


@pytest.mark.parametrize("name", FILES["TranslationData"])
def test_every_file_of_pairs_gives_a_data_module(name, tmp_path):
    data = build(name, f"data.cache={tmp_path}", *(OWN if name == "files" else ()))
    assert isinstance(data, TranslationData)
    pairs = name.removesuffix("_bpe")  # the same pairs, prepared once for words and for subwords
    assert (data.name, data.seed) == (pairs, 3)
    assert (data.subword is not None) == (pairs != name)
    if name != "files":
        assert data.plan().startswith(f"{pairs}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for k in LONG for name in FILES[k]])
def test_every_file_of_long_sequences_gives_a_data_module(name, tmp_path):
    data = instance(name, f"data.cache={tmp_path}")
    assert isinstance(data, LONG[kind(name)])
    shared = next((other for other in FILES["ByteData"] if name == f"{other.removesuffix('_bytes')}_masked"), name)
    shared = {"digits_generated": "digits", "cifar10_generated": "cifar10_pixels"}.get(name, shared)
    assert (data.name, data.seed) == (shared.removesuffix("_words"), 3)  # masked, as words, generated: the same text
    assert data.plan().startswith(f"{data.name}: ") and data.test_positions > 0
    if isinstance(data, DocumentData):
        rows, length = data.usual_batch
        assert rows == data.batch_size.size and 2 <= length <= data.max_length
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["toy_bytes", "toy_masked", "toy_documents", "toy_pairs", "recall"])
def test_small_generated_sets_work_from_their_files(name, tmp_path):
    data = instance(name, f"data.cache={tmp_path}")
    data.prepare()
    batch = next(data.train_stream())
    assert int(batch.target_tokens) > 0 and data.downloads is False
    scored = sum(int(b.target_tokens) for b in data.eval_batches("test"))
    assert (
        scored == data.size("test")
        if kind(name) == "DocumentData"
        else 0 < scored <= sum(i.length for i in data.items("test"))
    )


def test_masked_and_causal_read_the_same_text(tmp_path):
    causal, masked = (instance(name, f"data.cache={tmp_path}") for name in ("toy_bytes", "toy_masked"))
    assert causal.folder == masked.folder and causal.causal and not masked.causal


def test_the_papers_sequences():
    """Longformer, Beltagy et al. 2020, section 4.2 and Table 12: the first phase, and the evaluation."""
    data = instance("enwik8")
    assert (data.length, data.batch_size, data.eval_length, data.eval_step) == (2048, 32, 32256, 512)
    assert instance("text8").source.url.endswith("text8.zip")


def test_stages_come_from_the_command_line(tmp_path):
    stages = "data.stages=[{share:0.5,length:16,batch:2},{share:0.5,length:32,batch:1}]"
    data = instance("toy_bytes", f"data.cache={tmp_path}", stages, "data.target_tokens=640")
    data.prepare()
    assert data.stages.ends == [10, 20] and data.steps_for_tokens(640) == 20


def test_german_differs_in_the_translation_alone():
    french, german = build("bible_enfr"), build("bible_ende")
    assert isinstance(french.pairs, Bible) and isinstance(german.pairs, Bible)
    assert list(french.pairs.english) == list(german.pairs.english) == ["web", "kjv", "bbe"]
    assert (list(german.pairs.other), german.context.target_lang) == (["elberfelder"], "de")


def test_the_toy_set_works_from_its_file(tmp_path):
    data = build("toy_reverse", f"data.cache={tmp_path}")
    data.prepare()
    assert data.size("train") == 4000
    assert len(data.source_vocab.words) == len(data.target_vocab.words) == 16
    assert len(next(data.train_stream())) == 80


def test_plain_and_configured_sources_are_the_same_data(tmp_path):
    """Hydra hands over its own kinds of list and mapping."""
    data = build("bible_enfr", f"data.cache={tmp_path}")
    plain = TranslationData(
        name="bible_enfr",
        source=Bible(["web", "kjv", "bbe"], ["segond"]),
        source_lang="en",
        target_lang="fr",
        source_vocab_size=5,
        target_vocab_size=5,
        max_words=30,
        batch={"unit": "tokens", "size": 10},
        pool_batches=1,
        seed=9,
        cache=str(tmp_path),
    )
    assert plain.folder == data.folder


def test_a_misspelt_setting_is_an_error():
    with pytest.raises(Exception, match="max_word"):
        build("toy_reverse", "data.max_word=3")


def test_subwords_differ_from_words_in_the_vocabulary_alone():
    words, pieces = build("bible_ende"), build("bible_ende_bpe", "data.subword.size=500")
    assert words.folder == pieces.folder
    assert (words.max_words, words.batch_size) == (pieces.max_words, pieces.batch_size)
    assert pieces.subword == Subword("bpe", 500, True) and pieces.vocab_sizes == (500, 500)


def test_the_papers_subwords():
    """Vaswani et al. 2017, section 5.1."""
    data = build("wmt14_ende_bpe")
    assert data.subword == Subword("bpe", 37000, True)
    assert data.batch_size == BatchSize("tokens", 25000)
