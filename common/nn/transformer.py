"""Transformer blocks and a decoder-only language model of them (Vaswani et al. 2017; Radford et al. 2019)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch import Tensor, nn

from common.attention import Causal, Mask
from common.nn.embedding import Embedding, ScoreBias
from common.nn.feedforward import Activation, FeedForward
from common.nn.multihead import MultiHead

Norm = Literal["pre", "post"]
NormType = Literal["layer", "rms"]
Positions = Literal["learned", "sinusoidal", "none", "rotary", "alibi", "t5"]
POSITIONS = ("learned", "sinusoidal", "none", "rotary", "alibi", "t5")


def residual(kind: Norm, norm: Callable[[Tensor], Tensor], x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """post: LayerNorm(x + Sublayer(x)) (Vaswani et al. 2017, section 3.1); pre: x + Sublayer(LayerNorm(x)) (Radford et
    al. 2019, section 2.3), which leaves the sum of all blocks to be normed once at the end."""
    return x + sublayer(norm(x)) if kind == "pre" else norm(x + sublayer(x))


def normaliser(kind: NormType, size: int) -> nn.LayerNorm | nn.RMSNorm:
    """layer: Ba et al. 2016; rms: Zhang and Sennrich 2019, neither a mean to take off nor a bias to add."""
    return nn.LayerNorm(size) if kind == "layer" else nn.RMSNorm(size, eps=1e-5)


@dataclass(frozen=True, kw_only=True)
class BlockSettings:
    """What the blocks of a stack share. kv_heads, head_dim_k, head_dim_v: as `MultiHead` has them.

    positions: rotary, alibi and t5 act on the scores of a stack, the others are the embedding's. dropout: of what each
    sublayer adds; attention_dropout: of the weights; linear_bias: of the projections of attention.
    """

    d_model: int
    heads: int
    d_ff: int
    backend: str
    kv_heads: int | None = None
    head_dim_k: int | None = None
    head_dim_v: int | None = None
    norm: Norm = "post"
    norm_type: NormType = "layer"
    activation: Activation = "relu"
    positions: Positions = "none"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    linear_bias: bool = True

    def __post_init__(self) -> None:
        for name, known in (("norm", ("pre", "post")), ("norm_type", ("layer", "rms")), ("positions", POSITIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {', '.join(known)}")

    def multihead(self, *, rotary: bool = False) -> MultiHead:
        return MultiHead(
            self.d_model,
            self.heads,
            kv_heads=self.kv_heads,
            head_dim_k=self.head_dim_k,
            head_dim_v=self.head_dim_v,
            backend=self.backend,
            dropout=self.attention_dropout,
            rotary=rotary,
            linear_bias=self.linear_bias,
        )

    def self_attention(self) -> MultiHead:
        return self.multihead(rotary=self.positions == "rotary")

    def feedforward(self) -> FeedForward:
        return FeedForward(self.d_model, self.d_ff, activation=self.activation)

    def score_bias(self, *, bidirectional: bool) -> ScoreBias | None:
        """bidirectional: whether keys behind the query are seen, to which T5 gives buckets of their own."""
        if self.positions not in ("alibi", "t5"):
            return None
        return ScoreBias(self.positions, self.heads, bidirectional=bidirectional)

    def last(self) -> nn.Module:
        """What follows the last block."""
        return normaliser(self.norm_type, self.d_model) if self.norm == "pre" else nn.Identity()


class Block(nn.Module):
    """Attention of a sequence to itself and a feed-forward network, each around a residual connection.

    `dropout` is of what each adds to x (Vaswani et al. 2017, section 5.4). attention: of `settings` unless another is given.
    """

    def __init__(self, settings: BlockSettings, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.norm: Norm = settings.norm
        self.attention = settings.self_attention() if attention is None else attention
        self.feedforward = settings.feedforward()
        self.norm_1, self.norm_2 = (normaliser(settings.norm_type, settings.d_model) for _ in range(2))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, **given: Any) -> Tensor:
        """x: (B, T, d_model); given: what its attention takes besides. Returns (B, T, d_model)."""
        return self.around(x, lambda y: self.attention(y, **given))

    def step(self, x: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """The block at the position after those that its attention remembers: x (B, 1, d_model); memory: what the last call
        gave, None at the first position."""
        after, attention = memory, cast(Any, self.attention)

        def attend(y: Tensor) -> Tensor:
            nonlocal after
            seen, after = attention.step(y, memory)
            return seen

        return self.around(x, attend), after

    def around(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Both sublayers, the first of which is `attend`."""
        x = residual(self.norm, self.norm_1, x, lambda y: self.dropout(attend(y)))
        return residual(self.norm, self.norm_2, x, lambda y: self.dropout(self.feedforward(y)))


class Stack(nn.Module):
    """`layers` blocks, then one more norm if norm is "pre". An encoder with a padding mask, a decoder with Causal."""

    def __init__(self, layers: int, settings: BlockSettings, *, bidirectional: bool) -> None:
        """bidirectional: whether it is an encoder, whose queries see keys behind them."""
        super().__init__()
        self.bias = settings.score_bias(bidirectional=bidirectional)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(layers))
        self.last = settings.last()

    def forward(self, x: Tensor, *, mask: Mask, positions: Tensor | None = None) -> Tensor:
        """x: (B, T, d_model) to the same."""
        bias = self.bias() if self.bias else None
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias, positions=positions)
        return self.last(x)


class DecoderOnly(nn.Module):
    """A causal language model: embedding, `Stack`, and logits by the embedding's own matrix (Press and Wolf 2017).

    As GPT-2 by default: learned positions, norm before each sublayer and at the end, gelu, weights N(0, 0.02^2), those of
    the projections back into the residual sum over sqrt(2 * layers) (Radford et al. 2019, section 2.3). As Vaswani et al.
    2017: norm="post", positions="sinusoidal", activation="relu", scale_embedding=True and std=None, which leaves the
    weights of each part as it draws them itself.
    """

    def __init__(
        self,
        vocabulary: int,
        layers: int,
        d_model: int,
        heads: int,
        kv_heads: int,
        d_ff: int,
        *,
        backend: str,
        max_length: int | None = None,
        positions: Positions = "learned",
        norm: Norm = "pre",
        activation: Activation = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        scale_embedding: bool = False,
        std: float | None = 0.02,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(
            vocabulary,
            d_model,
            positions=positions if positions in ("learned", "sinusoidal") else "none",
            max_length=max_length,
            scale=scale_embedding,
            std=std,
            dropout=dropout,
        )
        settings = BlockSettings(
            d_model=d_model,
            heads=heads,
            kv_heads=kv_heads,
            d_ff=d_ff,
            norm=norm,
            activation=activation,
            backend=backend,
            positions=positions,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.stack = Stack(layers, settings, bidirectional=False)
        for name, module in self.stack.named_modules():
            if std is not None and isinstance(module, nn.Linear):
                back = name.endswith(("w_o", "w_2"))
                nn.init.normal_(module.weight, std=std / (2 * layers) ** 0.5 if back else std)

    def forward(self, tokens: Tensor, *, mask: Mask | None = None, positions: Tensor | None = None) -> Tensor:
        """tokens: int64 (B, T). Returns logits (B, T, vocabulary) of the token after each.

        mask: what may be seen besides causality (`Padding`, `Packed`, `Window`); positions: (T,) or (B, T), 0 to T - 1
        unless given: count from 0 in each sequence that is padded on the left or packed.
        """
        seen = Causal() if mask is None else Causal() & mask
        hidden = self.stack(self.embedding(tokens, positions), mask=seen, positions=positions)
        return nn.functional.linear(hidden, self.embedding.weight)
