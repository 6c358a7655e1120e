"""Alignment error rate of word links (Och and Ney 2003), and the links that attention weights make.

A link is (place of the source word, place of the target word), from 0; the end mark is no word and has none.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np

from common.metrics.score import Score

Link = tuple[int, int]
SIGNATURE = "AER|1 - (|A&S| + |A&P|) / (|A| + |S|)|corpus sums"


class Reference(Protocol):
    """Links made by hand: the sure ones S, and the possible ones P, the sure ones among them."""

    @property
    def sure(self) -> Collection[Link]: ...
    @property
    def possible(self) -> Collection[Link]: ...


class Sentence(Protocol):
    """A test example."""

    @property
    def id(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def source_tokens(self) -> Sequence[str]: ...
    @property
    def target_tokens(self) -> Sequence[str]: ...


def one_to_one(weights: np.ndarray) -> set[Link]:
    """One link from each target word to the source word with the highest weight (Luong et al. 2015, section 5.4).

    The last row and the last column, those of the end marks, are left out beforehand: a target word that looks at the
    source's end mark more than at any word is linked to the word that comes next. The first of equal weights counts.
    A target word with no weight on any word (a local window beyond the sentence) has no link.

    Args:
        weights: (target words + 1, source words + 1), row t of the step that writes target word t.

    Raises:
        ValueError: for anything that is no matrix of finite weights.
    """
    weights = np.asarray(weights)
    if weights.ndim != 2 or 0 in weights.shape or not np.isfinite(weights).all():
        raise ValueError(f"need finite weights (target words + 1, source words + 1); got shape {weights.shape}")
    words = weights[:-1, :-1]
    if not words.size:
        return set()
    best = words.argmax(axis=1)
    return {(int(best[t]), t) for t in np.flatnonzero(words.max(axis=1) > 0).tolist()}


def link_sums(links: Collection[Link], gold: Reference) -> tuple[int, int, int, int]:
    """|A & S|, |A & P|, |A|, |S| of one sentence."""
    made, sure, possible = set(links), set(gold.sure), set(gold.possible)
    return len(made & sure), len(made & possible), len(made), len(sure)


def aer(*, links: Sequence[Collection[Link]], gold: Sequence[Reference]) -> Score:
    """AER of a test set, 0 (best) to 1: 1 - (|A & S| + |A & P|) / (|A| + |S|), sets summed over sentences.

    Returns:
        statistics (sentences, 4): |A & S|, |A & P|, |A|, |S|.

    Raises:
        ValueError: if the two differ in length, or a sure link is not possible.
    """
    if len(links) != len(gold):
        raise ValueError(f"need links and gold links of each sentence; got {len(links)} and {len(gold)}")
    if strange := [i for i, reference in enumerate(gold) if not set(reference.sure) <= set(reference.possible)]:
        raise ValueError(f"sure links must be possible ones; got others in sentences {strange[:5]}")
    return aer_of_sums(np.array([link_sums(*each) for each in zip(links, gold, strict=True)]).reshape(-1, 4))


def aer_of_sums(sums: np.ndarray) -> Score:
    """AER from |A & S|, |A & P|, |A|, |S| of each sentence, (sentences, 4), expected ones too.

    Raises:
        ValueError: without any link, made or sure.
    """
    sure_hits, possible_hits, made, sure = np.asarray(sums, dtype=np.float64).sum(axis=0)
    if made + sure == 0:
        raise ValueError(f"no link in {len(sums)} sentences, neither made nor sure: no rate of errors")
    return Score(float(1 - (sure_hits + possible_hits) / (made + sure)), SIGNATURE, np.asarray(sums))


def link_records(
    sentences: Sequence[Sentence], score: Score, links: Sequence[Collection[Link]] | None = None
) -> list[dict[str, Any]]:
    """One record a sentence for links/<split>.jsonl: its sums, and its links as "source-target" pairs, if there are any."""
    records: list[dict[str, Any]] = []
    for i, (sentence, sums) in enumerate(zip(sentences, score.statistics.tolist(), strict=True)):
        record = {"id": sentence.id, "cluster": sentence.cluster, "source_tokens": len(sentence.source_tokens)}
        written = {} if links is None else {"links": " ".join(f"{a}-{b}" for a, b in sorted(links[i]))}
        records.append(record | written | {"aer": sums})
    return records


def alignment_records(
    weights: Sequence[np.ndarray], gold: Sequence[Reference], sentences: Sequence[Sentence]
) -> tuple[list[dict[str, Any]], Score]:
    """Records of a test set for links/<split>.jsonl, and its AER.

    Args:
        weights: of each sentence (target words + 1, source words + 1), of forced decoding, without padding.
        gold: links made by hand, and the examples, in the same order.

    Raises:
        ValueError: where weights do not fit the words of their sentence; as `one_to_one` and `aer`.
    """
    for sentence, matrix in zip(sentences, weights, strict=True):
        expected = len(sentence.target_tokens) + 1, len(sentence.source_tokens) + 1
        if np.shape(matrix) != expected:
            raise ValueError(
                f"{sentence.id}: got weights {np.shape(matrix)}, expected {expected}, (target words + 1, source words + 1)"
            )
    links = [one_to_one(matrix) for matrix in weights]
    score = aer(links=links, gold=gold)
    return link_records(sentences, score, links), score
