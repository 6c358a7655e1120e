"""The paper's own files: numbers typed here a second time, from the paper, and claims that point at them."""

from pathlib import Path

import pytest

from common.report.claims import Claims, load_claims
from common.report.measures import Measure
from common.report.published import Published, load_published

FOLDER = Path(__file__).parents[2] / "reproductions" / "bahdanau"
TABLE_1 = {
    "rnnencdec_30": (13.93, 24.19),
    "rnnsearch_30": (21.50, 31.44),
    "rnnencdec_50": (17.82, 26.71),
    "rnnsearch_50": (26.75, 34.16),
    "rnnsearch_50_star": (28.45, 36.15),
    "moses": (33.30, 35.63),
}
# updates x 1e5, epochs, hours, train NLL, dev NLL
TABLE_2 = {
    "rnnencdec_30": (8.46, 6.4, 109, 28.1, 53.0),
    "rnnencdec_50": (6.00, 4.5, 108, 44.0, 43.6),
    "rnnsearch_30": (4.71, 3.6, 113, 26.7, 47.2),
    "rnnsearch_50": (2.88, 2.2, 111, 40.7, 38.1),
    "rnnsearch_50_star": (6.67, 5.0, 252, 36.7, 35.2),
}
EFFECTS = {
    "attention_gain_50": 8.93,
    "attention_gain_50_no_unk": 7.45,
    "attention_gain_30": 7.57,
    "short_training_beats_encdec_50": 3.68,
    "longer_training_helps": 1.70,
}


@pytest.fixture(scope="module")
def published() -> Published:
    return load_published(FOLDER / "published.yaml")


@pytest.fixture(scope="module")
def claims(published: Published) -> Claims:
    return load_claims(FOLDER / "claims.yaml", published)


def test_table_1(published: Published):
    table = published.table("table_1")
    assert {row.id: (row.values["bleu_all"], row.values["bleu_no_unk"]) for row in table.rows} == TABLE_1


def test_table_2(published: Published):
    names = ("updates_x1e5", "epochs", "hours", "train_nll", "dev_nll")
    rows = {row.id: tuple(row.values[name] for name in names) for row in published.table("table_2").rows}
    assert rows == TABLE_2


def test_the_stars_go_to_the_longer_training(published: Published):
    ratio = TABLE_2["rnnsearch_50_star"][0] / TABLE_2["rnnsearch_50"][0]
    assert ratio == pytest.approx(2.3, abs=0.05)  # what a run of the starred row is given more of
    row = published.table("table_1").row("rnnsearch_50_star")
    assert row is not None and row.label == "RNNsearch-50*"


def test_effects_are_computed_from_the_table(claims: Claims):
    effects = {claim.id: claim.target.value for claim in claims.claims if claim.target}
    assert effects == pytest.approx(EFFECTS)


def test_claims_read_what_they_say(claims: Claims):
    by_id = {claim.id: claim for claim in claims.claims}
    assert len(by_id) == 10
    assert by_id["encdec_falls_with_length"].direction == -1
    for name in ("encdec_falls_with_length", "attention_falls_less"):
        assert by_id[name].reading == Measure("bleu", "test", "all", None, True)
        assert by_id[name].relative
    beyond = by_id["no_deterioration_beyond_50"]
    assert beyond.reading == Measure("bleu", "test_long", "all", (51, 80))
    assert (beyond.baseline, beyond.null) == ((21, 50), 0.9)
    assert by_id["attention_gain_50_no_unk"].reading == Measure("bleu", "test", "no_unk")


def test_every_claim_is_testable_at_small_and_paper(claims: Claims):
    assert all(list(claim.not_testable) in ([], ["smoke"]) for claim in claims.claims)
