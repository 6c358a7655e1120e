"""The join: published numbers, results and claims make one report, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.report.claims import Claims
from common.report.compare import evaluate
from common.report.elsewhere import Bench, elsewhere_views
from common.report.facts import fact_text
from common.report.figures import alignment_views, heads_views, learning_curves, length_view
from common.report.measured_tables import missing_runs, quantity_view
from common.report.measures import Measure
from common.report.published import Published, Table, of_another_paper
from common.report.results import Results, Run
from common.report.stats import RESAMPLES
from common.report.tables import ablations_view, note, recorded_mismatches, scorers_view, table_view
from common.report.views import Report, RunView

# What is said of each run: title -> path in result.json.
FACTS = {
    "commit": "git_commit",
    "uncommitted changes": "git_dirty",
    "data": "data.name",
    "data source": "data.source",
    "data licence": "data.licence",
    "domain": "data.domain",
    "data fetched": "data.provenance",
    "data counts": "data.counts",
    "subwords": "data.subwords",
    "data checksum": "data_checksum",
    "config hash": "config_hash",
    "source hash": "source_hash",
    "versions": "versions",
    "hardware": "hardware",
    "started": "started",
    "seconds": "seconds",
    "peak memory, bytes": "peak_memory_bytes",
    "beam": "decode.beam",
}


def build_report(
    published: Published,
    claims: Claims,
    results: Results,
    *,
    benches: Sequence[Bench] = (),
    resamples: int = RESAMPLES,
) -> Report:
    """Join the three, and what was measured elsewhere. Raises ValueError where runs disagree on items or units."""
    tables = [table for table in published.tables if table.measured and not table.not_run]
    scored = [table for table in tables if any(isinstance(column.ours, Measure) for column in table.columns)]
    first = [*scored, *(table for table in tables if table.quantities)]
    plots = [(table, table.plot) for table in published.tables if table.plot]
    lengths = [
        length_view(table, plot, results, claims.bins[results.scale]) for table, plot in plots if plot.kind == "length"
    ]
    views = [
        view for table, plot in plots if plot.kind == "alignment" for view in alignment_views(table, plot, results)
    ]
    heads = [view for table, plot in plots if plot.kind == "heads" for view in heads_views(table, plot, results)]
    quantities = [quantity_view(table, plot, results, published) for table, plot in plots if plot.kind == "quantity"]
    scorers = [view for table in scored if (view := scorers_view(table, results))]
    shown = {view.table.id for view in [*filter(None, lengths), *views, *heads, *filter(None, quantities)]}
    shared, runs = _provenance(results)
    return Report(
        published=published,
        results=results,
        outcomes=tuple(evaluate(claims, results, resamples=resamples)),
        tables=tuple(table_view(table, results) for table in tables),
        scorers=scorers[0] if scorers else None,
        lengths=tuple(filter(None, lengths)),
        alignments=tuple(views),
        heads=tuple(heads),
        quantities=tuple(filter(None, quantities)),
        elsewhere=tuple(elsewhere_views(published, benches)),
        ablations=ablations_view(first[0], results) if first else None,
        curves=learning_curves(results),
        not_run=tuple(_not_run(published, results, shown)),
        shared_facts=shared,
        runs=runs,
        warnings=tuple(_warnings(published, results)),
    )


def _not_run(published: Published, results: Results, shown: set[str]) -> list[tuple[str, str]]:
    """What has no value of ours, and why: whole tables and figures first, then rows, then runs."""
    listed = [(table.title, table.not_run) for table in published.tables if table.not_run]
    for table in published.tables:
        if table.plot and table.id not in shown and not table.not_run:
            listed.append((table.title, f"no finished run at scale {results.scale} has what this figure needs"))
    rows: dict[str, str] = {}
    for table in published.tables:
        for row in table.rows if table.measured and not table.not_run else ():
            if not (row.id in results.rows and results.rows[row.id].ok):
                rows.setdefault(row.label, _why_not(table, row.id, results))
            elif table.quantities and (missing := missing_runs(table, results.rows[row.id], results.scale)):
                rows.setdefault(f"{row.label}, {table.title}", row.not_run or missing)
    listed += rows.items()
    listed += [(run.folder.name, f"failed: {run.error}") for run in results.runs if not run.ok]
    return listed + [(name, "unfinished: the folder has no result.json") for name in results.unfinished]


def _why_not(table: Table, row_id: str, results: Results) -> str:
    row = table.row(row_id)
    assert row is not None
    if row.not_run:
        return row.not_run
    found = results.rows.get(row_id)
    return note(None, found) if found else f"no run at scale {results.scale}"


def mixed_data(published: Published, results: Results, ablations: bool = True) -> dict[str, str]:
    """Tables whose rows (and the lines that a user added to them) were run on different data: checksums -> titles."""
    mixed: dict[str, str] = {}
    for table in published.tables:
        rows = [
            row
            for row in results.rows.values()
            if table.row(row.base or row.id) and (ablations or not row.base) and not of_another_paper(row.id)
        ]
        found = {run.text_checksum for row in rows for run in row.ok} - {None}  # a measured row may have none
        if len(found) > 1:
            checksums = ", ".join(sorted(found))
            mixed[checksums] = ", ".join(filter(None, [mixed.get(checksums), table.title]))
    return mixed


def _warnings(published: Published, results: Results) -> list[str]:
    warnings = recorded_mismatches(results)
    for titles in mixed_data(published, results).values():
        warnings.append(
            f"{titles}: the runs were made on different data: their values are not comparable with each other"
        )
    machines = [run.field("hardware") for run in results.runs if run.samples]
    if any(machine != machines[0] for machine in machines):
        warnings.append("rows were measured on different hardware: their values are not comparable with each other")
    if stale := [run.folder.name for run in results.runs if run.stale]:
        warnings.append(
            f"stale, made by another version of the sources (they are trained anew when their table is made again): {', '.join(stale)}"
        )
    if dirty := [run.folder.name for run in results.runs if run.field("git_dirty")]:
        warnings.append(f"made with uncommitted changes: {', '.join(dirty)}")
    return warnings


def _provenance(results: Results) -> tuple[dict[str, str], tuple[RunView, ...]]:
    """Facts that all runs share, and per run those that differ."""
    facts = {run.folder.name: _facts(run) for run in results.runs}
    shared = {
        title: values[0]
        for title in FACTS
        if (values := [every.get(title, "") for every in facts.values()]) and values[0] and len(set(values)) == 1
    }
    runs = tuple(
        RunView(run.folder.name, _status(run), _without(facts[run.folder.name], shared), run.command)
        for run in results.runs
    )
    return shared, runs


def _facts(run: Run) -> dict[str, str]:
    return {title: text for title, path in FACTS.items() if (text := fact_text(run.field(path)))}


def _without(facts: Mapping[str, str], shared: Mapping[str, str]) -> dict[str, str]:
    """The facts of one run that are not shared, hashes cut short."""
    own = {title: text for title, text in facts.items() if title not in shared}
    return {title: text[:12] if title.endswith(("hash", "checksum", "commit")) else text for title, text in own.items()}


def _status(run: Run) -> str:
    return "failed" if not run.ok else "stale" if run.stale else "ok"
