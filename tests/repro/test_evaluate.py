"""Testing a model: outputs in input order, controls that are controls, columns that mean what they say."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
from hydra.utils import instantiate

from data.gold import gold_links
from data.pairs import Example
from data.vocab import UNK
from reproductions.compose import Job
from reproductions.evaluate import neighbours
from reproductions.job import run
from reproductions.translate import load


def example(words: int) -> Example:
    return Example(f"s{words}", "c", "x " * words, "y", ["x"] * words, ["y"])


def test_a_neighbour_is_another_sentence_of_about_the_same_length() -> None:
    lengths = [5, 1, 9, 5, 3, 7]
    other = neighbours([example(n) for n in lengths])
    assert sorted(other) == list(range(6)), "every translation is used once"
    assert all(i != j for i, j in enumerate(other))
    assert [lengths[j] for j in other] == [5, 3, 1, 7, 5, 9], "the longest has no successor: it gets the shortest"


@pytest.fixture(scope="module")
def tested(tiny: Callable[..., Job]) -> Job:
    """Trained long enough to say something, with a vocabulary too small for its text."""
    job = tiny("budget.target_tokens=30000", "data.source_vocab_size=14", "data.target_vocab_size=14")
    run(job.config, job.folder, [])
    return job


def records(job: Job, name: str) -> list[dict]:
    return [json.loads(line) for line in (job.folder / "sentences" / f"{name}.jsonl").read_text().splitlines()]


def test_sentences_stay_in_input_order(tested: Job) -> None:
    data = instantiate(tested.config["data"])
    data.prepare()
    for split in ("test", "test_long"):
        found, examples = records(tested, split), data.examples(split)
        assert [r["id"] for r in found] == [e.id for e in examples]
        assert [r["reference"] for r in found] == [e.target for e in examples]
        assert [r["reference_tok"] for r in found] == [" ".join(e.target_tokens) for e in examples]
        assert [r["source_tokens"] for r in found] == [len(e.source_tokens) for e in examples]


def test_scores_are_those_of_the_stored_sentences(tested: Job) -> None:
    metrics = json.loads((tested.folder / "result.json").read_text())["metrics"]
    found = records(tested, "test")
    again = sacrebleu.corpus_bleu(
        [r["hypothesis_tok"] for r in found], [[r["reference_tok"] for r in found]], tokenize="none", force=True
    )
    assert metrics["test/bleu"]["value"] == pytest.approx(again.score) and again.score > 0
    detok = sacrebleu.corpus_bleu([r["hypothesis"] for r in found], [[r["reference"] for r in found]])
    assert metrics["test/bleu_detok"]["value"] == pytest.approx(detok.score)
    assert "tok:13a" in metrics["test/bleu_detok"]["signature"] and "tok:none" in metrics["test/bleu"]["signature"]
    total = sum(r["nll"] for r in found) / sum(r["target_tokens"] for r in found)
    assert metrics["test/perplexity"]["value"] == pytest.approx(2.718281828459045**total)


def test_greedy_search_has_results_of_its_own(tiny: Callable[..., Job]) -> None:
    """Those of a beam of one, beside those of the beam that they do not change."""
    plain = ("budget.target_tokens=30000", "decode.splits=[test]", "decode.length_penalty=0.6")
    found = {}
    for beam, greedy in ((4, "true"), (4, "false"), (1, "false")):
        job = tiny(*plain, f"decode.beam={beam}", f"decode.greedy={greedy}")
        run(job.config, job.folder, [])
        found[beam, greedy] = records(job, "test"), json.loads((job.folder / "result.json").read_text())["metrics"]
        if greedy == "true":
            greedily = records(job, "test.greedy"), found[beam, greedy][1]
        else:
            assert not (job.folder / "sentences" / "test.greedy.jsonl").exists()
    assert greedily[0] == found[1, "false"][0] != found[4, "true"][0]
    assert found[4, "true"][0] == found[4, "false"][0]
    assert greedily[1]["test.greedy/bleu"] == found[1, "false"][1]["test/bleu"]


def test_the_no_unk_column_has_no_unknown_word_anywhere(tested: Job) -> None:
    everything, known = records(tested, "test"), records(tested, "test.no_unk")
    assert 0 < len(known) < len(everything)
    expected = [r["id"] for r in everything if r["source_unk"] == r["reference_unk"] == 0]
    assert [r["id"] for r in known] == expected
    assert not any("<unk>" in r["hypothesis_tok"] for r in known)
    assert any("<unk>" in r["hypothesis_tok"] for r in everything), "else the test could not fail"


def test_the_no_unk_column_is_translated_with_unk_forbidden(
    tested: Job, loaded: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reproductions import evaluate as module_under_test
    from reproductions.config import Decode

    module, data, config = loaded
    asked: dict[tuple[int, ...], int] = {}
    search = module_under_test.search

    def spy(module, source, mask, settings, forbid=()):
        asked[tuple(forbid)] = asked.get(tuple(forbid), 0) + len(source)
        return search(module, source, mask, settings, forbid)

    monkeypatch.setattr(module_under_test, "search", spy)
    module_under_test.evaluate(module, data, Decode(**config["decode"]), tmp_path, 1)
    everything = [r for split in ("test", "test_long") for r in records(tested, split)]
    known = sum(r["source_unk"] == r["reference_unk"] == 0 for r in everything)
    assert asked == {(): 40, (UNK,): known}


def test_the_shuffled_control_scores_other_sentences(tested: Job) -> None:
    plain, control = records(tested, "test"), records(tested, "test.shuffled")
    assert sorted(r["hypothesis_tok"] for r in plain) == sorted(r["hypothesis_tok"] for r in control)
    assert [r["reference"] for r in plain] == [r["reference"] for r in control]
    metrics = json.loads((tested.folder / "result.json").read_text())["metrics"]
    assert metrics["test.shuffled/bleu"]["value"] < metrics["test/bleu"]["value"]


@pytest.fixture
def loaded(tested: Job) -> tuple:
    return load(tested.folder)


def test_links_of_attention_are_scored_against_links_made_by_hand(tested: Job) -> None:
    """The generated text knows its links; the rate is counted again from the stored ones."""
    data = instantiate(tested.config["data"])
    data.prepare()
    lines = (tested.folder / "links" / "test.jsonl").read_text().splitlines()
    found = [{tuple(map(int, link.split("-"))) for link in json.loads(line)["links"].split()} for line in lines]
    gold, examples = gold_links(data, "test"), data.examples("test")
    assert [json.loads(line)["id"] for line in lines] == [e.id for e in examples]
    assert all(len(links) == len(e.target_tokens) for links, e in zip(found, examples, strict=True))
    hits = sum(len(links & g.sure) + len(links & g.possible) for links, g in zip(found, gold, strict=True))
    rate = 1 - hits / sum(len(links) + len(g.sure) for links, g in zip(found, gold, strict=True))
    metrics = json.loads((tested.folder / "result.json").read_text())["metrics"]
    assert metrics["test/aer"]["value"] == pytest.approx(rate, abs=1e-12)
    assert rate < 0.5, "a model that has learnt to look words up looks at them"
