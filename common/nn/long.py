"""Transformers for long texts, over any of the layers of `common.nn.sparse` (Beltagy et al. 2020; Zaheer et al. 2020)."""

from functools import partial
from typing import Any, NamedTuple, Required, TypedDict, Unpack

import torch
from torch import Tensor, nn

from common.nn.embedding import AddedPositions, Embedding
from common.nn.feedforward import Activation, projection
from common.nn.matched import Match, matched_d_ff
from common.nn.sparse.layer import Factory
from common.nn.sparse.windowed import WindowedAttention
from common.nn.transformer import Block, BlockSettings, Norm


class Options(TypedDict, total=False):
    """attention: factory of the layers. positions: added to the embedding; learned ones for max_length tokens, "none" for
    layers that know positions by themselves. dropout: of what each sublayer adds; embedding_dropout: of the vectors that go
    in. std: of the initial weights, N(0, std^2), over sqrt(2 * layers) where they write into the residual sum (Radford et
    al. 2019, section 2.3); None: as each part draws its own. match: "params" widens d_ff (`matched_d_ff`)."""

    attention: Required[Factory]
    positions: AddedPositions
    max_length: int | None
    norm: Norm
    activation: Activation
    dropout: float
    embedding_dropout: float
    std: float | None
    match: Match


class Memory(NamedTuple):
    """Of a text read so far, one for each layer."""

    seen: int = 0
    layers: tuple[Any, ...] = ()


class Trunk(nn.Module):
    """Embedding and blocks, pre-norm and GELU unless told otherwise. Extra tokens of the attention (`Factory`) are learned
    here, stand in front in all blocks, without positions, and are not in what comes out."""

    def __init__(
        self,
        vocabulary: int,
        layers: int,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        attention: Factory,
        positions: AddedPositions = "none",
        max_length: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "gelu",
        dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        std: float | None = 0.02,
        match: Match = "none",
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm: got {norm!r}, expected pre or post")
        settings = BlockSettings(
            d_model=d_model,
            heads=heads,
            d_ff=matched_d_ff(
                match,
                d_model,
                d_ff,
                [partial(attention, d_model, heads, n, layers) for n in range(layers)],
                layers,
                activation,
            ),
            backend=attention.backend,
            norm=norm,
            activation=activation,
            dropout=dropout,
        )
        self.d_model, self.causal, self.uses_global = d_model, attention.causal, attention.uses_global
        self.embedding = Embedding(
            vocabulary, d_model, positions=positions, max_length=max_length, std=std, dropout=embedding_dropout
        )
        count, spread = attention.extra_tokens, d_model**-0.5 if std is None else std
        self.extra = nn.Parameter(torch.empty(count, d_model).normal_(std=spread)) if count else None
        self.blocks = nn.ModuleList(Block(settings, attention(d_model, heads, n, layers)) for n in range(layers))
        self.last = settings.last()
        if std is not None:
            initialise(self.blocks, std, layers)

    def forward(
        self, tokens: Tensor, real: Tensor | None = None, is_global: Tensor | None = None, *, stage: int = 0
    ) -> Tensor:
        """tokens: int64 (B, T); real, is_global: bool (B, T). Returns (B, T, d_model).

        Raises ValueError for more tokens than there are learned positions.
        """
        x = self.embedding(tokens)
        if real is not None and bool(real.all()):
            real = None  # a mask of padding is work
        if self.extra is not None:
            x = torch.cat((self.extra.expand(len(x), -1, -1), x), 1)
            real = None if real is None else nn.functional.pad(real, (len(self.extra), 0), value=True)
        for block in self.blocks:
            x = block(x, real=real, is_global=is_global, stage=stage)
        return self.last(x if self.extra is None else x[:, len(self.extra) :])

    def step(self, tokens: Tensor, memory: "Memory") -> tuple[Tensor, "Memory"]:
        """The next position alone. tokens: int64 (B,). Returns (B, d_model) and the memory for the one after."""
        x = self.embedding(tokens[:, None], start=memory.seen)
        layers = []
        for block, of_layer in zip(self.blocks, memory.layers or (None,) * len(self.blocks), strict=True):
            assert isinstance(block, Block)
            x, after = block.step(x, of_layer)
            layers.append(after)
        return self.last(x)[:, 0], Memory(memory.seen + 1, tuple(layers))


def initialise(blocks: nn.ModuleList, std: float, layers: int) -> None:
    """See `Options`. Biases and norms stay as they are; separate global projections are copies again."""
    for name, module in blocks.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std / (2 * layers) ** 0.5 if name.endswith(("w_o", "w_2")) else std)
    for module in blocks.modules():
        if isinstance(module, WindowedAttention):
            module.copy_to_global()


class LanguageModel(nn.Module):
    """Character by character from left to right (Beltagy et al. 2020, section 4); logits by the embedding's own matrix."""

    def __init__(
        self, vocabulary: int, layers: int, d_model: int, heads: int, d_ff: int, **options: Unpack[Options]
    ) -> None:
        """Raises ValueError for attention that is not causal."""
        super().__init__()
        self.trunk = Trunk(vocabulary, layers, d_model, heads, d_ff, **options)
        if not self.trunk.causal:
            raise ValueError(
                "attention of a language model: got causal=False, expected causal=True, or it sees what it says"
            )

    def forward(self, tokens: Tensor, *, stage: int = 0) -> Tensor:
        """tokens: int64 (B, T), padding on the right, which nothing before it sees. Returns logits (B, T, vocabulary) of
        the token after each."""
        return nn.functional.linear(self.trunk(tokens, stage=stage), self.trunk.embedding.weight)

    def step(self, tokens: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """What `forward` gives for a text, symbol by symbol. tokens: int64 (B,), what follows the text of `memory`; None: its
        beginning. Returns logits (B, vocabulary) and the memory with this symbol."""
        hidden, after = self.trunk.step(tokens, memory or Memory())
        return nn.functional.linear(hidden, self.trunk.embedding.weight), after


class MaskedModel(nn.Module):
    """An encoder that says what stands at masked positions (Devlin et al. 2019, appendix A; Beltagy et al. 2020, section 5):
    LayerNorm(gelu(h W + b)) E^T + c, with the embedding's E."""

    def __init__(
        self, vocabulary: int, layers: int, d_model: int, heads: int, d_ff: int, **options: Unpack[Options]
    ) -> None:
        """Raises ValueError for causal attention."""
        super().__init__()
        self.trunk = Trunk(vocabulary, layers, d_model, heads, d_ff, **options)
        encoder_only(self.trunk)
        self.dense, self.norm = projection(d_model, d_model), nn.LayerNorm(d_model)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(
        self, tokens: Tensor, real: Tensor | None = None, is_global: Tensor | None = None, *, stage: int = 0
    ) -> Tensor:
        """tokens: int64 (B, T); real, is_global: bool (B, T). Returns logits (B, T, vocabulary); those at padding mean
        nothing."""
        hidden = self.norm(nn.functional.gelu(self.dense(self.trunk(tokens, real, is_global, stage=stage))))
        return nn.functional.linear(hidden, self.trunk.embedding.weight, self.bias)


def encoder_only(trunk: Trunk) -> None:
    if trunk.causal:
        raise ValueError("attention of an encoder: got causal=True, expected causal=False, as it reads both ways")
