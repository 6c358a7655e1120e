"""Builds the figures of a report as data: score against source length, alignments, learning curves."""

from __future__ import annotations

from common.report import lengths
from common.report.effects import score_estimates
from common.report.lengths import Bins
from common.report.measures import METRICS, Measure
from common.report.published import Plot, Table
from common.report.results import Results, Row, Run
from common.report.views import AlignmentView, Curve, HeadsView, LengthView, Series

LENGTH_METRICS = ("bleu", "chrf", "log_likelihood")
CURVES = ("train_nll", "dev_nll")
MOST_POINTS = 150


def length_view(table: Table, plot: Plot, results: Results, bins: Bins) -> LengthView | None:
    """Scores per bin of source length for each row of a plot; None where no row has the sentences, or too few."""
    rows = [row for name in plot.rows if (row := results.rows.get(name)) and row.ok]
    found = [items for row in rows for run in row.ok if (items := run.items(Measure("bleu", plot.split, plot.subset)))]
    if not found or found[0].source_tokens is None:
        return None
    words = found[0].source_tokens
    counted = [
        (low, high, n) for (low, high), n in zip(bins.ranges(), lengths.counts(words, bins.ranges()), strict=True)
    ]
    shown = tuple(item for item in counted if item[2] >= bins.fewest)
    if not shown:
        return None
    panels = []
    for name in LENGTH_METRICS:
        # The control scores other hypotheses: a likelihood, which needs none, has no control.
        subsets = (plot.subset,) if name == "log_likelihood" else (plot.subset, "shuffled")
        series = [_series(row, Measure(name, plot.split, subset), shown) for subset in subsets for row in rows]
        panels.append((METRICS[name], tuple(line for line in series if line)))
    omitted = tuple(item for item in counted if 0 < item[2] < bins.fewest)
    return LengthView(table, shown, omitted, int((words > bins.up_to).sum()), tuple(panels))


def _series(row: Row, measure: Measure, bins: tuple[tuple[int, int, int], ...]) -> Series | None:
    # The control is a view of one run at least, not of every seed.
    having = Row(row.id, tuple(run for run in row.ok if run.items(measure)))
    if not having.runs:
        return None
    estimates, gathered = score_estimates(having, measure, [(low, high) for low, high, _ in bins])
    assert gathered.mean_lengths is not None
    points = tuple(zip(gathered.mean_lengths.tolist(), estimates, strict=True))
    return Series(row.id, row.label, points, row.ok[0].max_words, measure.subset == "shuffled")


def alignment_views(table: Table, plot: Plot, results: Results) -> list[AlignmentView]:
    """The drawn alignments of the first run of each row of a plot."""
    drawn = [(run, run.alignments()) for run in first_runs(plot, results)]
    return [AlignmentView(table, run.label, run.seed, tuple(found)) for run, found in drawn if found]


def heads_views(table: Table, plot: Plot, results: Results) -> list[HeadsView]:
    """What the heads of the first run of each row of a plot look at."""
    drawn = [(run, run.heads()) for run in first_runs(plot, results)]
    return [HeadsView(table, run.label, run.seed, tuple(found)) for run, found in drawn if found]


def first_runs(plot: Plot, results: Results) -> list[Run]:
    """The first finished run of each row of a plot that has one."""
    rows = [results.rows[name] for name in plot.rows if name in results.rows]
    return [row.ok[0] for row in rows if row.ok]


def learning_curves(results: Results) -> dict[str, tuple[Curve, ...]]:
    """Curves by column of curves.csv, thinned to at most 150 points each."""
    curves: dict[str, tuple[Curve, ...]] = {}
    read = [(run, run.curves()) for run in results.runs]
    for name in CURVES:
        found = [
            Curve(run.row, run.label, run.seed, thinned(columns[name])) for run, columns in read if columns.get(name)
        ]
        if found:
            curves[name] = tuple(found)
    return curves


def thinned(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most MOST_POINTS points, the last always among them."""
    step = -(-len(points) // MOST_POINTS)
    return tuple(points[::-1][::step][::-1])
