"""claims.yaml: published effects are computed, and every error names file, claim, key and what is expected."""

import copy
from pathlib import Path

import pytest

from tests.common.report.planted import CLAIM, PUBLISHED, write_claims


def edited(drop: tuple[str, ...] = (), **changes) -> dict:
    return {key: value for key, value in (CLAIM | changes).items() if key not in drop}


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, 10.0),
        ({"rows": ["good", "fair"]}, 6.0),
        ({"kind": "ordering", "rows": ["good", "fair", "poor"]}, 4.0),
        ({"kind": "ratio"}, 1.5),
        ({"published": {"table": "table_1", "column": "bleu", "rows": ["good", "fair"]}}, 6.0),
        ({"rows": ["poor", "good"], "direction": "less"}, -10.0),
    ],
)
def test_the_published_effect_is_computed_from_published_yaml(tmp_path: Path, changes: dict, effect: float):
    [claim] = write_claims(tmp_path, [edited(**changes)]).claims
    assert claim.target is not None
    assert claim.target.value == pytest.approx(effect)


def test_a_published_number_that_changes_changes_the_effect(tmp_path: Path):
    published = copy.deepcopy(PUBLISHED)
    published["tables"][0]["rows"]["poor"]["bleu"] = 28.5
    [claim] = write_claims(tmp_path, [CLAIM], published).claims
    assert claim.target is not None and claim.target.value == 1.5


@pytest.mark.parametrize(
    ("direction", "effect", "enough"),
    [("greater", 5.0, True), ("greater", 4.9, False), ("greater", 20.0, True), ("greater", 20.1, False)],
)
def test_the_band_is_a_multiple_of_the_published_effect(tmp_path: Path, direction: str, effect: float, enough: bool):
    [claim] = write_claims(tmp_path, [edited(direction=direction)]).claims
    assert claim.big_enough(effect) is enough


@pytest.mark.parametrize(("direction", "threshold", "inside"), [("greater", 3.0, 3.5), ("less", -3.0, -3.5)])
def test_a_threshold_goes_with_the_direction(tmp_path: Path, direction: str, threshold: float, inside: float):
    [claim] = write_claims(tmp_path, [edited(("published", "band"), direction=direction, threshold=threshold)]).claims
    assert claim.big_enough(inside) and claim.big_enough(threshold)
    assert not claim.big_enough(threshold - claim.direction * 0.1)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (edited(kind="gapp"), "gain.kind: got 'gapp', did you mean gap"),
        (edited(rows=["good"]), "gain.rows: gap takes 2 rows, got 1"),
        (edited(rows=["good", "bad"]), "gain.published: "),
        (edited(("published", "band"), threshold=1, rows=["good", "bad"]), "gain.rows: no row 'bad' in "),
        (edited(("direction",)), "gain.direction: missing, expected text"),
        (edited(direction="less"), "gain.direction: the published effect +10 says otherwise: check the rows' order"),
        (edited(("band",)), "gain.band: state what counts as reproduced: published with band, or threshold"),
        (edited(band=[2, 1]), "gain.band: expected [low, high] with low <= high, got [2, 1]"),
        (edited(bands=[1, 2]), "gain.bands: unknown key, did you mean band"),
        (edited(("published", "band"), threshold=-1), "gain.threshold: -1 is on the wrong side of no effect (0)"),
        (edited(subset="no_ukn"), "gain.subset: got 'no_ukn', did you mean no_unk"),
        (edited(testable=["small"]), "gain.testable: scale 'paper' must be either in testable or, with a reason, in"),
        (edited(testable=["small", "paper", "smoke"]), "gain.testable: scale 'smoke' must be either in testable or"),
        (
            edited(testable=["small", "paper", "huge"]),
            "gain.testable: unknown scale huge, expected smoke, small, paper",
        ),
        (edited(kind="equivalence"), "gain.margin: missing, expected a number"),
        (edited(kind="slope", rows=["good"]), "gain.published: a slope has no published number to be computed from"),
        (
            edited(("published", "band", "metric"), kind="slope", rows=["good"], field="seconds", threshold=1),
            "gain.field: a slope needs a metric over sentences",
        ),
        (
            edited(("published", "band"), kind="bound", rows=["good"], relative_to=[1, 50], threshold=0.9),
            "gain.source_tokens: missing, expected [low, high]",
        ),
    ],
)
def test_errors_name_file_claim_and_key(tmp_path: Path, claim: dict, message: str):
    with pytest.raises(ValueError) as error:
        write_claims(tmp_path, [claim])
    assert str(error.value).startswith(f"{tmp_path}/claims.yaml: claims.{message}")


def test_two_claims_of_one_id_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="claims: ids must differ, got gain, gain"):
        write_claims(tmp_path, [CLAIM, CLAIM])


def test_an_effect_from_memory_is_no_target(tmp_path: Path):
    published = copy.deepcopy(PUBLISHED)
    published["tables"][0]["evidence"] = "recalled"
    with pytest.raises(ValueError, match="gain.published: .* evidence 'recalled'"):
        write_claims(tmp_path, [CLAIM], published)
