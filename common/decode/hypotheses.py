"""Book-keeping of a beam search: the best complete hypotheses, and the path back to their words."""

import numpy as np
import torch
from torch import Tensor

from common.decode.types import Hypothesis


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
        self, rows: Tensor, log_prob: Tensor, length: int, alpha: float, *, tokens: int, slot: Tensor, finished: bool
    ) -> None:
        """Merge candidates (len(rows), C) of one length into the lists of these sentences; -inf is no candidate."""
        new = {
            "score": log_prob / length**alpha,
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
        """Walk from each complete hypothesis back to the first word, all of them at once."""
        found = {name: field.cpu().numpy() for name, field in pool.fields.items()}
        length, slot = found["tokens"], found["slot"].copy()
        total = length + found["finished"]  # steps taken, the one to EOS counted
        words = np.zeros((*length.shape, len(self.steps)), dtype=np.int64)
        weights = None
        for t in reversed(range(len(self.steps))):
            rows, parents, chosen, step_weights = self.steps[t]
            row, at = rows.cpu().numpy(), slot[rows.cpu().numpy()]
            inside = length[row] > t
            at = np.where(inside, at, 0)
            words[row, :, t] = np.where(inside, np.take_along_axis(chosen.cpu().numpy(), at, 1), 0)
            slot[row] = np.where(inside, np.take_along_axis(parents.cpu().numpy(), at, 1), slot[row])
            if step_weights is not None:  # they belong to the beam that was read at step t, the parent
                if weights is None:
                    weights = step_weights.new_zeros(*length.shape, len(self.steps), step_weights.shape[-1])
                reading = torch.from_numpy(np.where(total[row] > t, slot[row], 0)).to(rows.device)
                index = reading.unsqueeze(-1).expand(-1, -1, step_weights.shape[-1])
                weights[rows, :, t] = step_weights.gather(1, index)
        if (hopeless := np.flatnonzero((found["score"] == -np.inf).all(axis=1))).size:
            raise ValueError(
                f"no word is possible for sentences {hopeless.tolist()}: all are forbidden or have log-prob -inf"
            )
        columns = source_mask.cpu()
        attention = None if weights is None else weights.cpu()
        return [
            [
                Hypothesis(
                    tokens=words[b, n, : length[b, n]].tolist(),
                    log_prob=float(found["log_prob"][b, n]),
                    score=float(found["score"][b, n]),
                    weights=None if attention is None else attention[b, n, : total[b, n]][:, columns[b]],
                    finished=bool(found["finished"][b, n]),
                )
                for n in range(length.shape[1])
                if found["score"][b, n] > float("-inf")
            ]
            for b in range(length.shape[0])
        ]
