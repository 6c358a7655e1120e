"""Small models whose best translations can be found by hand or by brute force."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from common.decode import Memory, State

PAD, BOS, EOS, UNK = 0, 1, 2, 3
NEG_INF = float("-inf")
Path = tuple[int, ...]
NextWord = Callable[[Path], list[float]]
"""Log-probs of the next word after a prefix that does not hold BOS."""


class Markov:
    """log P(word | last word, position) from a table (positions, V, V); row BOS starts, the last position goes on.

    Attention is one-hot at the word just read.
    """

    def __init__(self, table: Tensor) -> None:
        self.table, self.batch_sizes = table, []

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, State]:
        name = source[:, :1]
        return {"name": name}, {"name": name.unsqueeze(1), "position": torch.zeros_like(name)}

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor]:
        assert (state["name"] == memory["name"].unsqueeze(1)).all(), "memory and state of different sentences"
        self.batch_sizes.append(len(tokens))
        position = state["position"].clamp(max=len(self.table) - 1)
        weights = torch.nn.functional.one_hot(tokens, self.table.shape[-1]).float()
        return self.table[position, tokens], {**state, "position": state["position"] + 1}, weights


class Recurrent:
    """A small attentive RNN in fp64 with its state in two tensors: a vector and the last word but one."""

    def __init__(self, seed: int, words: int, size: int = 6) -> None:
        g = torch.Generator().manual_seed(seed)
        self.source, self.target, self.feed = (
            torch.randn(words, size, generator=g, dtype=torch.float64) for _ in range(3)
        )
        self.inner, self.out = (torch.randn(n, size, generator=g, dtype=torch.float64) for n in (size, words))

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, State]:
        keys = self.source[source]
        first = (keys * source_mask.unsqueeze(-1)).sum(1) / source_mask.sum(1, keepdim=True)
        return {"keys": keys, "mask": source_mask}, {
            "hidden": first.unsqueeze(1),
            "before": torch.full((len(source), 1), PAD),
        }

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor]:
        scores = state["hidden"] @ memory["keys"].transpose(1, 2)
        weights = scores.masked_fill(~memory["mask"].unsqueeze(1), NEG_INF).softmax(-1)
        seen = weights @ memory["keys"] + self.target[tokens] + self.feed[state["before"]]
        hidden = torch.tanh(state["hidden"] @ self.inner + seen)
        return (1.5 * hidden @ self.out.T).log_softmax(-1), {"hidden": hidden, "before": tokens}, weights

    def recompute(self, source: Tensor) -> NextWord:
        """The same distribution, computed anew from the first word for each prefix of one sentence."""

        def next_word(prefix: Path) -> list[float]:
            memory, state = self.begin(source.unsqueeze(0), torch.ones(1, len(source), dtype=torch.bool))
            log_probs = torch.empty(0)
            for word in (BOS, *prefix):
                log_probs, state, _ = self.step(memory, state, torch.tensor([[word]]))
            return log_probs[0, 0].tolist()

        return next_word


def markov_next(table: Tensor) -> NextWord:
    return lambda prefix: table[min(len(prefix), len(table) - 1), prefix[-1] if prefix else BOS].tolist()


def random_table(seed: int, words: int, impossible: float = 0.2, positions: int = 8) -> Tensor:
    """Random log-probs in which some transitions, but no ending, are impossible.

    They depend on the position too: else two orders of the same transitions are a tie.
    """
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(positions, words, words, generator=g)
    logits[torch.rand(logits.shape, generator=g) < impossible] = NEG_INF
    logits[:, :, EOS] = torch.randn(positions, words, generator=g) - 1
    return logits.log_softmax(-1)


def table_of(words: int, rows: dict[int, dict[int, float]]) -> Tensor:
    """Log-probs by hand: {last word: {next word: log-prob}}, all else impossible."""
    table = torch.full((words, words), NEG_INF)
    for last, following in rows.items():
        for word, log_prob in following.items():
            table[last, word] = log_prob
    return table.unsqueeze(0)


def norm(length: int, alpha: float, rule: str) -> float:
    return {"power": length, "gnmt": (5 + length) / (5 + 1)}[rule] ** alpha


def exhaustive(
    next_word: NextWord, words: list[int], max_len: int, alpha: float, n: int, rule: str = "power"
) -> list[tuple[Path, float]]:
    """The n best of all finished translations of at most max_len words, EOS counted, with their log-probs."""
    found = []
    for length in range(max_len):
        for path in itertools.product(words, repeat=length):
            log_prob = sum(next_word(path[:i])[word] for i, word in enumerate((*path, EOS)))
            if log_prob > NEG_INF:
                found.append((path, log_prob))
    return sorted(found, key=lambda h: -h[1] / norm(len(h[0]) + 1, alpha, rule))[:n]


def plain_beam(
    next_word: NextWord,
    words: list[int],
    beam: int,
    max_len: int,
    alpha: float,
    n: int,
    min_len: int = 0,
    rule: str = "power",
) -> list[tuple[Path, float]]:
    """Beam search over lists for one sentence that never stops early: all finished hypotheses compete at the end."""
    live: list[tuple[Path, float]] = [((), 0.0)]
    done: list[tuple[Path, float]] = []
    for length in range(max_len):
        grown = [
            ((*path, word), log_prob + score)
            for path, log_prob in live
            for word, score in enumerate(next_word(path))
            if score > NEG_INF and (word in words or (word == EOS and length >= min_len))
        ]
        grown.sort(key=lambda h: -h[1])
        done += [h for h in grown[:beam] if h[0][-1] == EOS]
        live = [h for h in grown if h[0][-1] != EOS][:beam]
    done.sort(key=lambda h: -h[1] / norm(len(h[0]), alpha, rule))
    return [(path[:-1], log_prob) for path, log_prob in done[:n] if not math.isnan(log_prob)]
