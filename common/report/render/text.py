"""Numbers and verdicts as words, the same in every renderer."""

from __future__ import annotations

from common.report import compare
from common.report.compare import Outcome
from common.report.stats import Estimate
from common.report.views import AblationsView, Cell, Report, TableView

# A sign beside each verdict, so that colour is never the only mark.
SIGNS = {
    compare.REPRODUCED: "✓",
    compare.DIRECTION_ONLY: "↗",
    compare.CONTRADICTED: "✗",
    compare.INCONCLUSIVE: "?",
    compare.NOT_TESTABLE: "–",
    compare.NOT_RUN: "○",
}
MINUS = "−"
CONTROL = "control, references against translations of other sentences of about the same length"
EXPLORATORY = "Lines of the user's own, exploratory: no correction for their number."


def number(value: float, digits: int = 2) -> str:
    """A number with a real minus sign and thin thousands."""
    return f"{value:,.{digits}f}".replace("-", MINUS).replace(",", " ")


def signed(value: float, digits: int = 2) -> str:
    """A number that always shows its sign."""
    return ("+" if value >= 0 else "") + number(value, digits)


def interval(estimate: Estimate, digits: int = 2) -> str:
    """[low, high]"""
    return f"[{number(estimate.low, digits)}, {number(estimate.high, digits)}]"


def ours_text(cell: Cell, digits: int) -> str:
    """Our value, with its interval where there is one."""
    if isinstance(cell.ours, Estimate):
        return f"{number(cell.ours.value, digits)} {interval(cell.ours, digits)}"
    return plain(cell.ours, digits)


def plain(value: float | str | None, digits: int) -> str:
    """A number, a text or nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value, digits)


def published_text(view: TableView, index: int, cell: Cell) -> str:
    """A published value as it is printed; very large and very small ones as 2.3e+19."""
    if isinstance(cell.published, float) and cell.published and not 1e-4 <= abs(cell.published) < 1e7:
        return f"{cell.published:g}"
    return plain(cell.published, view.printed_digits(index))


def sentences(*parts: str) -> str:
    """Parts as sentences, each ending in a full stop; empty ones left out."""
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)


def estimate_text(difference: Estimate | float | None, digits: int = 2) -> str:
    """A difference with its sign, and its interval where there is one."""
    if isinstance(difference, Estimate):
        return f"{signed(difference.value, digits)} {interval(difference, digits)}"
    return "" if difference is None else signed(difference, digits)


def difference_text(cell: Cell, digits: int) -> str:
    """ours - published."""
    return (
        estimate_text(cell.difference, digits)
        + {None: "", True: " (within tolerance)", False: " (outside tolerance)"}[cell.within]
    )


def effect_text(outcome: Outcome) -> str:
    """The effect in the claim's unit with its interval, or nothing."""
    effect = outcome.effect
    if effect is None:
        return ""
    value = number(effect.value) if outcome.claim.unit in ("times", "") else signed(effect.value)
    return f"{value} {outcome.claim.unit}".strip() + f" {interval(effect)}"


def expected_text(outcome: Outcome) -> str:
    """What the effect is held against: the published one with its band, a threshold or a margin."""
    claim = outcome.claim
    show = number if claim.kind == "ratio" else signed
    if claim.margin is not None:
        return f"within ±{number(claim.margin)}"
    if claim.target and claim.band:
        low, high = sorted(claim.target.value * edge for edge in claim.band)
        return f"published {show(claim.target.value)}, band {show(low)} to {show(high)}"
    assert claim.threshold is not None
    return f"own threshold: {'at least' if claim.direction > 0 else 'at most'} {number(claim.threshold)}"


def p_text(p: float | None) -> str:
    """p < 0.001 or p = 0.025."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seeds_text(outcome: Outcome) -> str:
    """How many seeds each row has; a single one is said in words."""
    counts = {n for _, n in outcome.seeds}
    if counts == {1}:
        return "one seed"
    if len(counts) == 1:
        return f"{counts.pop()} seeds"
    return ", ".join(f"{row}: {'one seed' if n == 1 else f'{n} seeds'}" for row, n in outcome.seeds)


def basis_text(outcome: Outcome) -> str:
    """What a verdict rests on, in one line."""
    if outcome.effect is None:
        return ""
    parts = [f"{p_text(outcome.p_holm)} (Holm; uncorrected {p_text(outcome.p)})", power_text(outcome)]
    if outcome.sentences:
        parts.append(f"{outcome.sentences} sentences in {outcome.clusters} clusters")
    if outcome.budget:
        parts.append("target tokens " + ", ".join(f"{row} {tokens_text(n)}" for row, n in outcome.budget))
    return "; ".join([*parts, *outcome.remarks])


def power_text(outcome: Outcome) -> str:
    """The power and the seeds behind a verdict."""
    return f"detectable effect {detectable_text(outcome)}; {seeds_text(outcome)}"


def detectable_text(outcome: Outcome) -> str:
    """The minimal detectable effect: a factor for ratios, else a distance from no effect."""
    assert outcome.detectable is not None
    return f"{'×' if outcome.claim.kind == 'ratio' else '±'}{number(outcome.detectable)}"


def tokens_text(n: float) -> str:
    """A number of tokens in millions."""
    return f"{n / 1e6:.1f} M" if n >= 1e5 else number(n, 0)


def verdict_text(outcome: Outcome) -> str:
    """The verdict with its sign, and "one seed" where that is all."""
    return f"{SIGNS[outcome.verdict]} {outcome.verdict}" + (" (one seed)" if outcome.one_seed else "")


def tally(report: Report) -> list[tuple[str, int]]:
    """How often each verdict was given, those never given left out."""
    counts = [(verdict, sum(outcome.verdict == verdict for outcome in report.outcomes)) for verdict in compare.VERDICTS]
    return [(verdict, n) for verdict, n in counts if n]


def grid(view: TableView) -> tuple[list[str], list[list[str]]]:
    """A table as header and rows of text: per column ours, published, and the difference where it has any."""
    header = [view.table.title, "seeds"]
    for i, column in enumerate(view.columns):
        if column.ours is not None:
            count = f" (n = {view.counts[column.id]})" if column.id in view.counts else ""
            header.append(f"{column.label}: ours{count}")
        if view.has_published(i):
            header.append(f"{column.label}: published")
        if view.has_difference(i):
            header.append("ours − published")
    rows = []
    for row in view.rows:
        line = [row.label, str(row.seeds or "")]
        for i, (column, cell) in enumerate(zip(view.columns, row.cells, strict=True)):
            line += [ours_text(cell, column.digits)] if column.ours is not None else []
            line += [published_text(view, i, cell)] if view.has_published(i) else []
            line += [difference_text(cell, column.digits)] if view.has_difference(i) else []
        rows.append(line)
    return header, rows


def row_notes(view: TableView) -> list[str]:
    """What must be said of single rows, below the table."""
    return [f"{row.label}: {row.note}." for row in view.rows if row.note]


def data_note(report: Report) -> str:
    """What the text of this scale is, and what its numbers may be compared with."""
    facts = report.shared_facts
    named = [facts[key] for key in ("data", "data source", "domain", "data licence") if key in facts]
    first = report.tables[0] if report.tables else None
    return sentences(
        f"Data: {'; '.join(named)}" if named else "", first.table.comparable if first and not first.comparable else ""
    )


def ablation_grid(view: AblationsView) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the ablation lines: ours, and the difference to the row that each changes."""
    header = ["line", "seeds"]
    header += [part for column in view.columns for part in (column.label, "against its base")]
    rows = []
    for line in view.lines:
        cells: list[str] = []
        for cell, difference in zip(line.row.cells, line.differences, strict=True):
            cells += [ours_text(cell, 2), estimate_text(difference)]
        rows.append([f"{line.row.label} (base {line.base})", str(line.row.seeds), *cells, line.row.note])
    return [*header, "note"], rows
