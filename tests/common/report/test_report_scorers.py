"""Values of different scorers are not compared: the cell says why."""

from copy import deepcopy
from pathlib import Path

import pytest

from common.report.claims import load_claims
from common.report.join import build_report
from common.report.published import load_published
from common.report.render.long_csv import long_csv
from common.report.render.markdown import markdown
from common.report.render.page import page
from common.report.render.terminal import terminal
from common.report.stats import Estimate
from common.report.views import Cell, Report
from tests.common.report.planted import CLAIM, PUBLISHED, corpus, plant, results, write_claims

OTHER = "published by mteval-v13a or sacreBLEU's 13a, ours by multi-bleu of tokenised text"


def made(root: Path, table: dict | None = None, column: dict | None = None, metric: str = "bleu") -> Report:
    """One good row at 28 BLEU under every scorer, published at 30."""
    published = deepcopy(PUBLISHED)
    published["tables"][0] |= table or {}
    published["tables"][0]["columns"]["bleu"] |= {"ours": {"metric": metric}, **(column or {})}
    plant(root, "good", 1, corpus(lambda words: 28.0, noise=0.0))
    claims = write_claims(root / "paper", [CLAIM], published)
    return build_report(load_published(root / "paper" / "published.yaml"), claims, results(root), resamples=50)


def cell(report: Report) -> Cell:
    return report.tables[0].rows[0].cells[0]


@pytest.mark.parametrize(
    ("table", "column", "metric"),
    [
        ({}, {}, "bleu"),
        ({"scorer": "multi_bleu"}, {}, "bleu"),
        ({"scorer": "multi_bleu"}, {}, "multi_bleu"),
        ({"scorer": "13a"}, {}, "bleu_detok"),
        ({"scorer": "multi_bleu"}, {"scorer": "13a"}, "bleu_detok"),
        ({}, {"scorer": "13a"}, "bleu_detok"),
    ],
)
def test_like_scorers_are_compared_and_those_that_are_not_stated(tmp_path, table, column, metric):
    found = cell(made(tmp_path, table, column, metric))
    assert isinstance(found.difference, Estimate) and found.unlike == ""
    assert found.difference.value == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("table", "column", "metric", "reason"),
    [
        ({"scorer": "13a"}, {}, "bleu", OTHER),
        ({"scorer": "13a"}, {}, "multi_bleu", OTHER),
        ({"scorer": "multi_bleu"}, {"scorer": "13a"}, "bleu", OTHER),
        (
            {"scorer": "multi_bleu_split"},
            {},
            "bleu",
            "published by multi-bleu of tokenised text, compounds split, ours",
        ),
        ({"scorer": "intl"}, {}, "bleu_detok", "published by sacreBLEU's intl, ours by mteval-v13a"),
        ({"scorer": "unnamed"}, {}, "bleu", "published by a scorer that the paper does not name, ours by multi-bleu"),
    ],
)
def test_unlike_scorers_are_not_compared_and_the_reason_is_shown(tmp_path, table, column, metric, reason):
    report = made(tmp_path, table, column, metric)
    found = cell(report)
    assert found.difference is None and found.within is None
    assert found.unlike.startswith(reason)
    assert isinstance(found.ours, Estimate) and found.published == 30.0, "both are shown"
    for text in (markdown(report), page(report).replace("&#x27;", "'").replace("&#39;", "'"), terminal(report)):
        assert f"not compared: {reason}" in text
    assert f'table_1,good,bleu,not compared,,,,,BLEU,"{found.unlike}"' in long_csv(report)
    assert ",difference," not in long_csv(report)


def test_a_table_that_is_comparable_gives_no_tolerance_mark_to_other_scorers(tmp_path):
    assert cell(made(tmp_path, {"comparable_at": ["small"], "tolerance": 3.0})).within is True
    found = cell(made(tmp_path, {"comparable_at": ["small"], "tolerance": 3.0, "scorer": "intl"}))
    assert found.within is None and found.unlike


@pytest.mark.parametrize("where", ["table", "column"])
def test_a_misspelt_scorer_is_refused(tmp_path, where):
    changes = {"scorer": "multibleu"}
    with pytest.raises(ValueError, match="scorer: got 'multibleu', did you mean multi_bleu"):
        made(tmp_path, changes) if where == "table" else made(tmp_path, column=changes)


def test_a_metric_that_is_not_stored_says_what_computes_it(tmp_path):
    report = made(tmp_path, metric="bleu_intl")
    assert cell(report).ours is None
    assert cell(report).refused == "sacreBLEU intl is not stored: a report with rescore=true scores the sentences again"
    assert "not stored" in markdown(report)
    assert report.scorers is None


def test_the_ladder_is_shown_only_where_all_were_scored_again(tmp_path):
    report = made(tmp_path)
    assert report.scorers and [m.name for m in report.scorers.metrics] == ["bleu", "bleu_detok", "chrf"]
    plant(tmp_path, "fair", 1, corpus(lambda words: 20.0, noise=0.0))
    found = results(tmp_path)
    published = load_published(tmp_path / "paper" / "published.yaml")
    claims = load_claims(tmp_path / "paper" / "claims.yaml", published)
    for row, names in (("good", ["bleu", "bleu_detok", "chrf"]), ("fair", ["bleu", "multi_bleu", "bleu_atat"])):
        (run,) = found.rows[row].ok
        file = run.folder / "sentences" / "test.jsonl"
        sums = run.items(published.tables[0].columns[0].ours).statistics["bleu"]  # type: ignore[union-attr, arg-type]
        run.add_statistics(file, dict.fromkeys(("bleu_atat", "bleu_intl", "bleu_lc"), sums), {"bleu_intl": "signed"})
        scorers = build_report(published, claims, found, resamples=50).scorers
        assert scorers and [m.name for m in scorers.metrics][:3] == names
    assert scorers.signatures[4] == "signed" and len(scorers.metrics) == 7
    assert [c.ours.value for c in scorers.rows[0].cells[:6]] == pytest.approx([28.0] * 6)  # type: ignore[union-attr]


# Rows of words and of pieces

LIKELIHOOD = CLAIM | {"metric": "log_likelihood", "band": None, "published": None, "threshold": 0.1}


def verdict(tmp_path: Path, claim: dict, good: dict, poor: dict) -> tuple[str, str]:
    plant(tmp_path, "good", 1, corpus(lambda words: 30.0), **good)
    plant(tmp_path, "poor", 1, corpus(lambda words: 20.0), **poor)
    claims = write_claims(tmp_path / "paper", [claim])
    published = load_published(tmp_path / "paper" / "published.yaml")
    outcome = build_report(published, claims, results(tmp_path), resamples=50).outcomes[0]
    return outcome.verdict, outcome.reason


def test_rows_of_words_and_of_pieces_compare_if_their_text_is_the_same(tmp_path):
    pieces = {"data_checksum": "text and model", "data": {"text_checksum": "text"}}
    assert verdict(tmp_path, CLAIM, {"data_checksum": "text"}, pieces)[0] == "reproduced"
    other = pieces | {"data": {"text_checksum": "other"}}
    assert verdict(tmp_path, CLAIM, {"data_checksum": "text"}, other)[1].startswith(
        "the rows were run on different data"
    )


def test_a_likelihood_per_token_does_not_compare_words_and_pieces(tmp_path):
    pieces = {"data_checksum": "text and model", "data": {"text_checksum": "text"}}
    assert "count different tokens" in verdict(tmp_path, LIKELIHOOD, {"data_checksum": "text"}, pieces)[1]
    assert "different tokens" not in verdict(tmp_path, LIKELIHOOD, pieces, pieces)[1]
