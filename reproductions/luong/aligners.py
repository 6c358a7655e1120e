"""What the links of attention are compared with (Table 6): aligners that are no translation model, on the same test set.

Each gives every target word at most one source word, as attention does; only the turned IBM model does not, which gives
every source word a target word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.metrics.aer import Link, aer, aer_of_sums, link_records
from common.metrics.score import Score
from data.gold import Gold, gold_links
from data.pairs import Example
from data.translation import TranslationData
from reproductions.luong.ibm1 import train_ibm1

Links = list[set[Link]]


def diagonal(example: Example) -> set[Link]:
    """Each target word to the source word at the same share of the sentence."""
    n, m = len(example.source_tokens), len(example.target_tokens)
    return {((2 * j + 1) * n // (2 * m), j) for j in range(m)} if n else set()


def uniform_sums(example: Example, gold: Gold) -> tuple[float, float, int, int]:
    """Expected |A & S|, |A & P|, |A|, |S| if each target word is linked to any source word with equal probability.

    A link is then made with probability 1 / source words. |A| and |S| are certain, so that the rate of these sums is the
    expected rate.
    """
    n, m = len(example.source_tokens), len(example.target_tokens)
    return len(gold.sure) / n, len(gold.possible) / n, m, len(gold.sure)


def ibm1_links(train: Sequence[Example], test: Sequence[Example], rounds: int) -> Links:
    """IBM model 1 from source to target: each target word was written by a source word, or by none."""
    model = train_ibm1([(e.source_tokens, e.target_tokens) for e in train], rounds)
    return [set(model.links(e.source_tokens, e.target_tokens)) for e in test]


def turned_ibm1_links(train: Sequence[Example], test: Sequence[Example], rounds: int) -> Links:
    """The other direction: each source word was written by a target word, or by none."""
    model = train_ibm1([(e.target_tokens, e.source_tokens) for e in train], rounds)
    return [{(i, j) for j, i in model.links(e.target_tokens, e.source_tokens)} for e in test]


@dataclass(frozen=True)
class Aligners:
    """Rows of Table 6 without a translation model: a part of `reproductions.measure`, scored on a split of `data`.

    IBM model 1 learns from the pairs that the translation models are trained on, and from nothing else; `ibm1_with_test`
    from those and the test pairs (never their links), as the paper's aligner did, which was run on the text to be
    aligned.
    """

    data: TranslationData
    rounds: int
    split: str = "test"

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        """Row -> {"scored": ...}, see `reproductions.measure`. Nothing here depends on the seed."""
        self.data.prepare()
        test, gold = self.data.examples(self.split), gold_links(self.data, self.split)
        expected = np.array([uniform_sums(*each) for each in zip(test, gold, strict=True)])
        rows = {"uniform": self.scored(test, aer_of_sums(expected), None)}
        for row, links in self.made(self.data.examples("train"), test).items():
            rows[row] = self.scored(test, aer(links=links, gold=gold), links)
        return {row: {"scored": found} for row, found in rows.items()}

    def made(self, train: Sequence[Example], test: Sequence[Example]) -> dict[str, Links]:
        """The links of each row."""
        there, back = ibm1_links(train, test, self.rounds), turned_ibm1_links(train, test, self.rounds)
        return {
            "diagonal": [diagonal(example) for example in test],
            "ibm1": there,
            "ibm1_turned": back,
            "ibm1_intersection": [a & b for a, b in zip(there, back, strict=True)],
            "ibm1_with_test": ibm1_links([*train, *test], test, self.rounds),
        }

    def scored(self, test: Sequence[Example], score: Score, links: Links | None) -> dict[str, Any]:
        facts = {
            "data_checksum": self.data.checksum,
            "metrics": {f"{self.split}/aer": {"value": score.value, "signature": score.signature}},
            "data": self.data.record,
        }
        return {"facts": facts, "lines": {f"links/{self.split}.jsonl": link_records(test, score, links)}}
