"""Self-attention by features, linear in the length, with the interface of the layers of long texts (`common.nn.sparse`):
Performer's FAVOR+ (Choromanski et al. 2020) and the Linear Transformer (Katharopoulos et al. 2020)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.attention import features
from common.attention.linear import BACKENDS, Attended, State, linear_attention
from common.nn.sparse.layer import Layer, Settings, refuse_global, without_padding

Kind = Literal["positive", "trigonometric", "relu"]
KINDS = ("positive", "trigonometric", "relu")


@dataclass(frozen=True, kw_only=True)
class Linear(Settings):
    """What the factories here share."""

    backend: str = "reference"
    causal: bool = False

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(
                f"backend: got {self.backend!r}, expected one of {', '.join(BACKENDS)}, those of linear attention"
            )
        if self.dropout:
            raise ValueError(f"dropout: got {self.dropout}, expected 0: linear attention has no weights to drop")


@dataclass(frozen=True, kw_only=True)
class Favor(Linear):
    """Factory. features: random ones, M in the paper. kind: positive or trigonometric ones of the softmax, or generalised ones
    of ReLU, which approximate nothing. Trigonometric keys are divided by the exponential of the longest one's half square, later
    ones included, which cancels but for rounding: keys shorter by more than 87 in it are lost (fp32). orthogonal: in blocks of
    head_dim. redraw: calls in training from one draw to the next, 0: never. seed: of the draws, which differ from layer to layer; all heads of a layer share one.
    """

    features: int = 256
    kind: Kind = "positive"
    orthogonal: bool = True
    redraw: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise ValueError(f"kind: got {self.kind!r}, expected one of {', '.join(KINDS)}")
        if self.features < 1 or self.redraw < 0:
            raise ValueError(f"{self}: expected 1 feature or more, and redraw 0 or more")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "FavorAttention":
        return FavorAttention(d_model, heads, self, layer)


@dataclass(frozen=True, kw_only=True)
class Elu(Linear):
    """Factory of the Linear Transformer's layers."""

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "EluAttention":
        return EluAttention(d_model, heads, self)


class Features(NamedTuple):
    """Of queries and keys, (B, H, T, M). log: they are logarithms."""

    q: Tensor
    k: Tensor
    log: bool = False


def random_features(kind: Kind, q: Tensor, k: Tensor, draw: Tensor, real: Tensor | None = None) -> Features:
    """q, k: (B, H, T, D); draw: (M, D), see `common.attention.features`; real: bool (B, T), False = padding."""
    if kind == "positive":
        return Features(features.positive(q, draw), features.positive(k, draw), log=True)
    if kind == "relu":
        return Features(features.relu(q, draw), features.relu(k, draw))
    (of_q, _), (of_k, lengths) = (features.trigonometric(x, draw) for x in (q, k))
    # a factor of each query cancels, and one of all keys: so the largest is taken out
    if real is not None:
        lengths = lengths.masked_fill(~real[:, None, :, None], -torch.inf)
    largest = lengths.detach().amax(2, keepdim=True)
    return Features(of_q, of_k * (lengths - largest.masked_fill(largest == -torch.inf, 0.0)).exp())


class LinearAttention(Layer):
    """Padding may stand anywhere. Stages change nothing."""

    def __init__(self, d_model: int, heads: int, of: Linear) -> None:
        super().__init__(d_model, heads, of)
        self.causal = of.causal

    @abstractmethod
    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> Features: ...

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        refuse_global(is_global, "linear attention")
        q, k, v = self.project(without_padding(x, real))
        return self.merge(self.sums(self.features(q, k, real), v, real=real).output)

    def sums(self, found: Features, v: Tensor, *, real: Tensor | None = None, state: State | None = None) -> Attended:
        return linear_attention(
            found.q, found.k, v, causal=self.causal, log=found.log, real=real, state=state, backend=self.backend
        )

    def step(self, x: Tensor, memory: State | None) -> tuple[Tensor, State | None]:
        """memory: sums, of one size whatever is remembered (Katharopoulos et al. 2020, section 3.4)."""
        if not self.causal or not self.remembers:
            return super().step(x, memory)
        q, k, v = self.project(x)
        output, state = self.sums(self.features(q, k, None), v, state=memory)
        return self.merge(output), state

    @property
    def remembers(self) -> bool:
        """Whether features of a key depend on the key alone."""
        return True


class FavorAttention(LinearAttention):
    """What is drawn lies in the state dict, with the number of training calls that decides the next draw: a run that goes on
    draws what it would have drawn. Out of training nothing is drawn."""

    kind: Kind
    draw: Tensor
    calls: Tensor

    def __init__(self, d_model: int, heads: int, of: Favor, layer: int) -> None:
        super().__init__(d_model, heads, of)
        self.kind, self.count, self.orthogonal, self.redraw = of.kind, of.features, of.orthogonal, of.redraw
        self.origin = (of.seed, layer)
        self.register_buffer("draw", self.drawn(0))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def drawn(self, number: int) -> Tensor:
        """(M, head_dim); draws are counted from 0."""
        seed = int(np.random.SeedSequence((*self.origin, number)).generate_state(1)[0])  # torch takes 32 bits of it
        generator = torch.Generator().manual_seed(seed)
        return features.gaussian(self.count, self.head_dim, generator, orthogonal=self.orthogonal)

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        if self.training and self.redraw:
            calls = int(self.calls)
            if calls and calls % self.redraw == 0:
                self.draw.copy_(self.drawn(calls // self.redraw))
            self.calls += 1
        return super().forward(x, real=real, is_global=is_global, stage=stage)

    @property
    def remembers(self) -> bool:
        return self.kind != "trigonometric"  # their lengths are taken over the largest of all keys

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> Features:
        return random_features(self.kind, q, k, self.draw, real)


class EluAttention(LinearAttention):
    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> Features:
        return Features(features.elu(q), features.elu(k))
