"""The page of contested statements: every claim it names is one, and the verdicts are the report's."""

from dataclasses import replace

import pytest

from common.report.claims import load_claims
from common.report.compare import CONTRADICTED, NOT_RUN, Outcome
from common.report.published import load_published
from reproductions.field_guide.contested import PACKAGE, entries, page

CLAIMS = load_claims(PACKAGE / "claims.yaml", load_published(PACKAGE / "published.yaml")).claims


def test_the_verdicts_are_those_of_the_claims() -> None:
    outcomes = [Outcome(claim, NOT_RUN, "no run of it") for claim in CLAIMS]
    text = page("small", outcomes)
    named = [claim for entry in entries() for claim in entry["claims"]]  # type: ignore[attr-defined]
    assert len(named) == len(set(named)) == text.count("○ not run") and "✗" not in text
    place = next(n for n, claim in enumerate(CLAIMS) if claim.id == "A14")
    outcomes[place] = replace(outcomes[place], verdict=CONTRADICTED)
    assert page("small", outcomes).count("✗ contradicted") == 1
    with pytest.raises(KeyError):
        page("small", outcomes[1:place] + outcomes[place + 1 :])


def test_every_statement_says_what_was_tested_and_where_the_test_ends() -> None:
    for entry in entries():
        assert set(entry) == {"title", "said", "test", "claims", "limit"} and all(entry.values())
