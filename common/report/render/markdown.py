"""RESULTS.md: the same headings for every paper."""

from __future__ import annotations

from collections.abc import Sequence

from common.report.measures import Measure
from common.report.published import Published
from common.report.render import text
from common.report.views import AblationsView, ElsewhereView, LengthView, QuantityView, Report, ScorersView


def markdown(report: Report) -> str:
    """The whole report, without its plots."""
    published = report.published
    parts = [
        f"# Results: {published.title}",
        f"{', '.join(published.authors)} ({published.year}), {published.venue}, arXiv {published.arxiv}.",
        f"Scale: {report.scale}. Generated from published.yaml, claims.yaml and the runs; do not edit.",
        *[f"**Warning:** {warning}." for warning in report.warnings],
        "## Verdicts",
        verdicts(report),
        "## Tables",
        text.data_note(report),
        *tables(report),
        *[part for view in report.quantities if not view.in_table for part in quantity(view)],
        *[part for view in report.elsewhere for part in elsewhere(view)],
        "## Scorers",
        scorers(report.scorers) if report.scorers else nothing(published, scored(published)),
        "## Source length",
        *([length(view) for view in report.lengths] or [nothing(published, by_length(published))]),
        "## Ablations",
        ablations(report.ablations) if report.ablations else "None was run.",
        "## Not run",
        table(["what", "why"], report.not_run) if report.not_run else "Everything was run.",
        "## Provenance",
        provenance(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def nothing(published: Published, wanted: bool) -> str:
    """Why a section is empty: nothing was run, or the paper has no such thing."""
    return "No finished run." if wanted else f"No table or figure of {published.paper} needs this."


def scored(published: Published) -> bool:
    """Whether any row is scored on sentences."""
    return any(isinstance(column.ours, Measure) for table in published.tables for column in table.columns)


def by_length(published: Published) -> bool:
    """Whether any figure is drawn against source length."""
    return any(table.plot and table.plot.kind == "length" for table in published.tables)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table. A `|` in a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def verdicts(report: Report) -> str:
    """One line per claim."""
    rows = [
        [
            text.verdict_text(outcome),
            f"{outcome.claim.claim} ({outcome.claim.place})",
            text.effect_text(outcome),
            text.expected_text(outcome),
            "; ".join(part for part in (outcome.reason, text.basis_text(outcome)) if part),
        ]
        for outcome in report.outcomes
    ]
    return table(["verdict", "claim", "effect [95%]", "held against", "basis"], rows)


def tables(report: Report) -> list[str]:
    """Every published table that has a value of ours."""
    parts = []
    for view in report.tables:
        parts.append(f"### {view.table.title}: ours beside published")
        about = text.sentences(view.table.caption, view.table.protocol, view.table.comparable)
        parts.append(f"{about} {text.MEASURED}" if view.measured else about)
        parts.append(table(*text.grid(view)))
        parts.append(text.sentences(view.table.notes, *text.row_notes(view)))
    return parts


def quantity(view: QuantityView) -> list[str]:
    """A figure over points whose numbers stand in no table: a column per point."""
    header, rows = text.quantity_grid(view)
    about = text.sentences(view.table.caption, view.table.comparable)
    return [f"### {view.title}", f"{about} {text.MEASURED}", table(header, rows)]


def elsewhere(view: ElsewhereView) -> list[str]:
    """What another machine measured, beside the published figures."""
    return [f"### {view.title}", text.elsewhere_facts(view), table(*text.elsewhere_grid(view))]


def scorers(view: ScorersView) -> str:
    """The same hypotheses under each scorer, with signatures."""
    header = ["row", *(metric.label for metric in view.metrics), "cut at the length limit"]
    rows = [
        [row.label, *(text.ours_text(cell, 2) for cell in row.cells), str(view.truncated[row.label])]
        for row in view.rows
    ]
    signatures = "\n".join(f"- {m.label}: `{s}`" for m, s in zip(view.metrics, view.signatures, strict=True))
    return f"The same hypotheses under each scorer.\n\n{table(header, rows)}\n\n{signatures}"


def length(view: LengthView) -> str:
    """BLEU per bin and row; the other panels are in results.csv and report.html."""
    metric, series = view.panels[0]
    header = ["source words", "sentences", *(line.label + (" (control)" if line.control else "") for line in series)]
    rows = []
    for i, (low, high, n) in enumerate(view.bins):
        cells = [text.number(line.points[i][1].value) + beyond_mark(line.limit, high) for line in series]
        rows.append([f"{low}–{high}", str(n), *cells])
    return f"{view.table.title}: {metric.label}. {length_note(view)}\n\n{table(header, rows)}"


def beyond_mark(limit: int | None, high: int) -> str:
    """An asterisk where a bin is longer than what a row was trained on."""
    return "*" if limit is not None and high > limit else ""


def length_note(view: LengthView) -> str:
    """What the bins leave out, and what the marks mean."""
    omitted = ", ".join(f"{low}–{high} ({n} sentences)" for low, high, n in view.omitted)
    parts = ["* longer than any sentence the row was trained on."]
    parts += (
        [f"{text.CONTROL.capitalize()}."] if any(line.control for _, series in view.panels for line in series) else []
    )
    parts += [f"Bins with too few sentences are left out: {omitted}."] if omitted else []
    parts += [f"{view.beyond} sentences are longer than the last bin."] if view.beyond else []
    return " ".join(parts)


def ablations(view: AblationsView) -> str:
    """Lines of the user's own, never over a published row."""
    header, rows = text.ablation_grid(view)
    return f"{text.EXPLORATORY}\n\n{table(header, rows)}"


def provenance(report: Report) -> str:
    """Where the numbers come from, and the commands that make them again."""
    facts = "\n".join(f"- {title}: {value}" for title, value in report.shared_facts.items())
    runs = [
        [run.name, run.status, "; ".join(f"{k} {v}" for k, v in run.facts.items()), f"`{run.command}`"]
        for run in report.runs
    ]
    return f"{facts}\n\n{table(['run', 'status', 'own facts', 'command'], runs)}" if runs else "No run."
