"""Transformer blocks and a decoder-only language model of them (Vaswani et al. 2017; Radford et al. 2019)."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from common.attention import Causal, Mask, RelativeBias
from common.nn.embedding import Embedding, ScoreBias
from common.nn.feedforward import Activation, FeedForward
from common.nn.multihead import MultiHead

Norm = Literal["pre", "post"]
Positions = Literal["learned", "sinusoidal", "none", "rotary", "alibi", "t5"]
POSITIONS = ("learned", "sinusoidal", "none", "rotary", "alibi", "t5")


def residual(kind: Norm, norm: Callable[[Tensor], Tensor], x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """post: LayerNorm(x + Sublayer(x)) (Vaswani et al. 2017, section 3.1); pre: x + Sublayer(LayerNorm(x)) (Radford et
    al. 2019, section 2.3), which leaves the sum of all blocks to be normed once at the end."""
    return x + sublayer(norm(x)) if kind == "pre" else norm(x + sublayer(x))


class Block(nn.Module):
    """Attention of a sequence to itself and a feed-forward network, each around a residual connection.

    `dropout` is of what each adds to x (Vaswani et al. 2017, section 5.4).
    """

    def __init__(self, attention: MultiHead, feedforward: FeedForward, d_model: int, *, norm: Norm, dropout: float):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm: got {norm!r}, expected pre or post")
        self.norm: Norm = norm
        self.attention, self.feedforward = attention, feedforward
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, *, mask: Mask, bias: RelativeBias | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """x: (B, T, d_model), positions: (T,) or (B, T) for rotary ones. Returns (B, T, d_model)."""

        def attend(y: Tensor) -> Tensor:
            return self.dropout(self.attention(y, mask=mask, bias=bias, positions=positions))

        x = residual(self.norm, self.norm_1, x, attend)
        return residual(self.norm, self.norm_2, x, lambda y: self.dropout(self.feedforward(y)))


class Stack(nn.Module):
    """`layers` blocks, then one more LayerNorm if norm is "pre". An encoder with a padding mask, a decoder with Causal."""

    def __init__(
        self,
        layers: int,
        d_model: int,
        heads: int,
        kv_heads: int,
        d_ff: int,
        *,
        norm: Norm,
        activation: Activation,
        backend: str,
        positions: Positions = "none",
        bidirectional: bool,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        """positions: rotary, alibi and t5 act here, on the scores; the others are the embedding's. bidirectional: whether
        keys behind the query are seen, to which T5 gives buckets of their own."""
        super().__init__()
        if positions not in POSITIONS:
            raise ValueError(f"positions: got {positions!r}, expected one of {', '.join(POSITIONS)}")
        self.bias = ScoreBias(positions, heads, bidirectional=bidirectional) if positions in ("alibi", "t5") else None
        self.blocks = nn.ModuleList(
            Block(
                MultiHead(
                    d_model,
                    heads,
                    kv_heads=kv_heads,
                    backend=backend,
                    dropout=attention_dropout,
                    rotary=positions == "rotary",
                ),
                FeedForward(d_model, d_ff, activation=activation),
                d_model,
                norm=norm,
                dropout=dropout,
            )
            for _ in range(layers)
        )
        self.last = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

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
        self.stack = Stack(
            layers,
            d_model,
            heads,
            kv_heads,
            d_ff,
            norm=norm,
            activation=activation,
            backend=backend,
            positions=positions,
            bidirectional=False,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
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
