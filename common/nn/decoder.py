"""The decoder of the Transformer (Vaswani et al. 2017, section 3.1): whole sentences, or one position at a time."""

from collections.abc import Callable

from torch import Tensor, nn

from common.attention import Causal, Mask, Padding, RelativeBias
from common.nn.transformer import BlockSettings, Norm, normaliser, residual

Tensors = dict[str, Tensor]
KeysValues = tuple[Tensor, Tensor]


class DecoderBlock(nn.Module):
    """Attention to the positions before, attention to the annotations of the source, and a feed-forward network."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.norm: Norm = settings.norm
        self.attention, self.cross = settings.self_attention(), settings.multihead()
        self.feedforward = settings.feedforward()
        self.norm_1, self.norm_2, self.norm_3 = (normaliser(settings.norm_type, settings.d_model) for _ in range(3))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(
        self, x: Tensor, annotations: Tensor, *, mask: Mask, source_mask: Mask, bias: RelativeBias | None = None
    ) -> Tensor:
        """x: (B, T, d_model), annotations: (B, S, d_model). Returns (B, T, d_model)."""
        return self.around(
            x,
            lambda y: self.attention(y, mask=mask, bias=bias),
            lambda y: self.cross(y, annotations, mask=source_mask),
        )

    def around(self, x: Tensor, attend: Callable[[Tensor], Tensor], cross: Callable[[Tensor], Tensor]) -> Tensor:
        """The three sublayers and their residual connections, with these for the two attentions."""
        x = residual(self.norm, self.norm_1, x, lambda y: self.dropout(attend(y)))
        x = residual(self.norm, self.norm_2, x, lambda y: self.dropout(cross(y)))
        return residual(self.norm, self.norm_3, x, lambda y: self.dropout(self.feedforward(y)))

    def step(
        self, x: Tensor, target: KeysValues, source: KeysValues, source_mask: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeysValues, Tensor]:
        """One position: `MultiHead.extend` of the target, `MultiHead.look` at the source. x: (B, K, d_model) to the same,
        with the target grown by the position, and the weights (B, K, H, S) on the source."""
        weights = None

        def attend(y: Tensor) -> Tensor:
            nonlocal target
            y, *grown = self.attention.extend(y, *target, bias)
            target = (grown[0], grown[1])
            return y

        def cross(y: Tensor) -> Tensor:
            nonlocal weights
            y, weights = self.cross.look(y, *source, source_mask)
            return y

        x = self.around(x, attend, cross)
        assert weights is not None
        return x, target, weights


class Decoder(nn.Module):
    """`layers` blocks, then one more norm if norm is "pre".

    `begin` and `step` are `forward` one position at a time. The memory, one copy a sentence, are keys and values of the
    annotations, the state are keys and values of the positions so far, one copy a hypothesis.
    """

    def __init__(self, layers: int, settings: BlockSettings) -> None:
        super().__init__()
        self.bias = settings.score_bias(bidirectional=False)
        self.blocks = nn.ModuleList(DecoderBlock(settings) for _ in range(layers))
        self.last = settings.last()

    def forward(self, x: Tensor, annotations: Tensor, source_mask: Tensor) -> Tensor:
        """x: (B, T, d_model), padded on the right, so that no real position sees the padding behind it; annotations:
        (B, S, d_model); source_mask: bool (B, S), True = real. Returns (B, T, d_model)."""
        bias = self.bias() if self.bias else None
        for block in self.blocks:
            x = block(x, annotations, mask=Causal(), source_mask=Padding(source_mask), bias=bias)
        return self.last(x)

    def begin(self, annotations: Tensor, source_mask: Tensor) -> tuple[Tensors, Tensors]:
        """Keys and values of every block: of the source (B, kv_heads, S, .), and of no position yet (B, 1, kv_heads, 0, .).

        What stands at padding is put to zero: not even a NaN there is seen.
        """
        memory, state = {"mask": source_mask}, {}
        padding = ~source_mask[:, None, :, None]
        for n, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            for name, of_source in zip(("keys", "values"), block.cross.keys_values(annotations), strict=True):
                memory[f"{name}_{n}"] = of_source.masked_fill(padding, 0.0).contiguous()
                batch, heads, _, size = of_source.shape
                state[f"{name}_{n}"] = of_source.new_empty(batch, 1, heads, 0, size)
        return memory, state

    def step(self, x: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        """The next position of K hypotheses a sentence, x: (B, K, d_model). Returns (B, K, d_model), the state with this
        position, and the weights (B, K, S) with which the last block looks at the source, the mean of its heads."""
        bias = self.bias().dense(1, self.position(state) + 1, x.device)[0] if self.bias else None
        after, weights = Tensors(), None
        for n, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            names = f"keys_{n}", f"values_{n}"
            before, source = ((of[names[0]], of[names[1]]) for of in (state, memory))
            x, now, weights = block.step(x, before, source, memory["mask"], bias)
            after |= zip(names, now, strict=True)
        assert weights is not None
        return self.last(x), after, weights.mean(2)

    @staticmethod
    def position(state: Tensors) -> int:
        """How many positions the state holds: the number of the next one."""
        return state["keys_0"].shape[-2]
