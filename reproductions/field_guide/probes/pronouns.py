"""What a model of pronouns attends to when it says whom one means, what depends on it, and where it can be led."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from common import attention as core
from common.bench.by_length import store
from common.nn.diversity import watched
from common.nn.long import LanguageModel
from common.nn.sparse.full import FullAttention
from data.symbols import SPECIALS
from reproductions.stored import Opened, opened

Head = tuple[int, int]
"""Layer and head."""


@dataclass(frozen=True, kw_only=True)
class Pronouns:
    """A sample for each of `sentences` test sentences of `data.sources.order.Referent`, at the place that says the answer, of
    the head that looks most at the right noun on the dev set:

    `mass`: its weight on the noun that is `meant` and on the `other` one; `more`: the first minus the second, at `test`;
    `lost`: nats of the right answer that are lost where one word is replaced by a filler, at the `most` attended one and at
    `another`, drawn from the rest; `depends`: the first minus the second, at `test`;
    `led`: what `push`, added to the head's score of the other noun, adds to its weight, at `weight`, and to the log odds of
    the other noun against the right one, at `answer`.

    of: row -> {run: folder of a language model of such sentences}.
    """

    of: Mapping[str, Mapping[str, str]]
    sentences: int
    push: float
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        rows: dict[str, dict[str, Any]] = {row: {} for row in self.of}
        for row, run in self.of.items():
            for (name, point), values in asked(opened(run["run"]), self.sentences, self.push, seed).items():
                unit = "of 1" if name in ("mass", "more") or point == "weight" else "nats"
                store(rows, row, name, point, unit).extend(values.tolist())
        return rows


@dataclass(frozen=True)
class Sentences:
    """tokens: (B, T) as the model sees them; right, other: (B,), ids of the nouns; meant_at, other_at: (B,), their places."""

    tokens: Tensor
    right: Tensor
    other: Tensor
    meant_at: Tensor
    other_at: Tensor


def sentences(of: Opened, split: str, most: int) -> Sentences:
    batches = list(of.data.eval_batches(split))
    tokens = torch.cat([batch.tokens for batch in batches])[:most]
    right = torch.cat([batch.targets[:, -1] for batch in batches])[:most]
    source = of.data.source
    places = torch.tensor(
        [source.places([*(t - SPECIALS for t in row[1:]), 0]) for row in tokens.tolist()]
    )  # of symbols; CLS stands in front
    meant_at, other_at = (places + 1).unbind(1)
    return Sentences(tokens, right, _at(tokens, other_at), meant_at, other_at)


def asked(of: Opened, most: int, push: float, seed: int) -> dict[tuple[str, str], Tensor]:
    model = of.module.model
    assert isinstance(model, LanguageModel)
    head = looks_most(model, sentences(of, "dev", most))
    test = sentences(of, "test", most)
    weights = at_the_answer(model, test.tokens)[head]  # (B, T)
    meant, other = (_at(weights, place) for place in (test.meant_at, test.other_at))
    log_p = answers(model, test.tokens)
    draw = torch.Generator().manual_seed(seed)
    attended = weights[:, 1:].argmax(1) + 1
    rest = torch.ones_like(weights).scatter(1, attended[:, None], 0.0)
    rest[:, 0] = 0.0  # CLS is no word
    another = torch.multinomial(rest, 1, generator=draw)[:, 0]
    filler = SPECIALS + of.data.source.symbols - 1
    without = [test.tokens.scatter(1, place[:, None], filler) for place in (attended, another)]
    lost = [_at(log_p, test.right) - _at(answers(model, tokens), test.right) for tokens in without]
    with pushed(model, head, test.other_at, push) as moved:
        led = answers(model, test.tokens)
    odds = [_at(p, test.other) - _at(p, test.right) for p in (log_p, led)]
    return {
        ("mass", "meant"): meant,
        ("mass", "other"): other,
        ("more", "test"): meant - other,
        ("lost", "most"): lost[0],
        ("lost", "another"): lost[1],
        ("depends", "test"): lost[0] - lost[1],
        ("led", "weight"): _at(moved[0], test.other_at) - other,
        ("led", "answer"): odds[1] - odds[0],
    }


def answers(model: LanguageModel, tokens: Tensor) -> Tensor:
    """log p of each symbol as the answer, (B, V)."""
    return model(tokens)[:, -1].double().log_softmax(-1)


def at_the_answer(model: LanguageModel, tokens: Tensor) -> dict[Head, Tensor]:
    """Weights (B, T) of each head at the place that says the answer."""
    with watched(model, "positions") as found:
        model(tokens)
    return {(n, h): layer.heads[:, h, -1] for n, layer in enumerate(found) for h in range(layer.heads.shape[1])}


def looks_most(model: LanguageModel, given: Sentences) -> Head:
    """The head with the largest weight on the noun that is meant, in the mean."""
    found = at_the_answer(model, given.tokens)
    return max(found, key=lambda head: _at(found[head], given.meant_at).mean().item())


@contextmanager
def pushed(model: LanguageModel, head: Head, place: Tensor, push: float) -> Iterator[list[Tensor]]:
    """Within it the head's scores of (B,) places from the last query are `push` higher. Gives its weights at that query, (B,
    T), of each call."""
    layer, found = model.trunk.blocks[head[0]].attention, []
    assert isinstance(layer, FullAttention)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: core.Mask) -> Tensor:
        bias = q.new_zeros(len(q), layer.heads, q.shape[2], k.shape[2])
        bias[:, head[1], -1] = bias[:, head[1], -1].scatter(1, place[:, None], push)
        answer = core.attention(
            q, k, v, mask=mask, bias=bias, scale=layer.scale, backend="reference", return_weights=True
        )
        assert isinstance(answer, core.Attended) and answer.weights is not None
        found.append(answer.weights[:, head[1], -1])
        return answer.output

    layer.attend = attend  # of this one object: found before that of its class
    try:
        yield found
    finally:
        del layer.attend


def _at(of_each: Tensor, column: Tensor) -> Tensor:
    """of_each[b, column[b]], (B,)."""
    return of_each.gather(1, column[:, None])[:, 0]
