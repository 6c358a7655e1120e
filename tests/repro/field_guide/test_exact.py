"""The exact claims: each check finds what is stated below, which was worked out beforehand, and can fail."""

import pytest
import torch
import yaml

from common.report.claims import load_claims
from common.report.published import load_published
from data import code
from reproductions.compose import CONF
from reproductions.field_guide.exact import Exact, mapped, run, samples, scores
from reproductions.field_guide.exact.value import Unavailable, about, at_least, at_most, same, true
from reproductions.field_guide.map import page

PACKAGE = CONF.parent / "reproductions" / "field_guide"
CHECKS: dict[str, str] = yaml.safe_load((CONF / "bench" / "field_guide_exact.yaml").read_text())["parts"]["exact"][
    "checks"
]
FALSE = {
    "scores.small_widths": 1,  # Jacobian norms of 0.292 and 0.235 at d_k = 4
    "structure.order_through_the_mask": 1,  # the first word sees itself alone
    "structure.more_heads": 1,  # d_model / h wide each: the same products
    "structure.output_width_of_the_block": 2,  # W_O maps to d_model: right for d_v = d_model / h, wrong for the others
    "models.grouped": 3,  # Llama 2 7B and 13B are multi-head, Falcon 7B is multi-query
    "choice.dilution": 2,  # e^5 among 1,024 and 32,768: 0.127 and 0.0045
    "caches.slip": 1,  # 8 (4096 / 8) in place of 8 * 128
}
"""Statements that do not hold, and how many of their numbers say so."""
SLOW = "scores.hand_worked"
"""Compiles flex for each dtype."""
ELSEWHERE = "models.transformers"
"""Needs a package that this environment need not have."""


@pytest.mark.parametrize("check", sorted({*CHECKS.values()} - {SLOW, ELSEWHERE}))
def test_holds_or_does_not(check: str) -> None:
    wrong = [str(value) for value in run(check, 1) if not value.holds]
    assert len(wrong) == FALSE.get(check, 0), wrong


def test_hand_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the backend that compiles."""
    every = scores.able
    monkeypatch.setattr(scores, "able", lambda *inputs: [name for name in every(*inputs) if name != "flex"])
    values = run("scores.hand_worked", 1)
    assert [str(value) for value in values if not value.holds] == []
    assert len(values) >= 7 + 3 * 4 * 2  # three weights, four dtypes, at least two backends


def test_the_transformers_library() -> None:
    try:
        values = run(ELSEWHERE, 1)
    except Unavailable as reason:
        assert "make bench-peers ROW=attention_interface" in str(reason)
    else:
        assert all(value.holds for value in values)


def test_another_seed_gives_the_same_verdicts() -> None:
    for check in (
        "scores.variance",
        "scores.saturation",
        "scores.small_widths",
        "caches.lifetimes",
        "variants.patterns",
    ):
        assert sum(not value.holds for value in run(check, 7)) == FALSE.get(check, 0), check


def test_every_statement_has_a_check_a_row_and_a_claim() -> None:
    published = load_published(PACKAGE / "published.yaml")
    claims = load_claims(PACKAGE / "claims.yaml", published)
    exact = [claim for claim in claims.claims if claim.rows == (claim.id,) and not claim.not_testable]
    assert {claim.id for claim in exact} == set(CHECKS) == {row.id for row in published.table("exact").rows}
    said = {row.id: row.values["claim"] for row in published.table("exact").rows}
    assert {claim.id: claim.claim for claim in exact} == said


def test_other_statements_read_rows_that_other_packages_have() -> None:
    published = load_published(PACKAGE / "published.yaml")
    for name in published.rows_of_others:
        paper, row = name.split("/")
        assert load_published(PACKAGE.parent / paper / "published.yaml").has_row(row), name


def test_the_map_is_that_of_the_code() -> None:
    assert (PACKAGE / "MAP.md").read_text(encoding="utf-8") == page()


def test_visible_and_power_of_layers_that_are_known() -> None:
    """A mean over all, over the past, over a neighbourhood; products of n, of n with n."""
    x = torch.randn(1, 8, mapped.D, dtype=torch.float64)
    i, j = torch.arange(8)[:, None], torch.arange(8)
    for seen, expected in (
        (torch.ones(8, 8), "full"),
        ((j <= i).double(), "causal"),
        (((i - j).abs() <= 1).double(), "sparse"),
        (((i - j).abs() <= 1).double().tril(), "sparse, causal"),
    ):
        assert mapped.visible(lambda x, seen=seen: seen.double() @ x, x) == expected
    weight = torch.zeros(mapped.D, mapped.D, dtype=torch.float64)
    assert mapped.power(lambda x: x @ weight) == 1.0
    assert mapped.power(lambda x: x @ x.mT @ x) == 2.0
    assert mapped.power(lambda x: x @ weight + x @ x.mT @ x) == pytest.approx(2.0)


def test_values() -> None:
    assert about("x", 1.0, 1.1, 0.1).holds and not about("x", 1.0, 1.2, 0.1).holds
    assert at_most("x", 1.0, 1.0).holds and not at_most("x", 1.1, 1.0).holds
    assert at_least("x", torch.tensor(1.0), 1.0).holds and not at_least("x", 0.9, 1.0).holds
    assert true("x", True).holds and not true("x", False).holds
    for value in (about("x", torch.nan, 1.0), at_most("x", torch.nan, 1.0), at_least("x", torch.nan, 1.0)):
        assert not value.holds
    assert same("x", torch.ones(2), torch.ones(2), 0.0).holds
    assert not same("x", torch.ones(2), torch.ones(1), 1.0).holds  # broadcasting would hide it
    assert not same("x", torch.tensor([1.0, torch.nan]), torch.ones(2), 1.0).holds


def test_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(draw: torch.Generator) -> list[object]:
        return [about("right", 1, 1), about("wrong", 3, 1)]

    monkeypatch.setattr(scores, "four_steps", check)
    found = Exact({"A07": "scores.four_steps"})(1)["A07"]
    assert found["failed"]["at"] == {"exact": [1]} and found["checked"]["at"] == {"exact": [2]}
    assert found["value"]["at"] == {"right": [1.0], "wrong": [3.0]}

    def lacking(draw: torch.Generator) -> None:
        raise Unavailable("needs the package x, which is not installed")

    monkeypatch.setattr(scores, "four_steps", lacking)
    refused = samples("scores.four_steps", 1)
    assert refused["failed"] == {
        "unit": "values", "at": {}, "refused": {"exact": "needs the package x, which is not installed"},
    }  # fmt: skip


def test_a_changed_check_makes_its_results_stale() -> None:
    """All modules of checks are sources of the part that runs them by name."""
    found = code.closure(frozenset({"reproductions.field_guide.exact"}))
    names = {file.stem for file in (PACKAGE / "exact").glob("*.py")} - {"__init__"}
    assert {f"reproductions.field_guide.exact.{name}" for name in names} <= found
    assert "reproductions.field_guide.variants" in found
