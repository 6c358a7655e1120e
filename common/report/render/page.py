"""report.html: one self-contained page, no network, no script."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common.report.published import Published
from common.report.render import figures_html as figures
from common.report.render import tables_html as tables
from common.report.render import text
from common.report.render.heads_html import heads
from common.report.render.markup import Markup, join, tag
from common.report.render.quantity_html import quantity
from common.report.render.verdicts_html import badge, verdicts
from common.report.views import Report

STYLE = Path(__file__).with_name("style.css")
SECTIONS = (
    ("verdicts", "Verdicts"),
    ("tables", "Ours beside published"),
    ("length", "Source length"),
    ("alignments", "Alignments"),
    ("training", "Training"),
    ("not-run", "Not run"),
    ("provenance", "Provenance"),
)


def sections_of(published: Published) -> list[tuple[str, str]]:
    """SECTIONS without the figures that a paper of measurements does not have."""
    plots = {table.plot.kind for table in published.tables if table.plot}
    absent = {"length": {"length"}, "alignments": {"alignment", "heads"}}
    measured = any(table.quantities for table in published.tables) or "quantity" in plots
    return [(name, title) for name, title in SECTIONS if not (measured and name in absent and not absent[name] & plots)]


def page(report: Report, above: str = "") -> str:
    """The whole report as one HTML document that is also well-formed XML. `above`: what stands before its header."""
    bodies = {
        "verdicts": verdicts(report.outcomes),
        "tables": _scores(report),
        "length": join(figures.length(view, report.row_order) for view in report.lengths) or _nothing(report),
        "alignments": join(
            [figures.alignments(view) for view in report.alignments], [heads(view) for view in report.heads]
        )
        or _nothing(report),
        "training": _training(report),
        "not-run": tables.not_run(report.not_run),
        "provenance": tables.provenance(report),
    }
    names = sections_of(report.published)
    sections = [tag("section", tag("h2", title), bodies[name], id=name) for name, title in names]
    return document(f"{report.published.paper}, scale {report.scale}: results", above, _header(report), sections)


def document(title: str, *content: str | Iterable[str]) -> str:
    """A page of its own: no network, no script."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE.read_text(encoding="utf-8"))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *content)), lang='en')}\n"


def _header(report: Report) -> Markup:
    published = report.published
    seeds = sorted({len(row.ok) for row in report.results.papers if row.ok})
    runs = f"{sum(run.ok for run in report.results.runs)} finished runs"
    counts = f", {seeds[0]}{f' to {seeds[-1]}' if len(seeds) > 1 else ''} seeds a row" if seeds else ""
    link = tag("a", f"arXiv {published.arxiv}", href=f"https://arxiv.org/abs/{published.arxiv}")
    note = text.data_note(report)
    return tag(
        "header",
        tag("p", f"Results at scale {report.scale}: {runs}{counts}", class_="kicker"),
        tag("h1", published.title),
        tag("p", f"{', '.join(published.authors)}. {published.venue}. ", link, class_="soft"),
        tag("ul", [tag("li", badge(verdict, f"{n} {verdict}")) for verdict, n in text.tally(report)], class_="tally"),
        tag("p", note, class_="note") if note else "",
        [tag("p", f"Warning: {warning}.", class_="note warning") for warning in report.warnings],
        tag("nav", [tag("a", title, href=f"#{name}") for name, title in sections_of(published)], aria_label="Sections"),
    )


def _scores(report: Report) -> Markup:
    first, rest = report.tables[:1], [view for view in report.tables[1:] if view.counts or view.measured]
    drawn = {view.table.id: view for view in report.quantities}
    parts = []
    for view in [*first, *rest]:
        chart = drawn.pop(view.table.id, None)
        parts += [tables.published_table(view)] + ([quantity(chart, report.row_order)] if chart else [])
    parts += [quantity(chart, report.row_order) for chart in drawn.values()]
    parts += [tables.elsewhere(view) for view in report.elsewhere]
    parts += [tables.scorers(report.scorers)] if report.scorers else []
    parts += [tables.ablations(report.ablations)] if report.ablations else []
    return join(parts)


def _training(report: Report) -> Markup:
    """Tables of run facts (no test score in them) and the learning curves."""
    parts = [tables.published_table(view) for view in report.tables[1:] if not (view.counts or view.measured)]
    return join(parts, figures.curves(report.curves, report.row_order), _recipe(report))


def _recipe(report: Report) -> Markup:
    """What the paper says of its own training."""
    facts = [(key.replace("_", " "), str(value)) for key, value in report.published.recipe.items() if key != "evidence"]
    notes = [tag("p", note, class_="caption") for note in report.published.notes]
    return tag("details", tag("summary", "The paper's own recipe"), tables.facts(facts), notes)


def _nothing(report: Report) -> Markup:
    return tag("p", f"No finished run at scale {report.scale} has what this section needs.", class_="soft")
