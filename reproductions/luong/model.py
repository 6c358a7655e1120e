"""Attentional stacked LSTMs (Luong, Pham, Manning 2015), equation by equation.

Symbols are the paper's: h_t is the top layer's state of the decoder, \\bar{h}_s that of the encoder at source word s (here
`annotations`), c_t the context, \\tilde{h}_t the attentional vector. Attention reads the *current* state, h_t -> a_t -> c_t ->
\\tilde{h}_t (section 3.1), where Bahdanau's reads the one before. Positions count from 0.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from common.attention.scores import (
    additive_score,
    dot_score,
    location_score,
    masked_softmax,
    predicted_center,
    truncated_gaussian,
    window,
)
from common.nn.deferred import Deferred
from common.nn.lstm import Cells, StackedLSTM

SCORES = ("none", "location", "dot", "general", "concat")
SPANS = ("global", "local_m", "local_p")


@dataclass(frozen=True)
class Source:
    """What the decoder knows of a batch of source sentences, their words in the order of the sentence."""

    annotations: Tensor  # (B, S, H) \bar{h}_s
    keys: Tensor  # (B, S, H) what the score compares h_t with: \bar{h}_s, W_a \bar{h}_s, or concat's share of W_a
    mask: Tensor  # (B, S) bool
    lengths: Tensor  # (B, 1) words of each, the end mark counted
    state: Cells  # (B, layers, H) where the decoder starts

    def dot(self, h: Tensor) -> Tensor:
        """h_t^T keys: (B, Q, H) to (B, Q, S)."""
        return dot_score(h, self.keys.unsqueeze(1))

    def context(self, weights: Tensor) -> Tensor:
        """c_t: (B, Q, S) to (B, Q, H)."""
        return weights @ self.annotations


@dataclass(frozen=True)
class LoopSource(Source):
    """The same for a loop over the words, which reads both matrices once a word."""

    by_key: Deferred
    by_annotation: Deferred

    @classmethod
    def of(cls, x: Source) -> Self:
        return cls(**vars(x), by_key=Deferred(x.keys.mT), by_annotation=Deferred(x.annotations))

    def dot(self, h: Tensor) -> Tensor:
        return self.by_key(h)

    def context(self, weights: Tensor) -> Tensor:
        return self.by_annotation(weights)


class Luong(nn.Module):
    """p(y | x). layers, hidden: 4 and 1000 in the paper; source_words, target_words: with the special tokens counted.

    attention: a score of section 3.1, or "none", the plain encoder-decoder; span: global, or local with windows of
    `half_width` D on each side of p_t (section 3.2); feed: the attentional vector enters the next step (section 3.3);
    reverse: the source is read from its end to its start, the end mark first; max_source: positions that "location" knows.
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        *,
        layers: int,
        hidden: int,
        embedding: int,
        attention: str,
        span: str = "global",
        half_width: int = 10,
        feed: bool = False,
        reverse: bool = True,
        max_source: int = 51,
        dropout: float = 0.0,
        init: float = 0.1,
    ) -> None:
        super().__init__()
        for name, got, known in (("attention", attention, SCORES), ("span", span, SPANS)):
            if got not in known:
                raise ValueError(f"model.{name}: got {got!r}, expected one of {', '.join(known)}")
        if attention in ("none", "location") and span != "global" or attention == "none" and feed:
            raise ValueError(f"model: got attention {attention}, span {span}, feed {feed}, which do not go together")
        self.attention, self.span, self.half_width, self.feed, self.reverse = attention, span, half_width, feed, reverse
        self.source_embedding = nn.Embedding(source_words, embedding)
        self.target_embedding = nn.Embedding(target_words, embedding)
        self.encoder = StackedLSTM(embedding, hidden, layers, dropout=dropout)
        self.decoder = StackedLSTM(embedding + hidden * feed, hidden, layers, dropout=dropout)
        if attention == "general":  # h_t^T W_a \bar{h}_s
            self.w_a = nn.Linear(hidden, hidden, bias=False)
        elif attention == "concat":  # v_a^T tanh(W_a [h_t; \bar{h}_s]), W_a in its two halves
            self.w_query, self.w_key = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
            self.v_a = nn.Parameter(torch.empty(hidden))
        elif attention == "location":  # a_t = softmax(W_a h_t)
            self.w_place = nn.Parameter(torch.empty(hidden, max_source))
        if span == "local_p":  # p_t = S sigmoid(v_p^T tanh(W_p h_t))
            self.w_p, self.v_p = nn.Parameter(torch.empty(hidden, hidden)), nn.Parameter(torch.empty(hidden))
        if attention != "none":
            self.w_c = nn.Linear(2 * hidden, hidden, bias=False)
        self.w_s = nn.Linear(hidden, target_words)
        self.drop = nn.Dropout(dropout)
        for parameter in self.parameters():  # section 4.1
            nn.init.uniform_(parameter, -init, init)

    def encode(self, source: Tensor, mask: Tensor) -> Source:
        """source: (B, S) ids; mask: (B, S) bool, True at real tokens, at least one a row."""
        lengths = mask.sum(1, keepdim=True)
        order = reversed_within(mask) if self.reverse else None
        words = source if order is None else source.gather(1, order)
        embedded = self.source_embedding(words)
        annotations, state = self.encoder(embedded, self.encoder.zeros(embedded), mask)
        if order is not None:
            annotations = annotations.gather(1, order.unsqueeze(-1).expand_as(annotations))
        keys = annotations
        if self.attention == "general":
            keys = self.w_a(annotations)
        elif self.attention == "concat":
            keys = self.w_key(annotations)
        return Source(annotations, keys.to(annotations.dtype), mask, lengths, state)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (N, K_y) of the N real target positions, in the order of ``target_mask`` (teacher forcing)."""
        x = self.encode(source, source_mask)
        embedded = self.target_embedding(target_in)
        if not self.feed:
            h, _ = self.decoder(embedded, x.state)
            places = torch.arange(h.shape[1], device=h.device)
            vectors = h if self.attention == "none" else self.attend(h, x, places)[0]
        else:
            vectors = self.fed_scan(embedded, x)
        return self.w_s(self.drop(vectors[target_mask]))

    def fed_scan(self, embedded: Tensor, x: Source) -> Tensor:
        """Section 3.3: the attentional vectors (B, T, H), each read with the next word."""
        step, vector, vectors = self.decoder.fed(embedded, x.state), torch.zeros_like(x.state.h[:, 0]), []
        source = LoopSource.of(x)
        for t in range(embedded.shape[1]):
            h = step(t, vector)
            vector = self.attend(h.unsqueeze(1), source, torch.tensor([t], device=h.device))[0].squeeze(1)
            vectors.append(vector)
        return torch.stack(vectors, 1)

    def attend(self, h: Tensor, x: Source, places: Tensor) -> tuple[Tensor, Tensor]:
        """Attentional vectors (B, Q, H) and weights (B, Q, S) for states h (B, Q, H) of target positions `places` (Q,)."""
        weights = self.weights(h, x, places)
        both = torch.cat((x.context(weights), h), -1)
        return torch.tanh(self.w_c(both)).to(h.dtype), weights  # equation 5

    def weights(self, h: Tensor, x: Source, places: Tensor) -> Tensor:
        """Equation 7, for local attention equations 9 and 10. (B, Q, S)"""
        length, keys = x.mask.shape[1], x.keys.unsqueeze(1)
        if self.attention == "location":
            scores = location_score(h, self.w_place, length)
        elif self.attention == "concat":
            scores = additive_score(self.w_query(h).to(keys.dtype), keys, self.v_a)
        else:  # general: W_a went to the keys
            scores = x.dot(h)
        seen = x.mask.unsqueeze(1)
        if self.span == "global":
            return masked_softmax(scores, seen)
        if self.span == "local_m":
            return masked_softmax(scores, seen & window(places, self.half_width, length))
        center = predicted_center(h, self.w_p, self.v_p, x.lengths)
        inside = masked_softmax(scores, seen & window(center, self.half_width, length))
        return inside * truncated_gaussian(center, self.half_width, length)

    # -- the step interface of common.decode ---------------------------------------------------------------------

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Memory of the source (leading dimension B) and the first decoder state (B, 1, ...)."""
        x = self.encode(source, source_mask)
        memory = {"annotations": x.annotations, "keys": x.keys, "mask": x.mask, "lengths": x.lengths}
        state = {"h": x.state.h.unsqueeze(1), "c": x.state.c.unsqueeze(1)}
        state["vector"] = torch.zeros_like(state["h"][:, :, 0])
        state["place"] = torch.zeros_like(x.lengths)
        return memory, state

    def step(
        self, memory: dict[str, Tensor], state: dict[str, Tensor], tokens: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """tokens: (B, K) last words of K hypotheses a sentence. Returns log-probabilities (B, K, K_y), the next state and
        the weights (B, K, S), None without attention."""
        x = Source(**memory, state=Cells(state["h"], state["c"]))
        embedded = self.target_embedding(tokens)
        if self.feed:
            embedded = torch.cat((embedded, state["vector"]), -1)
        h, cells = self.decoder.step(embedded, x.state)
        vector, weights = (h, None) if self.attention == "none" else self.attend(h, x, state["place"][0])
        after = {"h": cells.h, "c": cells.c, "vector": vector, "place": state["place"] + 1}
        return torch.log_softmax(self.w_s(vector).float(), -1), after, weights


def reversed_within(mask: Tensor) -> Tensor:
    """(B, S) positions that read each row's real words from last to first and leave its padding where it is."""
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place)
