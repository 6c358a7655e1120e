"""Numbers and verdicts as words, the same in every renderer."""

from __future__ import annotations

import math
from dataclasses import replace

from common.report import compare
from common.report.claims import Claim
from common.report.compare import Outcome
from common.report.measures import Quantity
from common.report.stats import Estimate
from common.report.views import AblationsView, Cell, ElsewhereView, QuantityView, Report, TableView

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
MEASURED = (
    "Ours: the median of a run's repeats, the mean of it over runs; 95% intervals by bootstrap over repeats and the "
    "spread over runs. A value without an interval is exact, or was measured once."
)
EXACT = "exact: no measurement differs from its median"
Digits = int | None  # decimals; None: three significant figures


def number(value: float, digits: Digits = 2) -> str:
    """A number with a real minus sign and thin thousands; one with more than nine digits in front as a power of ten."""
    if abs(value) >= 1e9 or digits is None and value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("-", MINUS)
    if digits is None:
        digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}".replace("-", MINUS).replace(",", " ")


def signed(value: float, digits: Digits = 2) -> str:
    """A number that always shows its sign."""
    return ("+" if value >= 0 else "") + number(value, digits)


def interval(estimate: Estimate, digits: Digits = 2) -> str:
    """[low, high], or nothing where the value is exact."""
    if estimate.exact:
        return ""
    return f"[{number(estimate.low, digits)}, {number(estimate.high, digits)}]"


def ours_text(cell: Cell, digits: Digits) -> str:
    """Our value, with its interval where there is one, or why it was refused."""
    if isinstance(cell.ours, Estimate):
        return f"{number(cell.ours.value, digits)} {interval(cell.ours, digits)}".strip()
    return refused_text(cell) if cell.refused else plain(cell.ours, digits)


def refused_text(cell: Cell) -> str:
    """That a point was refused, and why."""
    return f"refused: {cell.refused}"


def plain(value: float | str | None, digits: Digits) -> str:
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


def estimate_text(difference: Estimate | float | None, digits: Digits = 2) -> str:
    """A difference with its sign, and its interval where there is one."""
    if isinstance(difference, Estimate):
        return f"{signed(difference.value, digits)} {interval(difference, digits)}".strip()
    return "" if difference is None else signed(difference, digits)


def difference_text(cell: Cell, digits: Digits) -> str:
    """ours - published, or why it is not taken."""
    if cell.unlike:
        return f"not compared: {cell.unlike}"
    return (
        estimate_text(cell.difference, digits)
        + {None: "", True: " (within tolerance)", False: " (outside tolerance)"}[cell.within]
    )


def effect_text(outcome: Outcome) -> str:
    """The effect in the claim's unit with its interval, or nothing."""
    effect = outcome.effect
    if effect is None:
        return ""
    digits = claim_digits(outcome.claim)
    sized = outcome.unit in ("times", "") or (outcome.claim.kind == "bound" and outcome.claim.measured)
    value = number(effect.value, digits) if sized else signed(effect.value, digits)
    return f"{value} {outcome.unit}".strip() + f" {interval(effect, digits)}".rstrip()


def claim_digits(claim: Claim) -> Digits:
    """Decimals of an effect: two, as scores have; measurements range widely, and exponents are told to a thousandth."""
    if claim.kind == "exponent":
        return 3
    return None if claim.measured else 2


def expected_text(outcome: Outcome) -> str:
    """What the effect is held against: the published one with its band, a threshold or a margin."""
    claim, digits = outcome.claim, claim_digits(outcome.claim)
    show = number if claim.kind == "ratio" else signed
    every = f", at every point from {claim.start:g} on" if claim.start is not None else ""
    if claim.expected is not None:
        return f"expected {number(claim.expected, digits)} ± {number(claim.margin or 0.0, digits)}"
    if claim.margin is not None:
        return f"within ±{number(claim.margin, digits)}"
    if claim.target and claim.band:
        low, high = sorted(claim.target.value * edge for edge in claim.band)
        return f"published {show(claim.target.value, digits)}, band {show(low, digits)} to {show(high, digits)}"
    assert claim.threshold is not None
    return f"own threshold: {'at least' if claim.direction > 0 else 'at most'} {number(claim.threshold, digits)}{every}"


def p_text(p: float | None) -> str:
    """p < 0.001 or p = 0.025."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seeds_text(outcome: Outcome) -> str:
    """How many seeds each row has (of a measured row: runs); a single one is said in words."""
    counts, name = {n for _, n in outcome.seeds}, run_name(outcome)
    if counts == {1}:
        return f"one {name}"
    if len(counts) == 1:
        return f"{counts.pop()} {name}s"
    return ", ".join(f"{row}: {f'one {name}' if n == 1 else f'{n} {name}s'}" for row, n in outcome.seeds)


def run_name(outcome: Outcome) -> str:
    """What there may be one of: a row is trained from a seed, or measured in a run."""
    return "run" if outcome.claim.measured else "seed"


def basis_text(outcome: Outcome) -> str:
    """What a verdict rests on, in one line."""
    if outcome.effect is None:
        return ""
    chance = f"{p_text(outcome.p_holm)} (Holm; uncorrected {p_text(outcome.p)})" if outcome.p is not None else EXACT
    parts = [chance, power_text(outcome)]
    if outcome.sentences:
        parts.append(f"{outcome.sentences} sentences in {outcome.clusters} clusters")
    if outcome.budget:
        parts.append("target tokens " + ", ".join(f"{row} {tokens_text(n)}" for row, n in outcome.budget))
    return "; ".join([*parts, *outcome.remarks])


def power_text(outcome: Outcome) -> str:
    """The power and the seeds behind a verdict."""
    if outcome.p is None:
        return seeds_text(outcome)
    return f"detectable effect {detectable_text(outcome)}; {seeds_text(outcome)}"


def detectable_text(outcome: Outcome) -> str:
    """The minimal detectable effect: a factor for ratios, else a distance from no effect."""
    assert outcome.detectable is not None
    sign = "×" if outcome.claim.kind == "ratio" else "±"
    return f"{sign}{number(outcome.detectable, claim_digits(outcome.claim))}"


def tokens_text(n: float) -> str:
    """A number of tokens in millions."""
    return f"{n / 1e6:.1f} M" if n >= 1e5 else number(n, 0)


def verdict_text(outcome: Outcome) -> str:
    """The verdict with its sign, and "one seed" where that is all."""
    return f"{SIGNS[outcome.verdict]} {outcome.verdict}" + (f" (one {run_name(outcome)})" if outcome.one_seed else "")


def tally(report: Report) -> list[tuple[str, int]]:
    """How often each verdict was given, those never given left out."""
    counts = [(verdict, sum(outcome.verdict == verdict for outcome in report.outcomes)) for verdict in compare.VERDICTS]
    return [(verdict, n) for verdict, n in counts if n]


def grid(view: TableView, *, intervals: bool = True) -> tuple[list[str], list[list[str]]]:
    """A table as header and rows of text: per column ours, published, and the difference where it has any."""
    header = [title_with_unit(view), "runs" if view.measured else "seeds"]
    for i, column in enumerate(view.columns):
        if column.ours is not None:
            count = f" (n = {view.counts[column.id]})" if column.id in view.counts else ""
            header.append(f"{column.label}: ours{count}{column_unit(view, column.id)}")
        if view.has_published(i):
            header.append(f"{column.label}: published")
        if view.has_difference(i):
            header.append("ours − published")
    rows = []
    for row in view.rows:
        line = [row.label, runs_text(view, row.seeds)]
        for i, (column, cell) in enumerate(zip(view.columns, row.cells, strict=True)):
            shown = cell if intervals else without_interval(cell)
            line += [ours_text(shown, column.digits)] if column.ours is not None else []
            line += [published_text(view, i, cell)] if view.has_published(i) else []
            line += [difference_text(cell, column.digits)] if view.has_difference(i) else []
        rows.append(line)
    return header, rows


def title_with_unit(view: TableView) -> str:
    """The title, and the unit where all columns share one."""
    return f"{view.table.title} ({view.unit})" if view.unit else view.table.title


def column_unit(view: TableView, column: str) -> str:
    """The unit of a column, where they differ."""
    unit = "" if view.unit else view.units.get(column, "")
    return f", {unit}" if unit else ""


def runs_text(view: TableView, runs: int) -> str:
    """The number of seeds; a single run of measurements is said in words."""
    return "one run" if view.measured and runs == 1 else str(runs or "")


def without_interval(cell: Cell) -> Cell:
    """The same value alone, where there is no room."""
    return replace(cell, ours=cell.ours.value) if isinstance(cell.ours, Estimate) else cell


def quantity_grid(view: QuantityView) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a figure over points: ours and, where any is printed, published."""
    printed = {x for line in view.lines for x, _ in line.published}
    header = [view.quantity]
    for x in view.points:
        header += [f"{x:g}: ours", f"{x:g}: published"] if x in printed else [f"{x:g}: ours"]
    rows = []
    for line in view.lines:
        ours, theirs, refused = dict(line.points), dict(line.published), dict(line.refused)
        cells = [line.label]
        for x in view.points:
            cell = Cell(ours.get(x), refused=refused.get(f"{x:g}", ""))
            cells += [ours_text(cell, None)] + ([printed_text(theirs.get(x))] if x in printed else [])
        rows.append(cells)
    return header, rows


def elsewhere_grid(view: ElsewhereView, *, intervals: bool = True) -> tuple[list[str], list[list[str]]]:
    """Header and rows of what another machine measured: per point measured and, where any is printed, published."""
    printed = [any(row.cells[i].published is not None for row in view.rows) for i in range(len(view.points))]
    header = [f"{view.device}{f' ({view.unit})' if view.unit else ''}"]
    for point, both in zip(view.points, printed, strict=True):
        header += [f"{point}: measured", f"{point}: published"] if both else [f"{point}: measured"]
    rows = []
    for row in view.rows:
        line = [row.label]
        for cell, both in zip(row.cells, printed, strict=True):
            line += [ours_text(cell if intervals else without_interval(cell), None)]
            line += [printed_text(cell.published)] if both else []
        rows.append(line)
    return header, rows


def printed_text(value: float | str | None) -> str:
    """A published value with as many figures as it is printed with, up to six."""
    return value if isinstance(value, str) else "" if value is None else f"{value:g}"


def elsewhere_facts(view: ElsewhereView) -> str:
    """Where these numbers come from."""
    facts = "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in view.facts.items())
    return sentences(f"measured/{view.source}: {facts}", "Another machine: no differences are taken")


def row_notes(view: TableView) -> list[str]:
    """What must be said of single rows, below the table."""
    return [f"{row.label}: {row.note}." for row in view.rows if row.note]


def data_note(report: Report) -> str:
    """What the text of this scale is, and what its numbers may be compared with."""
    keys = ("data", "data source", "domain", "data licence")
    first = report.tables[0] if report.tables else None
    leading = {row.id for row in first.rows} if first else set()
    runs = sorted(report.runs, key=lambda run: run.name.rpartition("-s")[0] not in leading)
    known = [{**report.shared_facts, **run.facts} for run in runs]
    named = dict.fromkeys("; ".join(facts[key] for key in keys if key in facts) for facts in known)
    listed = [text for text in named if text]
    told = [f"{'Other rows' if n else 'Data'}: {text}" for n, text in enumerate(listed)]
    return sentences(*told, first.table.comparable if first and not first.comparable else "")


def ablation_grid(view: AblationsView) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the ablation lines: ours, and the difference to the row that each changes."""
    header = ["line", "seeds"]
    header += [part for column in view.columns for part in (column.label, "against its base")]
    rows = []
    for line in view.lines:
        cells: list[str] = []
        for column, cell, difference in zip(view.columns, line.row.cells, line.differences, strict=True):
            digits = column.digits if isinstance(column.ours, Quantity) else 2
            cells += [ours_text(cell, digits), estimate_text(difference, digits)]
        rows.append([f"{line.row.label} (base {line.base})", str(line.row.seeds), *cells, line.row.note])
    return [*header, "note"], rows
