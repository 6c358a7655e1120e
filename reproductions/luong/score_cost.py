"""What the scores of section 3.1 cost: each alone, and a whole training update of a model that uses it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from common.attention.scores import concat_score, dot_score, general_score, location_score
from common.bench.timing import interleaved, seconds_of
from reproductions.luong.model import Luong

CALLS = 20
POINT = "default"


@dataclass(frozen=True)
class ScoreCost:
    """Milliseconds of a score (forward and backward, one decoder step) and of an update (forward, backward, no optimiser),
    scores in turns. rows: row -> score; model: of `Luong`, without attention; words of source and target a sentence."""

    rows: Mapping[str, str]
    model: Mapping[str, Any]
    vocabulary: int
    sentences: int
    words: int
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        alone = interleaved(
            {row: self.score_timer(score, seed) for row, score in self.rows.items()}, repeats=self.repeats
        )
        whole = interleaved(
            {row: self.update_timer(score, seed) for row, score in self.rows.items()}, repeats=self.repeats
        )
        return {row: {"score_ms": _in_ms(alone[row]), "update_ms": _in_ms(whole[row])} for row in self.rows}

    def score_timer(self, score: str, seed: int) -> Callable[[], float]:
        """Seconds a call, of a few in a row."""
        torch.manual_seed(seed)
        hidden = self.model["hidden"]
        query = torch.randn(self.sentences, hidden, requires_grad=True)
        keys = torch.randn(self.sentences, self.words, hidden, requires_grad=True)
        shapes = {
            "location": [(hidden, self.words)], "dot": [], "general": [(hidden, hidden)], "concat": [(2 * hidden, hidden), (hidden,)],
        }[score]  # fmt: skip
        weights = [torch.randn(shape).mul_(hidden**-0.5).requires_grad_() for shape in shapes]
        leaves = [query, *([] if score == "location" else [keys]), *weights]

        def call() -> None:
            torch.autograd.grad(scores_of(score, query, keys, weights).sum(), leaves)

        def several() -> None:
            for _ in range(CALLS):
                call()

        return lambda: seconds_of(several) / CALLS

    def update_timer(self, score: str, seed: int) -> Callable[[], float]:
        torch.manual_seed(seed)
        model = Luong(self.vocabulary, self.vocabulary, attention=score, feed=True, **self.model)
        shape = (self.sentences, self.words)
        source, target = (torch.randint(self.vocabulary, shape) for _ in range(2))
        real = torch.ones(shape, dtype=torch.bool)

        def update() -> None:
            logits = model(source, real, target, real)
            model.zero_grad()
            functional.cross_entropy(logits, target[real]).backward()

        return lambda: seconds_of(update)


def scores_of(score: str, query: Tensor, keys: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """(B, S), with nothing known beforehand, as the equations have it."""
    if score == "location":
        return location_score(query, weights[0], keys.shape[-2])
    if score == "dot":
        return dot_score(query, keys)
    return general_score(query, keys, weights[0]) if score == "general" else concat_score(query, keys, *weights)


def _in_ms(seconds: Sequence[float]) -> dict[str, Any]:
    return {"unit": "ms", "at": {POINT: [s * 1e3 for s in seconds]}, "refused": {}}
