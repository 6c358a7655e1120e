"""What a column or a claim reads: a metric over a split, a subset and a range of source lengths, or a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.report import scores
from common.report.schema import Node

SCALES = ("smoke", "small", "paper")
TRAINED = "trained"
SUBSETS = {
    "all": "all sentences",
    "no_unk": "sentences without unknown words",
    "shuffled": "references against other translations",
}


@dataclass(frozen=True)
class Metric:
    """A corpus score of the sums named `statistic`. `default_signature` is shown unless a run records one."""

    name: str
    label: str
    unit: str
    statistic: str
    score: Callable[[scores.Array], scores.Array]
    default_signature: str
    digits: int = 2


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "bleu", "BLEU (Moses tokens)", "BLEU", "bleu", scores.bleu, "nrefs:1|case:mixed|eff:no|tok:moses|smooth:exp"
        ),
        Metric(
            "bleu_detok",
            "sacreBLEU (detokenised)",
            "BLEU",
            "bleu_detok",
            scores.bleu,
            "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
        ),
        Metric("chrf", "chrF2", "chrF", "chrf", scores.chrf, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"),
        Metric(
            "log_likelihood",
            "log-likelihood per token",
            "nats",
            "log_likelihood",
            scores.quotient,
            "sum log p / tokens, end of sentence counted",
        ),
        Metric(
            "monotone",
            "monotonicity above its null",
            "",
            "monotone",
            scores.quotient,
            "mean of statistic - null per sentence",
        ),
    )
}


@dataclass(frozen=True)
class Measure:
    """A metric over sentences: `source_tokens` is an inclusive range of source lengths in words, or None for all.

    `trained`: up to the longest sentence that every row in question was trained on, whatever it is at a scale.
    """

    metric: str
    split: str = "test"
    subset: str = "all"
    source_tokens: tuple[int, int] | None = None
    trained: bool = False

    @property
    def about(self) -> Metric:
        """The metric itself."""
        return METRICS[self.metric]


@dataclass(frozen=True)
class Field:
    """A dotted path into result.json, such as train.seconds, times a factor. One value per run, so per seed."""

    path: str
    factor: float = 1.0


Reading = Measure | Field


def read_reading(node: Node) -> Reading:
    """Read the keys of a Measure or a Field from a node (the caller ends with `node.done()`)."""
    if "field" in node.data:
        return Field(node.text("field"), node.number("factor", 1.0))
    trained = node.data.get("source_tokens") == TRAINED
    low_high = None if trained else node.pair("source_tokens", None)
    node.read.add("source_tokens")
    return Measure(
        metric=node.choice("metric", METRICS),
        split=node.text("split", "test"),
        subset=node.choice("subset", SUBSETS, "all"),
        source_tokens=None if low_high is None else (int(low_high[0]), int(low_high[1])),
        trained=trained,
    )
