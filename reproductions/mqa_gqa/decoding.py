"""MQA, Table 2 and GQA, Table 1: what training and decoding cost a token, by the kind of attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.bench.by_length import store
from common.bench.timing import interleaved, seconds_of
from common.bench.update import update
from common.decode.beam import beam_search
from common.decode.types import Memory, State
from common.nn.encoder_decoder import Transformer
from data.batch import made_up_batch
from data.vocab import BOS, EOS

GREEDY = 1


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Microseconds a token, by the words of source and target, which are as many: `training_us` of an update, over source
    and target tokens; `greedy_encoder_us`, over source tokens, and `greedy_decoder_us`, over target tokens, of a greedy
    search; at the first of `lengths` the same of a search with `beam` hypotheses. `sample_ms`: milliseconds a sentence of the
    whole greedy search.

    Models stand for their sizes alone, their weights are drawn; a search ends where `lengths` say and not before. models: row
    -> what makes a model of the sizes of its vocabularies. Repeats are whole searches, models in turns.
    """

    models: Mapping[str, Callable[..., Transformer]]
    lengths: Sequence[int]
    batch: int
    beam: int
    vocabulary: int
    precision: str
    device: str
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        models = {
            row: make(source_words=self.vocabulary, target_words=self.vocabulary).to(self.device)
            for row, make in self.models.items()
        }
        rows: dict[str, dict[str, Any]] = {row: {} for row in models}
        self.train(rows, models)
        for model in models.values():
            model.eval()
        for length in self.lengths:
            print(f"{length:,} words", flush=True)
            self.search(rows, models, length, "greedy", GREEDY)
        self.search(rows, models, self.lengths[0], "beam", self.beam)
        return rows

    def train(self, rows: dict[str, dict[str, Any]], models: Mapping[str, Transformer]) -> None:
        length = self.lengths[0]
        batch = made_up_batch(self.vocabulary, self.vocabulary, self.batch, length).to(self.device)
        tokens = int(batch.source_mask.sum() + batch.target_mask.sum())
        steps = {
            row: update(model, torch.optim.Adam(model.parameters(), lr=1e-4, fused=True), batch, self.precision)
            for row, model in models.items()
        }
        timers = {row: partial(seconds_of, step) for row, step in steps.items()}
        for row, seconds in interleaved(timers, repeats=self.repeats).items():
            store(rows, row, "training_us", length, "us").extend(1e6 * s / tokens for s in seconds)

    def search(
        self, rows: dict[str, dict[str, Any]], models: Mapping[str, Transformer], length: int, name: str, beam: int
    ) -> None:
        batch = made_up_batch(self.vocabulary, self.vocabulary, self.batch, length - 1).to(self.device)
        tokens = self.batch * length
        for turn in range(1 + self.repeats):
            for row, model in models.items():
                watched = Watched(model)
                whole = seconds_of(partial(searched, watched, batch.source, batch.source_mask, length, beam))
                if not turn:
                    continue  # the first one warms up
                store(rows, row, f"{name}_encoder_us", length, "us").append(1e6 * watched.encoding / tokens)
                store(rows, row, f"{name}_decoder_us", length, "us").append(1e6 * (whole - watched.encoding) / tokens)
                if beam == GREEDY:
                    store(rows, row, "sample_ms", length).append(1e3 * whole / self.batch)


class Watched:
    """A model that knows how long its encoder took."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.encoding = model, 0.0

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Memory, State]:
        found: list[tuple[Any, Any]] = []
        self.encoding = seconds_of(lambda: found.append(self.model.begin(source, source_mask)))
        return found[0]

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor | None]:
        return self.model.step(memory, state, tokens)


def searched(model: Watched, source: Tensor, mask: Tensor, length: int, beam: int) -> None:
    """`length` target words a sentence, the end mark among them."""
    beam_search(model, source, mask, bos=BOS, eos=EOS, beam=beam, max_len=length, min_len=length - 1)
