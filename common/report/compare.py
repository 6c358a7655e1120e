"""Evaluates claims: an effect with its interval, a p-value corrected over the paper's claims, one verdict each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from common.report.claims import Claim, Claims
from common.report.effects import Missing, Sample, read_systems
from common.report.measured import measured_steps
from common.report.measures import PER_TOKEN, SHARES, Field, Measure, Quantity
from common.report.medians import weakest
from common.report.results import Results, Row, Run
from common.report.scores import Array
from common.report.stats import LEVEL, RESAMPLES, ROUNDING, Estimate, System, bootstrap, holm, with_unseen

REPRODUCED = "reproduced"
DIRECTION_ONLY = "direction only"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable here"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, DIRECTION_ONLY, CONTRADICTED, INCONCLUSIVE, NOT_TESTABLE, NOT_RUN)
TOO_SMALL = "the size is outside the band stated beforehand"
BUDGET = Field("train.target_tokens")


@dataclass(frozen=True)
class Outcome:
    """The verdict on one claim and what it rests on. `effect` is in the claim's unit; None where nothing was computed.

    `seeds` and `budget` (target tokens) by row; `detectable`: minimal detectable effect, for a ratio as a factor.
    `p` is None where no chance is involved: an exact effect, or none. `samples_unit`: that of the measurements.
    """

    claim: Claim
    verdict: str
    reason: str = ""
    effect: Estimate | None = None
    p: float | None = None
    p_holm: float | None = None
    favours: bool = False
    detectable: float | None = None
    seeds: tuple[tuple[str, int], ...] = ()
    budget: tuple[tuple[str, float], ...] = ()
    clusters: int = 0
    sentences: int = 0
    remarks: tuple[str, ...] = ()
    samples_unit: str = ""

    @property
    def unit(self) -> str:
        """The unit of the effect: the claim's, else that of the measurements."""
        return self.claim.unit or self.samples_unit

    @property
    def one_seed(self) -> bool:
        """Whether some row has a single seed, so that the interval knows nothing of its spread over seeds."""
        return any(n == 1 for _, n in self.seeds)


def evaluate(claims: Claims, results: Results, *, resamples: int = RESAMPLES) -> list[Outcome]:
    """Give a verdict for every claim, in order. p-values are corrected over all claims that were tested."""
    tested = [_test(claim, claims, results, resamples) for claim in claims.claims]
    adjusted = iter(holm([outcome.p for outcome in tested if outcome.p is not None]))
    return [_settle(outcome) if outcome.p is None else _decide(outcome, next(adjusted)) for outcome in tested]


def _test(claim: Claim, claims: Claims, results: Results, resamples: int) -> Outcome:
    if results.scale in claim.not_testable:
        return Outcome(claim, NOT_TESTABLE, claim.not_testable[results.scale])
    rows = [results.rows[row] for row in claim.rows if row in results.rows and results.rows[row].ok]
    if len(rows) < len(claim.rows):
        absent = [row for row in claim.rows if row not in [found.id for found in rows]]
        return Outcome(claim, NOT_RUN, f"no finished run of {', '.join(absent)}")
    runs = [run for row in rows for run in row.ok]
    if len({run.text_checksum for run in runs} - {None}) > 1:  # a measured row may have none
        return Outcome(claim, NOT_RUN, "the rows were run on different data: train them again")
    per_token = isinstance(claim.reading, Measure) and claim.reading.metric in PER_TOKEN
    if per_token and len({run.field("data_checksum") for run in runs}) > 1:
        return Outcome(
            claim, NOT_RUN, "the rows count different tokens, words and pieces of them: a value per token differs"
        )
    try:
        if isinstance(claim.reading, Quantity):
            return _of_quantity(claim, claim.reading, rows, resamples)
        systems, sample = read_systems(
            rows,
            _with_lengths(claim.reading, rows),
            claims.bins.get(results.scale),
            slope=claim.kind == "slope",
            relative=claim.relative,
            baseline=claim.baseline,
        )
        return _measured(claim, rows, systems, sample, resamples)
    except Missing as missing:
        return Outcome(claim, NOT_RUN, str(missing))


def _with_lengths(reading: Measure | Field, rows: list[Row]) -> Measure | Field:
    """A claim's reading; `trained` becomes the lengths that all its rows were trained on."""
    if not isinstance(reading, Measure) or not reading.trained:
        return reading
    limits = [run.max_words for row in rows for run in row.ok]
    if None in limits:
        raise Missing("a run without a limit of training length: nothing says which lengths it was trained on")
    return replace(reading, source_tokens=(1, min(limit for limit in limits if limit is not None)))


def _measured(claim: Claim, rows: list[Row], systems: list[System], sample: Sample | None, resamples: int) -> Outcome:
    """Estimate the effect. Of an ordering of several rows the weakest step speaks: all steps must hold."""
    pairs = list(pairwise(systems)) if claim.kind == "ordering" else [tuple(systems)]
    same = [made_of_each_other(*two) for two in pairwise(rows)] or [False]
    with np.errstate(divide="ignore", invalid="ignore"):  # a score of zero: refused below, with words
        steps = [
            bootstrap(pair, _combination(claim), resamples=resamples, same_seeds=together)[0]
            for pair, together in zip(pairs, same, strict=True)
        ]
    if not all(np.isfinite([step.value, step.low, step.high]).all() for step in steps):
        raise Missing("the effect is undefined: a score of zero, or too few sentences in some resample")
    if sample and claim.kind != "ratio" and isinstance(claim.reading, Measure) and claim.reading.metric in SHARES:
        limits = (0.0 if len(claim.rows) == 1 else -100.0, 100.0)
        steps = [step if step.se > ROUNDING else with_unseen(step, sample.clusters, limits) for step in steps]
    effect = min(steps, key=lambda step: claim.direction * step.value / (step.se or 1.0))
    p, favours = _p_value(claim, effect)
    shown = _exponential(effect) if claim.kind == "ratio" else effect
    return Outcome(
        claim=claim,
        verdict=INCONCLUSIVE,
        effect=shown,
        p=p,
        favours=favours,
        detectable=float(np.exp(effect.detectable)) if claim.kind == "ratio" else effect.detectable,
        seeds=tuple((row.id, len(row.ok)) for row in rows),
        budget=tuple((row.id, tokens) for row in rows if (tokens := _budget(row)) is not None),
        clusters=sample.clusters if sample else 0,
        sentences=sample.sentences if sample else 0,
        remarks=_remarks(rows, systems, sample),
    )


def made_of_each_other(a: Row, b: Row) -> bool:
    """Whether each run of one row is made of that of the other with the same seed and of nothing else, the same weights
    tested otherwise or trained on, or both of the same third one's. What a seed is worth is then in both alike."""
    if [run.seed for run in a.ok] != [run.seed for run in b.ok]:
        return False
    pairs = [(first, second, _made_of(first), _made_of(second)) for first, second in zip(a.ok, b.ok, strict=True)]
    return all(
        of_first == {second.row} or of_second == {first.row} or (len(of_first) == 1 and of_first == of_second)
        for first, second, of_first, of_second in pairs
    )


def _made_of(run: Run) -> set[str]:
    return set(run.field("members") or ())


def _of_quantity(claim: Claim, reading: Quantity, rows: list[Row], resamples: int) -> Outcome:
    """Estimate the effect on repeated measurements. Raises Missing where the rows do not give it."""
    found = measured_steps(claim, reading, rows, resamples)
    effect, ratio = found.steps[0], claim.kind == "ratio"
    if found.mixed:
        raise Missing("the rows were measured on different hardware: measure them again on one machine")
    p, favours = _p_value(claim, effect)
    detectable, remarks = effect.detectable, list(found.remarks)
    if claim.start is not None or claim.kind == "ordering":
        worst = weakest(found.steps, claim.direction, float(np.log(claim.null)) if ratio else claim.null)
        effect, p, favours, detectable = worst.estimate, worst.p, worst.favours, worst.detectable
        remarks += [f"the weakest, {found.names[worst.index]}, decides"] if len(found.steps) > 1 else []
    if stale := [row.id for row in rows if row.stale]:
        remarks.append(f"stale: {', '.join(stale)}")
    return Outcome(
        claim=claim,
        verdict=INCONCLUSIVE,
        effect=_exponential(effect) if ratio else effect,
        p=None if found.exact else p,
        favours=favours,
        detectable=float(np.exp(detectable)) if ratio else detectable,
        seeds=found.runs,
        remarks=tuple(remarks),
        samples_unit="" if claim.kind == "exponent" else found.unit,
    )


def _combination(claim: Claim) -> Callable[[Sequence[Array]], Array]:
    if claim.kind == "ratio":
        return lambda scores: np.log(scores[0]) - np.log(scores[1])
    if len(claim.rows) == 1:
        return lambda scores: scores[0]
    return lambda scores: scores[0] - scores[1]


def _p_value(claim: Claim, effect: Estimate) -> tuple[float, bool]:
    """Two-sided p-value, and whether the effect lies on the claim's side."""
    if claim.window is not None:
        low, high = np.log(claim.window) if claim.kind == "ratio" else claim.window
        within, beyond = effect.p_inside(low, high), effect.p_outside(low, high)
        return min(1.0, 2 * min(within, beyond)), bool(low < effect.value < high)
    null = float(np.log(claim.null)) if claim.kind == "ratio" else claim.null
    return effect.p_differs(null), claim.direction * (effect.value - null) > 0


def _decide(outcome: Outcome, p_holm: float) -> Outcome:
    """Holm's p decides whether anything can be concluded; then the direction; then the size."""
    claim, effect = outcome.claim, outcome.effect
    assert effect is not None
    if claim.window is not None:
        clear = not claim.measured or _clear(effect, claim.window)
    else:
        clear = not effect.low <= claim.null <= effect.high
    if not (p_holm < LEVEL and clear):
        verdict, reason = INCONCLUSIVE, _why_inconclusive(outcome, p_holm)
    elif not outcome.favours:
        verdict, reason = CONTRADICTED, ""
    elif claim.big_enough(effect.value):
        verdict, reason = REPRODUCED, ""
    else:
        verdict, reason = DIRECTION_ONLY, TOO_SMALL
    return replace(outcome, verdict=verdict, reason=reason, p_holm=p_holm)


def _clear(effect: Estimate, window: tuple[float, float]) -> bool:
    """Whether the interval lies inside the window or wholly outside."""
    inside = window[0] <= effect.low and effect.high <= window[1]
    return inside or effect.high < window[0] or effect.low > window[1]


def _settle(outcome: Outcome) -> Outcome:
    """An exact effect leaves nothing to chance: there is no p-value, and no effect at all contradicts a claim of one."""
    claim, effect = outcome.claim, outcome.effect
    if effect is None:
        return outcome
    effect = replace(effect, value=float(f"{effect.value:.12g}"))  # a ratio of 4 has been through logarithms
    if claim.window is not None:
        holds = claim.window[0] <= effect.value <= claim.window[1]
    else:
        toward = claim.direction * (effect.value - claim.null)
        holds = toward > 0 or (toward == 0 and claim.threshold == claim.null)
    if not holds:
        return replace(outcome, verdict=CONTRADICTED)
    if claim.big_enough(effect.value):
        return replace(outcome, verdict=REPRODUCED)
    return replace(outcome, verdict=DIRECTION_ONLY, reason=TOO_SMALL)


def _why_inconclusive(outcome: Outcome, p_holm: float) -> str:
    claim, effect = outcome.claim, outcome.effect
    assert effect is not None
    if effect.se == 0:
        return "one value has no interval"
    if claim.expected is not None and claim.window is not None and not _clear(effect, claim.window):
        return f"the interval lies neither inside {claim.window[0]:g} to {claim.window[1]:g} nor wholly outside"
    if claim.expected is not None:
        return f"not significant after correction (p = {p_holm:.3f})"
    return f"not significant after correction (p = {p_holm:.3f}): no effect can't be ruled out"


def _exponential(effect: Estimate) -> Estimate:
    value, low, high = np.exp([effect.value, effect.low, effect.high])
    return replace(effect, value=float(value), low=float(low), high=float(high))


def _budget(row: Row) -> float | None:
    tokens = [value for run in row.ok if (value := run.number(BUDGET)) is not None]
    return sum(tokens) / len(tokens) if tokens else None


def _remarks(rows: Sequence[Row], systems: list[System], sample: Sample | None) -> tuple[str, ...]:
    remarks = []
    if sample is not None and len(rows) > 1:
        points = [system.scores(np.ones((1, system.sums.shape[1])))[0].mean() for system in systems]
        remarks.append("; ".join(f"{row.label} {point:.2f}" for row, point in zip(rows, points, strict=True)))
    if sample is not None and sample.dropped:
        remarks.append(f"{sample.dropped} sentences left out that not every run has")
    if stale := [row.id for row in rows if row.stale]:
        remarks.append(f"stale: {', '.join(stale)}")
    return tuple(remarks)
