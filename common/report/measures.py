"""What a column or a claim reads: a metric over a split, a subset and a range of source lengths, or a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.report import scores
from common.report.schema import Node

AER = "AER|1 - (|A&S| + |A&P|) / (|A| + |S|)|corpus sums"
BITS = "sum nll / ln 2 / sum symbols"
ACCURACY = "right targets / all targets"
SCALES = ("smoke", "small", "paper")
TRAINED = "trained"
SUBSETS = {
    "all": "all sentences",
    "unk_replaced": "unknown words replaced",
    "greedy": "greedy search",
    "no_unk": "sentences without unknown words",
    "shuffled": "references against other translations",
}


SCORERS = {
    "multi_bleu": "multi-bleu of tokenised text",
    "multi_bleu_split": "multi-bleu of tokenised text, compounds split",
    "13a": "mteval-v13a or sacreBLEU's 13a",
    "intl": "sacreBLEU's intl",
    "13a_lc": "13a of lower-cased text",
    "chrf": "chrF2",
    "unnamed": "a scorer that the paper does not name",
}
"""Kinds of scorers that a published number may name; values of different kinds are not compared."""
PER_TOKEN = ("log_likelihood", "bits")
"""Metrics that compare only between rows that cut their text into the same tokens."""
SHARES = ("accuracy",)
"""Metrics from 0 to 100 to which each item adds 0 or 100."""


@dataclass(frozen=True)
class Metric:
    """A corpus score of the sums named `statistic`. `default_signature` is shown unless a run records one.

    `scorer`: its kind, one of SCORERS; empty for what has none.
    """

    name: str
    label: str
    unit: str
    statistic: str
    score: Callable[[scores.Array], scores.Array]
    default_signature: str
    digits: int = 2
    scorer: str = ""


def _bleu(
    name: str,
    label: str,
    statistic: str,
    score: Callable[[scores.Array], scores.Array],
    scorer: str,
    settings: str,
    case: str = "mixed",
) -> Metric:
    return Metric(name, label, "BLEU", statistic, score, f"nrefs:1|case:{case}|eff:no|{settings}", scorer=scorer)


METRICS = {
    metric.name: metric
    for metric in (
        # Smoothing matters only where some order has no match at all: so its kind is that of multi_bleu.
        _bleu("bleu", "BLEU (Moses tokens)", "bleu", scores.bleu, "multi_bleu", "tok:moses|smooth:exp"),
        _bleu("multi_bleu", "multi-bleu", "bleu", scores.multi_bleu, "multi_bleu", "tok:moses|smooth:none"),
        _bleu(
            "bleu_atat",
            "multi-bleu, compounds split",
            "bleu_atat",
            scores.multi_bleu,
            "multi_bleu_split",
            "tok:moses|smooth:none|compounds:split",
        ),
        _bleu("bleu_detok", "sacreBLEU (detokenised)", "bleu_detok", scores.bleu, "13a", "tok:13a|smooth:exp"),
        _bleu("bleu_intl", "sacreBLEU intl", "bleu_intl", scores.bleu, "intl", "tok:intl|smooth:exp"),
        _bleu("bleu_lc", "sacreBLEU, lower-cased", "bleu_lc", scores.bleu, "13a_lc", "tok:13a|smooth:exp", case="lc"),
        Metric(
            "chrf",
            "chrF2",
            "chrF",
            "chrf",
            scores.chrf,
            "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no",
            scorer="chrf",
        ),
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
        Metric("aer", "alignment error rate", "AER", "aer", scores.aer, AER, digits=3),
        Metric("bits", "bits per symbol", "bits", "bits", scores.quotient, BITS, digits=3),
        Metric("accuracy", "accuracy", "%", "accuracy", scores.quotient, ACCURACY),
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


@dataclass(frozen=True)
class Quantity:
    """A measured quantity of samples.json at points, times a factor: the median over repeats, the mean over runs.

    `at`: one point, in a claim also one per row, or none where the claim reads a range of points. `unit`: that of the
    value, after the factor; where it is not stated it is that of the samples.
    """

    name: str
    at: tuple[str, ...] = ()
    factor: float = 1.0
    unit: str = ""

    def point(self, row: int = 0) -> str:
        """The point at which the `row`-th row is read."""
        return self.at[row if len(self.at) > 1 else 0]


Reading = Measure | Field | Quantity


def read_reading(node: Node) -> Reading:
    """Read the keys of a Measure, a Field or a Quantity from a node (the caller ends with `node.done()`)."""
    if "quantity" in node.data:
        return _quantity(node)
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


def _quantity(node: Node) -> Quantity:
    at = node.data.get("at")
    points = () if at is None else (node.text("at"),) if isinstance(at, str) else node.texts("at")
    if at is not None and not points:
        raise node.error("at", "expected a point or one per row, got none")
    node.read.add("at")
    reading = Quantity(node.text("quantity"), points, node.number("factor", 1.0), node.text("unit", ""))
    if reading.factor != 1 and not reading.unit:
        raise node.error("unit", "missing: the factor changes the unit of the samples")
    return reading
