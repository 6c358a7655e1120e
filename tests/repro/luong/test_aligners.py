"""Aligners that attention is compared with, from the configuration to the report."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from common.metrics.aer import aer, aer_of_sums
from common.report.measures import Measure
from common.report.results import load_results
from common.report.tables import measured_cell, recorded_mismatches
from data.gold import Gold, gold_links
from data.pairs import Example
from data.sources.toy import Toy
from data.translation import TranslationData
from reproductions import finished, measure, provenance
from reproductions.bench import configured
from reproductions.luong.aligners import Aligners, diagonal, ibm1_links, turned_ibm1_links, uniform_sums

ROWS = {"ibm1", "ibm1_with_test", "ibm1_turned", "ibm1_intersection", "diagonal", "uniform"}
SCORES = {"score_location", "score_dot", "score_general", "score_concat"}
"""What the same bench measures of times."""


def example(source: str, target: str, name: str = "1") -> Example:
    return Example(name, name, source, target, source.split(), target.split())


def test_the_diagonal():
    assert diagonal(example("a b c", "x y z")) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(example("a b", "w x y z")) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert diagonal(example("a b c d", "x y")) == {(1, 0), (3, 1)}  # the middle of each half, rounded to its right
    assert diagonal(example("a b c d e", "x")) == {(2, 0)}
    assert diagonal(example("", "x")) == set()


def test_uniform_is_the_mean_over_all_ways_to_link():
    """Every target word to every source word, all 8 ways."""
    one, gold = example("a b", "x y z"), Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (0, 1), (1, 2)}))
    rates = [
        aer(links=[{(i, j) for j, i in enumerate(chosen)}], gold=[gold]).value
        for chosen in itertools.product(range(2), repeat=3)
    ]
    assert aer_of_sums([uniform_sums(one, gold)]).value == pytest.approx(sum(rates) / 8)  # type: ignore[arg-type]


TRAIN = [example("a b", "x y"), example("a", "x"), example("b c", "y z"), example("c", "z")]


def test_links_of_both_directions_are_source_then_target():
    """`z` twice: each is written by c; turned, c is written by the first of them. Of `new` nothing is known."""
    test = [example("c a", "x new z z")]
    assert ibm1_links(TRAIN, test, 5) == [{(1, 0), (0, 2), (0, 3)}]
    assert turned_ibm1_links(TRAIN, test, 5) == [{(1, 0), (0, 2)}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All rows of a small generated set, as the command leaves them."""
    folder = tmp_path_factory.mktemp("aligners")
    data = [f"parts.aligners.data.{key}" for key in ("source.train=200", "source.test=30", "source.words=30")]
    overrides = ["bench=luong", "scale=smoke", f"paths.runs={folder}", f"parts.aligners.data.cache={folder}", *data]
    assert measure.run(configured(overrides), ()) == 0
    return folder


def test_every_row_is_scored_and_the_report_reads_it(runs: Path):
    results = load_results(runs, "luong", "smoke", provenance.source_hash)
    assert set(results.rows) == ROWS | SCORES and not any(row.stale for row in results.rows.values())
    assert recorded_mismatches(results) == []
    values = {}
    for name in sorted(ROWS):
        row = results.rows[name]
        cell = measured_cell(row, Measure("aer"))
        recorded = row.ok[0].field("metrics")["test/aer"]
        assert cell.seeds == ((1, pytest.approx(recorded["value"], abs=1e-12)),)
        values[name] = recorded["value"]
        assert row.ok[0].field("data.name") == "toy_reverse" and row.ok[0].field("data_checksum")
    assert values["ibm1"] < 0.2 and values["uniform"] > 0.8


def test_what_is_stored_is_what_was_scored(runs: Path):
    """The uniform rate by hand, and the links of a row against those of the data."""
    lines = (runs / "luong" / "smoke" / "ibm1-s1" / "links" / "test.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    data = smoke_data(runs)
    gold, examples = gold_links(data, "test"), data.examples("test")
    assert [r["id"] for r in records] == [e.id for e in examples]
    for record, reference in zip(records, gold, strict=True):
        links = {tuple(map(int, link.split("-"))) for link in record["links"].split()}
        assert record["aer"][0] == len(links & reference.sure) and record["aer"][2] == len(links)
    lines = (runs / "luong" / "smoke" / "uniform-s1" / "links" / "test.jsonl").read_text().splitlines()
    assert all(json.loads(line)["aer"][:2] == [1.0, 1.0] for line in lines)  # n links, each hit once in n


def smoke_data(runs: Path) -> TranslationData:
    source = Toy(words=30, shortest=3, longest=10, longest_long=20, train=200, dev=200, test=30, test_long=200)
    sizes: dict[str, Any] = {
        "source_vocab_size": 100,
        "target_vocab_size": 100,
        "max_words": 10,
        "pool_batches": 20,
        "seed": 1,
    }
    data = TranslationData(
        name="toy_reverse", source=source, source_lang="en", target_lang="fr", cache=str(runs),
        batch={"unit": "sentences", "size": 80}, **sizes,
    )  # fmt: skip
    assert data.folder.exists(), "another set than the one of the runs"
    data.prepare()
    return data


def test_the_model_never_sees_the_test_text_unless_it_says_so(runs: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[set[str]] = []

    def spy(pairs, rounds):
        pairs = list(pairs)
        seen.append({" ".join(side) for pair in pairs for side in pair})
        return train(pairs, rounds)

    from reproductions.luong import aligners

    train = aligners.train_ibm1
    monkeypatch.setattr(aligners, "train_ibm1", spy)
    data = smoke_data(runs)
    made = Aligners(data, 2).made(data.examples("train"), data.examples("test"))
    assert set(made) == ROWS - {"uniform"}
    test = {e.target for e in data.examples("test")}
    assert [bool(test & texts) for texts in seen] == [False, False, True]
    assert made["ibm1_intersection"] == [a & b for a, b in zip(made["ibm1"], made["ibm1_turned"], strict=True)]


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_stored_rows_are_told_from_those_of_another_configuration(scale: str, tmp_path: Path):
    config = configured(["bench=luong", f"scale={scale}"])
    assert set(config["rows"]) == ROWS | SCORES
    now = measure.row_config(config, (), "ibm1", config["rows"]["ibm1"])
    record = {
        "seed": 1, "row": "ibm1", "status": "ok",
        "config_hash": provenance.config_hash(now), "source_hash": provenance.source_hash(now),
    }  # fmt: skip
    assert finished.measured_now("luong", scale, record, tmp_path)
    assert not finished.measured_now("luong", scale, record | {"config_hash": "other"}, tmp_path)
