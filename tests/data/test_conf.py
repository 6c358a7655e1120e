"""Every file of conf/data gives a data module."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from data.bucketing import BatchSize
from data.sources.bible import Bible
from data.subwords import Subword
from data.translation import TranslationData

CONF = Path(__file__).parents[2] / "conf"
OWN = [
    "data.source_lang=en",
    "data.target_lang=fr",
    *(f"data.source.splits.{s}=[a,b]" for s in ("train", "dev", "test")),
]


def build(name: str, *overrides: str) -> TranslationData:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return instantiate(compose(overrides=[f"+data={name}", "+seed=3", *overrides]).data)


@pytest.mark.parametrize("path", sorted((CONF / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_gives_a_data_module(path, tmp_path):
    data = build(path.stem, f"data.cache={tmp_path}", *(OWN if path.stem == "files" else ()))
    assert isinstance(data, TranslationData)
    pairs = path.stem.removesuffix("_bpe")  # the same pairs, prepared once for words and for subwords
    assert (data.name, data.seed) == (pairs, 3)
    assert (data.subword is not None) == (pairs != path.stem)
    if path.stem != "files":
        assert data.plan().startswith(f"{pairs}: ")
    assert list(tmp_path.iterdir()) == []


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
