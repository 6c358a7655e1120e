"""From runs to systems to resample: the same test items for every run, summed per cluster and length range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.report import lengths
from common.report.lengths import Bins
from common.report.measures import Field, Measure
from common.report.results import Row, Run
from common.report.scores import Array
from common.report.sentences import Items
from common.report.stats import Estimate, System, bootstrap

Range = tuple[int, int] | None
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]


class Missing(Exception):
    """A value that the runs do not give; the message says why."""


class Unscored(Missing):
    """A score that is not stored, but that the stored sentences give."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The items that all runs share. `sums`: per row (seeds, clusters, ranges, width + 1), the last number a count."""

    sums: tuple[Array, ...]
    clusters: int
    counts: tuple[int, ...]
    mean_lengths: Array | None
    dropped: int

    @property
    def sentences(self) -> int:
        """Items in any of the ranges."""
        return sum(self.counts)


def sample(rows: Sequence[Row], measure: Measure, ranges: Sequence[Range] = (None,)) -> Sample:
    """Gather what `measure` reads from every finished run of `rows`. Items that some run lacks are dropped and counted.

    Raises Missing where a run has no such file or no item is left, ValueError where runs disagree on an item.
    """
    by_row = [[_items(run, measure) for run in row.ok] for row in rows]
    every = [items for group in by_row for items in group]
    shared = set(every[0].ids).intersection(*(items.ids for items in every[1:]))
    ids = [item for item in every[0].ids if item in shared]
    position = dict(zip(every[0].ids, range(len(every[0].ids)), strict=True))
    reference = [position[item] for item in ids]
    clusters = [every[0].clusters[i] for i in reference]
    names = sorted(set(clusters))
    number = {name: i for i, name in enumerate(names)}
    index = np.array([number[cluster] for cluster in clusters], dtype=np.intp)
    words = None if every[0].source_tokens is None else every[0].source_tokens[reference]
    members = [_member(words, extent, len(ids), measure) for extent in ranges]
    counts = tuple(int(member.sum()) for member in members)
    if not sum(counts):
        raise Missing(f"no sentence of {measure.split} in this subset")
    sums = tuple(
        np.stack([_cluster_sums(items, ids, clusters, measure, index, members, len(names)) for items in group])
        for group in by_row
    )
    mean_lengths = None
    if words is not None:
        mean_lengths = np.array([words[member].mean() if member.any() else np.nan for member in members])
    dropped = max(len(items.ids) for items in every) - len(ids)
    used = len(np.unique(index[np.any(members, axis=0)]))
    return Sample(sums, used, counts, mean_lengths, dropped)


def _items(run: Run, measure: Measure) -> Items:
    items = run.items(measure)
    if items is None:
        raise Missing(f"{run.folder.name} has no sentences for {measure.split}/{measure.subset}")
    if measure.about.statistic not in items.statistics:
        raise Unscored(f"{measure.about.label} is not stored: a report with rescore=true scores the sentences again")
    return items


def _member(words: Array | None, extent: Range, n: int, measure: Measure) -> Mask:
    low_high = extent or measure.source_tokens
    if low_high is None:
        return np.ones(n, dtype=bool)
    if words is None:
        raise ValueError(f"metric {measure.metric!r} has no source lengths: leave out source_tokens")
    return (words >= low_high[0]) & (words <= low_high[1])


def _cluster_sums(
    items: Items, ids: list[str], clusters: list[str], measure: Measure, index: Index, members: list[Mask], n: int
) -> Array:
    """Sums of one run: (clusters, ranges, width + 1)."""
    position = {item: i for i, item in enumerate(items.ids)}
    order = [position[item] for item in ids]
    for item, mine, theirs in zip(ids, [items.clusters[i] for i in order], clusters, strict=True):
        if mine != theirs:
            raise ValueError(
                f"{items.file}: {item}: cluster {mine!r}, expected {theirs!r} as in the other runs: use the same data"
            )
    statistics = items.statistics[measure.about.statistic][order]
    statistics = np.concatenate([statistics, np.ones((len(ids), 1))], axis=1)
    sums = np.zeros((n, len(members), statistics.shape[1]))
    for group, member in enumerate(members):
        np.add.at(sums[:, group], index[member], statistics[member])
    return sums


def score_estimates(row: Row, measure: Measure, ranges: Sequence[Range] = (None,)) -> tuple[list[Estimate], Sample]:
    """The score of one row in each range, with intervals."""
    gathered = sample([row], measure, ranges)
    score = measure.about.score
    return bootstrap([System(gathered.sums[0], lambda sums: score(sums[..., :-1]))]), gathered


def mean_scores(rows: Sequence[Row], measure: Measure) -> tuple[list[System], Sample]:
    """Systems whose score is the metric itself."""
    gathered = sample(rows, measure)
    score = measure.about.score
    return [System(sums, lambda s: score(s[..., 0, :-1])) for sums in gathered.sums], gathered


def slopes(rows: Sequence[Row], measure: Measure, bins: Bins, relative: bool) -> tuple[list[System], Sample]:
    """Systems whose score is the slope over length bins, per 10 words; relative: in percent of the row's own score."""
    low, high = measure.source_tokens or (1, bins.up_to)
    whole = sample(rows, measure, bins.ranges(low, high))
    kept = [extent for extent, n in zip(bins.ranges(low, high), whole.counts, strict=True) if n >= bins.fewest]
    if len(kept) < 2:
        raise Missing(f"fewer than two bins of source length hold {bins.fewest} sentences of {measure.split}")
    gathered = sample(rows, measure, kept)
    score, at = measure.about.score, gathered.mean_lengths
    assert at is not None

    def fall(sums: Array) -> Array:
        steepness = lengths.slope(score(sums[..., :-1]), at, sums[..., -1])
        return 100 * steepness / score(sums[..., :-1].sum(axis=-2)) if relative else steepness

    return [System(sums, fall) for sums in gathered.sums], gathered


def against_lengths(rows: Sequence[Row], measure: Measure, baseline: tuple[int, int]) -> tuple[list[System], Sample]:
    """Systems whose score is the metric on the measure's source lengths over the metric on the baseline lengths."""
    gathered = sample(rows, measure, [measure.source_tokens, baseline])
    if 0 in gathered.counts:
        raise Missing(f"no sentence of {measure.split} in one of the two length ranges")
    score = measure.about.score

    def kept(sums: Array) -> Array:
        both = score(sums[..., :-1])
        return both[..., 0] / both[..., 1]

    return [System(sums, kept) for sums in gathered.sums], gathered


def field_values(rows: Sequence[Row], reading: Field) -> list[System]:
    """Systems whose score is a field of result.json: no test items, so that seeds alone give the spread."""
    systems = []
    for row in rows:
        values = [run.number(reading) for run in row.ok]
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            raise Missing(f"{row.id} has no {reading.path}")
        systems.append(System(np.array(found)[:, None, None], lambda sums: sums[..., 0]))
    return systems


def read_systems(
    rows: Sequence[Row],
    reading: Measure | Field,
    bins: Bins | None,
    *,
    slope: bool,
    relative: bool,
    baseline: tuple[int, int] | None,
) -> tuple[list[System], Sample | None]:
    """Dispatch on what a claim reads. `bins`: of source length; only a slope needs them."""
    if isinstance(reading, Field):
        return field_values(rows, reading), None
    if slope:
        assert bins is not None
        return slopes(rows, reading, bins, relative)
    if baseline:
        return against_lengths(rows, reading, baseline)
    return mean_scores(rows, reading)
