"""The page of contested statements: every claim it names is one, and the verdicts are those of RESULTS.md."""

import pytest

from common.report.claims import load_claims
from common.report.published import load_published
from common.report.stored import Stored
from reproductions.field_guide.contested import PACKAGE, entries, page, verdicts

CLAIMS = load_claims(PACKAGE / "claims.yaml", load_published(PACKAGE / "published.yaml")).claims


def test_the_verdicts_are_those_of_the_claims() -> None:
    found = {claim.id: Stored("not run", "", claim.claim, "", "", "no run of it") for claim in CLAIMS}
    text = page(found)
    named = [claim for entry in entries() for claim in entry["claims"]]  # type: ignore[attr-defined]
    assert len(named) == len(set(named)) == text.count("○ not run") and "✗" not in text
    found["A14"] = Stored("contradicted", "one seed", "", "+1", "", "")
    assert page(found).count("✗ contradicted (one seed)") == 1
    del found["A14"]
    with pytest.raises(KeyError):
        page(found)


def test_the_page_is_of_the_stored_results() -> None:
    assert (PACKAGE / "CONTESTED.md").read_text(encoding="utf-8") == page(verdicts())


def test_every_statement_says_what_was_tested_and_where_the_test_ends() -> None:
    for entry in entries():
        assert set(entry) == {"title", "said", "test", "claims", "limit"} and all(entry.values())
