"""The verdicts of a page: a badge, the claim, the effect as a picture and as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from common.report.compare import Outcome
from common.report.render import text
from common.report.render.heatmap import effect_bar
from common.report.render.markup import Markup, join, tag


def badge(verdict: str, words: str) -> Markup:
    """A verdict with its sign: colour is never the only mark."""
    return tag("span", f"{text.SIGNS[verdict]} {words}", class_=f"badge {verdict.replace(' ', '-')}")


def verdicts(outcomes: Sequence[Outcome]) -> Markup:
    """All claims in order, then how to read the pictures."""
    measured = any(outcome.claim.measured for outcome in outcomes)
    resampled = "repeats, and count the spread over runs" if measured else "test clusters and seeds"
    key = tag(
        "p",
        "Dot and whiskers: effect and 95% interval. Upright rule: no effect. Shaded: what counts as reproduced, stated "
        f"beforehand. Triangle: the published effect. Intervals resample {resampled}; p-values are "
        "Holm-corrected over these claims.",
        class_="caption",
    )
    return join(tag("ol", [_claim(outcome) for outcome in outcomes], class_="claims"), key)


def _claim(outcome: Outcome) -> Markup:
    claim = outcome.claim
    seeds = tag("div", f"one {text.run_name(outcome)}", class_="place") if outcome.effect and outcome.one_seed else ""
    words = [tag("p", claim.claim, class_="text"), tag("p", claim.place, class_="place")]
    if outcome.reason:
        words.append(tag("p", outcome.reason[0].upper() + outcome.reason[1:] + ".", class_="basis"))
    if outcome.effect:
        basis = [part for part in text.basis_text(outcome).split("; ") if part]
        words.append(tag("details", tag("summary", "What this rests on"), [tag("div", part) for part in basis]))
    return tag(
        "li",
        tag("div", badge(outcome.verdict, outcome.verdict), seeds),
        tag("div", words),
        tag("div", _effect(outcome)),
        class_="claim",
        id=f"claim-{claim.id}",
    )


def _effect(outcome: Outcome) -> Markup:
    held = tag("p", text.expected_text(outcome), class_="held")
    if outcome.effect is None:
        return held
    power = tag("p", text.power_text(outcome), class_="held")
    return join(effect_bar(outcome), tag("p", text.effect_text(outcome), class_="value"), held, power)
