"""Builds the tables of a report: ours beside published, the same text under each scorer, ablation lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from common.report.effects import Missing, Unscored, field_values, mean_scores
from common.report.facts import fact_text
from common.report.measured_tables import missing_runs, partly_refused, quantity_cell, runs_of, units
from common.report.measures import METRICS, SCORERS, Field, Measure, Quantity, Reading
from common.report.published import Column, PublishedRow, Table
from common.report.quantities import contrast
from common.report.results import Results, Row
from common.report.stats import Estimate, System, bootstrap
from common.report.views import AblationRow, AblationsView, Cell, RowView, ScorersView, TableView

STORED = ("bleu", "bleu_detok", "chrf")
LADDER = ("bleu", "multi_bleu", "bleu_atat", "bleu_detok", "bleu_intl", "bleu_lc", "chrf")
RECOMPUTED = (*STORED, "aer", "bits", "accuracy")


def table_view(table: Table, results: Results) -> TableView:
    """Join one published table with the results."""
    comparable = results.scale in table.comparable_at
    rows = tuple(_row_view(table, published, results, comparable) for published in table.rows)
    return TableView(table, table.columns, rows, _counts(table, results), comparable, units(table, results))


def _row_view(table: Table, published: PublishedRow, results: Results, comparable: bool) -> RowView:
    row = results.rows.get(published.id)
    cells = tuple(_cell(table, column, published, row, comparable) for column in table.columns)
    missing = missing_runs(table, row, results.scale) if table.quantities else ""
    told = "; ".join(
        filter(None, [note(published.not_run or missing, None if missing else row), *partly_refused(table, row)])
    )
    runs = len(row.ok) if row and not missing else 0
    return RowView(published.id, published.label, runs_of(table, row) or runs, told, cells)


def note(reason: str | None, row: Row | None) -> str:
    """What a reader must know about a row before reading its numbers."""
    if row is None:
        return f"not run: {reason}" if reason else "not run"
    notes = [f"failed (seed {run.seed}): {run.error}" for run in row.failed]
    return "; ".join(notes + ["stale: made by another version of the sources"] * row.stale)


def _cell(table: Table, column: Column, published: PublishedRow, row: Row | None, comparable: bool) -> Cell:
    theirs = published.values.get(column.id)
    if row is None or not row.ok or column.ours is None:
        return Cell(published=theirs)
    cell = replace(_value(row, column.ours), published=theirs)
    scored = isinstance(column.ours, Measure) or comparable
    if not scored or not isinstance(theirs, float) or not isinstance(cell.ours, Estimate | float):
        return cell
    if unlike := other_scorer(column):
        return replace(cell, unlike=unlike)
    difference = shifted(cell.ours, -theirs)
    value = difference.value if isinstance(difference, Estimate) else difference
    within = abs(value) <= table.tolerance if comparable and table.tolerance is not None else None
    return replace(cell, difference=difference, within=within)


def other_scorer(column: Column) -> str:
    """Why a column's values and ours do not compare; empty where they do, or where no scorer is stated."""
    kind = column.ours.about.scorer if isinstance(column.ours, Measure) else ""
    if not kind or column.scorer in ("", kind):
        return ""
    return f"published by {SCORERS[column.scorer]}, ours by {SCORERS[kind]}"


def _value(row: Row, reading: Reading) -> Cell:
    if isinstance(reading, Measure):
        return measured_cell(row, reading)
    return field_cell(row, reading) if isinstance(reading, Field) else quantity_cell(row, reading)


def shifted(ours: Estimate | float, by: float) -> Estimate | float:
    """Add a constant to a value, with its interval."""
    if isinstance(ours, Estimate):
        return replace(ours, value=ours.value + by, low=ours.low + by, high=ours.high + by)
    return ours + by


def measured_cell(row: Row, measure: Measure) -> Cell:
    """The mean score over seeds with its interval; empty where a run lacks the sentences, or why it was not scored."""
    try:
        (system,), _ = mean_scores([row], measure)
    except Unscored as reason:
        return Cell(refused=str(reason))
    except Missing:
        return Cell()
    return Cell(bootstrap([system])[0], _by_seed(row, system))


def _by_seed(row: Row, system: System) -> tuple[tuple[int, float], ...]:
    values = system.scores(np.ones((1, system.sums.shape[1])))[0]
    return tuple((run.seed, float(value)) for run, value in zip(row.ok, values, strict=True))


def field_cell(row: Row, reading: Field) -> Cell:
    """The mean of a number over seeds, or a text that the runs agree on."""
    try:
        (system,) = field_values([row], reading)
    except Missing:
        texts = {fact_text(run.field(reading.path)) for run in row.ok} - {""}
        return Cell(" / ".join(sorted(texts)) or None)
    seeds = _by_seed(row, system)
    return Cell(sum(value for _, value in seeds) / len(seeds), seeds)


def _counts(table: Table, results: Results) -> dict[str, int]:
    """Sentences behind each column (of the first row that has them)."""
    counts: dict[str, int] = {}
    for column in table.columns:
        for row in (results.rows.get(published.id) for published in table.rows):
            if isinstance(column.ours, Measure) and row and row.ok and column.id not in counts:
                items = row.ok[0].items(column.ours)
                if items is not None:
                    counts[column.id] = len(items.ids)
    return counts


def scorers_view(table: Table, results: Results) -> ScorersView | None:
    """The hypotheses of the first BLEU column of a table under every scorer; None for a table without one."""
    measures = [
        column.ours for column in table.columns if isinstance(column.ours, Measure) and column.ours.metric == "bleu"
    ]
    rows = [row for published in table.rows if (row := results.rows.get(published.id)) and row.ok]
    if not measures or not rows:
        return None
    measure = measures[0]
    names = LADDER if _rescored(rows, measure) else STORED
    views, truncated = [], {}
    for row in rows:
        cells = tuple(measured_cell(row, Measure(name, measure.split, measure.subset)) for name in names)
        views.append(RowView(row.id, row.label, len(row.ok), "", cells))
        truncated[row.label] = sum(items.truncated for run in row.ok if (items := run.items(measure)))
    metrics = tuple(METRICS[name] for name in names)
    signatures = tuple(_rescored(rows, measure).get(name) or _signature(rows, measure.split, name) for name in names)
    return ScorersView(metrics, signatures, tuple(views), truncated)


def _rescored(rows: list[Row], measure: Measure) -> Mapping[str, str]:
    """Signatures of the scorers by which all runs of the rows were scored again; empty where they were not."""
    found = [items.signatures for row in rows for run in row.ok if (items := run.items(measure))]
    return found[0] if found and all(found) else {}


def _signature(rows: list[Row], split: str, metric: str) -> str:
    """The signature that the runs recorded for <split>/<metric>; where they recorded none, the metric's own."""
    recorded = {
        run.record.get("metrics", {}).get(f"{split}/{metric}", {}).get("signature", "")
        for row in rows
        for run in row.ok
    }
    return " / ".join(sorted(recorded - {""})) or METRICS[metric].default_signature


def recorded_mismatches(results: Results) -> list[str]:
    """Scores in result.json that do not recompute from the sentences beside it: one sentence each."""
    messages = []
    for run in (run for run in results.runs if run.ok):
        for key, entry in run.record.get("metrics", {}).items():
            split, _, metric = key.partition("/")
            items = run.items(Measure(metric, split)) if metric in RECOMPUTED else None
            if items is None or not isinstance(entry, Mapping):
                continue
            about = METRICS[metric]
            recomputed = float(about.score(items.statistics[about.statistic].sum(axis=0)))
            if abs(recomputed - entry["value"]) > 0.5 * 10**-about.digits:
                recorded, again = (f"{value:.{about.digits}f}" for value in (entry["value"], recomputed))
                messages.append(f"{run.folder.name}: recorded {key} {recorded}, but its sentences give {again}")
    return messages


def ablations_view(table: Table, results: Results) -> AblationsView | None:
    """A line per ablation, with the measured columns of `table`; None where there is no ablation."""
    columns = [column for column in table.columns if isinstance(column.ours, Measure | Quantity)]
    lines = []
    for row in results.ablations:
        cells = tuple(_cell(table, column, PublishedRow(row.id, row.label, {}, None), row, False) for column in columns)
        base = results.rows.get(row.base or "")
        differences = tuple(_against(row, base, column) for column in columns)
        view = RowView(row.id, row.label, len(row.ok), note(None, row), cells)
        lines.append(
            AblationRow(view, base.label if base else str(row.base), " ".join(row.runs[0].ablation), differences)
        )
    return AblationsView(tuple(columns), tuple(lines)) if lines else None


def _against(row: Row, base: Row | None, column: Column) -> Estimate | None:
    reading = column.ours
    if base is None or not base.ok or not row.ok:
        return None
    try:
        if isinstance(reading, Quantity):
            return contrast(row, base, reading, (reading.point(), reading.point()), log=False).estimate
        if not isinstance(reading, Measure):
            return None
        systems, _ = mean_scores([row, base], reading)
    except Missing:
        return None
    return bootstrap(systems, lambda scores: scores[0] - scores[1])[0]
