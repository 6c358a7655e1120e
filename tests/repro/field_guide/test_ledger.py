"""The ledger: 110 statements, A01 to A45 and B01 to B65, each with a claim; rows that are there to be read."""

from collections import Counter

import pytest
import yaml

from common.report.claims import load_claims
from common.report.measures import SCALES
from common.report.published import load_published, of_another_paper
from reproductions.bench import configured
from reproductions.compose import CONF, jobs_of
from reproductions.field_guide.probes.kinds import Kinds, row_of
from reproductions.field_guide.variants import VARIANTS

PACKAGE = CONF.parent / "reproductions" / "field_guide"
PUBLISHED = load_published(PACKAGE / "published.yaml")
CLAIMS = load_claims(PACKAGE / "claims.yaml", PUBLISHED).claims
TABLES = sorted(path.stem for path in (CONF / "table").glob("field_guide_*.yaml"))


@pytest.fixture(scope="module")
def trained() -> set[str]:
    return {job.config["row"] for job in jobs_of((f"table={','.join(TABLES)}",), None)}


@pytest.fixture(scope="module")
def measured() -> set[str]:
    return set(configured(["bench=field_guide"])["rows"])


def test_every_statement_has_a_claim() -> None:
    expected = {f"A{n:02}" for n in range(1, 46)} | {f"B{n:02}" for n in range(1, 66)}
    assert {claim.id[:3] for claim in CLAIMS} == expected


def test_every_row_is_one_that_is_trained_or_measured(trained: set[str], measured: set[str]) -> None:
    for row in (row for table in PUBLISHED.tables for row in table.rows):
        if not row.not_run and not of_another_paper(row.id):
            assert (row.id in trained) != (row.id in measured), row.id


def test_every_row_of_the_tables_is_published_once(trained: set[str]) -> None:
    listed = Counter(row.id for table in PUBLISHED.tables for row in table.rows)
    assert trained <= set(listed) and all(listed[row] == 1 for row in trained)


def test_what_no_scale_can_decide_says_why() -> None:
    undecided = [claim for claim in CLAIMS if set(claim.not_testable) == set(SCALES)]
    assert undecided and {claim.id for claim in undecided} == {row.id for row in PUBLISHED.table("undecided").rows}
    for claim in undecided:
        row = PUBLISHED.table("undecided").row(claim.id)
        assert row is not None and row.not_run and set(claim.not_testable.values()) == {row.not_run}


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_what_is_read_at_a_length_is_measured_there(scale: str) -> None:
    """A claim that reads excess at 1024 would be not run, for ever, where `lengths` were others."""
    parts = configured(["bench=field_guide", f"scale={scale}"])["parts"]
    lengths = {str(length) for length in parts["longer"]["lengths"]}
    read = {
        point
        for claim in CLAIMS
        if scale not in claim.not_testable and any(row.startswith("longer_") for row in claim.rows)
        for point in claim.reading.at  # type: ignore[union-attr]
    }
    assert read <= lengths and (read or scale == "smoke")


def test_lengths_of_training_are_the_first_that_are_asked_about() -> None:
    for scale in ("smoke", "small"):
        text = yaml.safe_load((CONF / "scale" / "field_guide" / "text" / f"{scale}.yaml").read_text())["recipe"]
        lengths = configured(["bench=field_guide", f"scale={scale}"])["parts"]["longer"]["lengths"]
        assert lengths[0] == text["length"]
        if scale == "small":
            assert text["tuned"]["length"] == lengths[-1] == text["tuned"]["factor"] * text["length"]


def test_every_kind_on_the_map_is_measured(measured: set[str]) -> None:
    rows = [row_of(kind) for kind in VARIANTS]
    assert len(set(rows)) == len(VARIANTS)
    assert rows == [row.id for row in PUBLISHED.table("kinds").rows]
    assert set(rows) <= measured
    found = Kinds(lengths=[16, 64], repeats=1, threads=1)(1)
    assert {row: list(of["forward_ms"]["at"]) for row, of in found.items()} == {row: ["16", "64"] for row in rows}
