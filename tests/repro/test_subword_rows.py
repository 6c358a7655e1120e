"""A row of subwords, trained and tested: what is scored and what lengths count in are words."""

import json
import shutil
from collections.abc import Callable

import pytest

from data.subwords import START
from data.tokenize import detokenize
from reproductions.compose import Job
from reproductions.config import Decode
from reproductions.job import run
from reproductions.launcher import finished
from reproductions.translate import Translator, load

SUBWORD = "data.subword={kind: bpe, size: 90, shared: true}"
SIZES = ("data.source_vocab_size=90", "data.target_vocab_size=90")


@pytest.fixture(scope="module")
def tested(tiny: Callable[..., Job]) -> Job:
    job = tiny(SUBWORD, *SIZES, "budget.target_tokens=30000", "decode.heatmaps=2")
    run(job.config, job.folder, [])
    return job


def records(job: Job, name: str) -> list[dict]:
    return [json.loads(line) for line in (job.folder / "sentences" / f"{name}.jsonl").read_text().splitlines()]


def test_texts_are_words_and_predicted_tokens_are_pieces(tested: Job) -> None:
    _, data, _ = load(tested.folder)
    examples = data.examples("test")
    found = records(tested, "test")
    assert [r["reference_tok"].split() for r in found] == [e.target_tokens for e in examples]
    assert [r["source_tokens"] for r in found] == [len(e.source_tokens) for e in examples]
    assert [r["target_tokens"] for r in found] == [len(data.target_vocab.encode(e.target_tokens)) + 1 for e in examples]
    assert sum(r["target_tokens"] for r in found) > 1.2 * sum(len(e.target_tokens) + 1 for e in examples)
    assert not any(START in r["hypothesis_tok"] + r["hypothesis"] for r in found)
    assert [r["hypothesis"] for r in found] == [detokenize(r["hypothesis_tok"].split(), "fr") for r in found]
    assert sum(r["bleu"][0] for r in found) == sum(len(r["hypothesis_tok"].split()) for r in found) > 0
    assert {r["source_unk"] + r["reference_unk"] for r in found} == {0}


def test_heat_maps_are_of_pieces(tested: Job) -> None:
    _, data, _ = load(tested.folder)
    maps = json.loads((tested.folder / "alignments.json").read_text())["alignments"]
    assert maps
    for drawn in maps:
        assert len(drawn["weights"]) == len(drawn["target"]) > 0
        assert {len(row) for row in drawn["weights"]} == {len(drawn["source"])}
        example = next(e for e in data.examples("test") if e.id == drawn["id"])
        assert "".join(drawn["source"]) == "".join(START + word for word in example.source_tokens) + "</s>"


def test_the_result_tells_its_subwords_and_is_of_no_others(tested: Job) -> None:
    result = json.loads((tested.folder / "result.json").read_text())
    _, data, _ = load(tested.folder)
    assert result["data_checksum"] == data.checksum != result["data"]["text_checksum"] == data.text_checksum
    assert result["data"]["subwords"]["size"] == 90
    assert finished(tested)
    shutil.rmtree(data.subword_folder)  # type: ignore[arg-type]
    assert finished(tested), "the same text makes the same model"
    file = tested.folder / "result.json"
    file.write_text(json.dumps(result | {"data_checksum": data.text_checksum}))
    assert not finished(tested)
    file.write_text(json.dumps(result))


def test_translate_splits_and_joins(tested: Job) -> None:
    module, data, config = load(tested.folder)
    stored = records(tested, "test")[:4]
    found = Translator(module, data, Decode(**config["decode"]))([r["source"] for r in stored])
    assert [line.hypotheses[0].text for line in found] == [r["hypothesis"] for r in stored]
    for line, record in zip(found, stored, strict=True):
        assert "".join(line.source).replace(START, " ").split() == record["source"].split()
        looks = [pair.split("-") for pair in line.hypotheses[0].alignment.split()]
        assert [int(t) for _, t in looks] == list(range(len(line.hypotheses[0].units)))
        assert all(int(j) < len(line.source) for j, _ in looks)


def test_a_dictionary_of_words_is_refused(tiny: Callable[..., Job]) -> None:
    with pytest.raises(ValueError, match="a dictionary is of words, expected 0 with data.subword"):
        tiny(SUBWORD, *SIZES, "decode.dictionary_pairs=10")


def test_recurrent_rows_have_no_heads(tested: Job) -> None:
    assert not (tested.folder / "heads.json").exists()
