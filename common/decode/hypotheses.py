"""Book-keeping of a beam search: the best complete hypotheses, and the path back to their words."""

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from common.decode.types import Hypothesis

LengthRule = Literal["power", "gnmt"]
LENGTH_RULES: tuple[LengthRule, ...] = get_args(LengthRule)


def length_norm(length: int | Tensor, alpha: float, rule: LengthRule) -> float | Tensor:
    """What the log-prob of a hypothesis of this length is divided by: power: length^alpha; gnmt: ((5 + length) / 6)^alpha
    (Wu et al. 2016, equation 14). It never falls with the length."""
    return (length if rule == "power" else (5 + length) / 6) ** alpha


class Pool:
    """The n best complete hypotheses of each of B sentences: finished before unfinished, then by score.

    A hypothesis is the beam slot at which it stood after its last word; an empty place has score -inf.
    """

    def __init__(self, sentences: int, n: int, device: torch.device) -> None:
        shape = (sentences, n)
        self.fields = {
            "score": torch.full(shape, float("-inf"), device=device),
            "log_prob": torch.full(shape, float("-inf"), device=device),  # raw: never normalised in place
            "tokens": torch.zeros(shape, dtype=torch.int64, device=device),  # number of words, without EOS
            "slot": torch.zeros(shape, dtype=torch.int64, device=device),
            "finished": torch.zeros(shape, dtype=torch.bool, device=device),
        }

    def offer(
        self, rows: Tensor, log_prob: Tensor, norm: float | Tensor, *, tokens: int, slot: Tensor, finished: bool
    ) -> None:
        """Merge candidates (len(rows), C) of one length, whose `length_norm` is norm, into the lists of these sentences;
        -inf is no candidate."""
        new = {
            "score": log_prob / norm,
            "log_prob": log_prob,
            "tokens": torch.full_like(slot, tokens),
            "slot": slot,
            "finished": torch.full_like(slot, finished, dtype=torch.bool),
        }
        merged = {name: torch.cat([field[rows], new[name]], dim=1) for name, field in self.fields.items()}
        order = merged["score"].argsort(dim=1, descending=True, stable=True)
        last = (~merged["finished"]).to(torch.int8) + 2 * (merged["score"] == float("-inf"))
        order = order.gather(1, last.gather(1, order).argsort(dim=1, stable=True))
        for name, field in self.fields.items():
            field[rows] = merged[name].gather(1, order[:, : field.shape[1]])

    def worst(self, rows: Tensor) -> Tensor:
        """(len(rows),): the score that a newcomer must beat; -inf while there are free places."""
        return self.fields["score"][rows, -1]


class Trace:
    """Words, parent pointers and attention weights of every step, kept as they were computed."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []

    def add(self, rows: Tensor, parents: Tensor, words: Tensor, weights: Tensor | None) -> None:
        """One step: sentences (A,), parents and words (A, K) of the beams it led to, weights (A, K before, S)."""
        self.steps.append((rows, parents, words, weights))

    def hypotheses(self, pool: Pool, source_mask: Tensor) -> list[list[Hypothesis]]:
        """The complete hypotheses of each sentence, best first, as values on the CPU."""
        found = {name: field.cpu().numpy() for name, field in pool.fields.items()}
        exists = found["score"] > -np.inf
        if (hopeless := np.flatnonzero(~exists.any(axis=1))).size:
            raise ValueError(
                f"no word is possible for sentences {hopeless.tolist()}: all are forbidden or have log-prob -inf"
            )
        length = found["tokens"]
        steps = length + found["finished"]
        words, weights = self._walk_back(length, steps, found["slot"])
        columns = source_mask.cpu()

        def hypothesis(b: int, n: int) -> Hypothesis:
            return Hypothesis(
                tokens=words[b, n, : length[b, n]].tolist(),
                log_prob=float(found["log_prob"][b, n]),
                score=float(found["score"][b, n]),
                weights=None if weights is None else weights[b, n, : steps[b, n]][:, columns[b]],
                finished=bool(found["finished"][b, n]),
            )

        return [[hypothesis(b, int(n)) for n in np.flatnonzero(row)] for b, row in enumerate(exists)]

    def _walk_back(self, length: np.ndarray, steps: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, Tensor | None]:
        """Words (B, n, steps) and weights (B, n, steps, S) of paths, from their end slots (B, n), all of them at once.

        A finished path took one step more than it has words: to EOS, from the slot where it ended.
        """
        slot = end.copy()
        words = np.zeros((*length.shape, len(self.steps)), dtype=np.int64)
        weights = None
        for t in reversed(range(len(self.steps))):
            rows, parents, chosen, step_weights = self.steps[t]
            row = rows.cpu().numpy()
            inside = length[row] > t
            at = np.where(inside, slot[row], 0)
            words[row, :, t] = np.where(inside, np.take_along_axis(chosen.cpu().numpy(), at, 1), 0)
            slot[row] = np.where(inside, np.take_along_axis(parents.cpu().numpy(), at, 1), slot[row])
            if step_weights is not None:  # they belong to the beam that was read at step t: the parent
                if weights is None:
                    weights = step_weights.new_zeros(*words.shape, step_weights.shape[-1])
                read = torch.from_numpy(np.where(steps[row] > t, slot[row], 0)).to(rows.device)
                index = read.unsqueeze(-1).expand(-1, -1, step_weights.shape[-1])
                weights[rows, :, t] = step_weights.gather(1, index)
        return words, None if weights is None else weights.cpu()
