"""The decoder of the Transformer (Vaswani et al. 2017, section 3.1): whole sentences, or one position at a time."""

from collections.abc import Callable

from torch import Tensor, nn

from common.attention import Causal, Mask, Padding, RelativeBias, Window
from common.attention.cache import Remembered
from common.nn.transformer import BlockSettings, Norm, normaliser, residual

Tensors = dict[str, Tensor]
State = dict[str, Remembered]
KeysValues = tuple[Tensor, Tensor]


class DecoderBlock(nn.Module):
    """Attention to the positions before, attention to the annotations of the source, and a feed-forward network."""

    def __init__(self, settings: BlockSettings, cross: BlockSettings) -> None:
        """cross: the settings of the attention to the source."""
        super().__init__()
        self.norm: Norm = settings.norm
        self.attention, self.cross = settings.self_attention(), cross.multihead()
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
        self, x: Tensor, target: Remembered, source: KeysValues, source_mask: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Remembered, Tensor]:
        """One position: `MultiHead.extend` of the target, `MultiHead.look` at the source. x: (B, K, d_model) to the same,
        with the target of the B * K hypotheses grown by the position, and the weights (B, K, H, S) on the source."""
        weights = None

        def attend(y: Tensor) -> Tensor:
            nonlocal target
            seen, target = self.attention.extend(y.flatten(0, 1), target, bias)
            return seen.view_as(y)

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

    def __init__(
        self,
        layers: int,
        settings: BlockSettings,
        *,
        cross: BlockSettings | None = None,
        window: int | None = None,
    ) -> None:
        """cross: the settings of the attentions to the source, the same unless given; window: how many positions of the
        target are seen, a query's own counted (Shazeer 2019, section 4.1: 32); None: all up to it."""
        super().__init__()
        if window is not None and window < 1:
            raise ValueError(f"decoder_window: got {window}, expected 1 or more positions, or null for all")
        self.window = window
        self.mask: Mask = Causal() if window is None else Window(window - 1, 0)
        self.bias = settings.score_bias(bidirectional=False)
        self.blocks = nn.ModuleList(DecoderBlock(settings, cross or settings) for _ in range(layers))
        self.last = settings.last()

    def forward(self, x: Tensor, annotations: Tensor, source_mask: Tensor) -> Tensor:
        """x: (B, T, d_model), padded on the right, so that no real position sees the padding behind it; annotations:
        (B, S, d_model); source_mask: bool (B, S), True = real. Returns (B, T, d_model)."""
        bias = self.bias() if self.bias else None
        for block in self.blocks:
            x = block(x, annotations, mask=self.mask, source_mask=Padding(source_mask), bias=bias)
        return self.last(x)

    def begin(self, annotations: Tensor, source_mask: Tensor) -> tuple[Tensors, State]:
        """Keys and values of every block: of the source (B, kv_heads, S, .), and of no position yet.

        What stands at padding is put to zero: not even a NaN there is seen.
        """
        memory, state = {"mask": source_mask}, State()
        padding = ~source_mask[:, None, :, None]
        for n, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            for name, of_source in zip(("keys", "values"), block.cross.keys_values(annotations), strict=True):
                memory[f"{name}_{n}"] = of_source.masked_fill(padding, 0.0).contiguous()
            state[f"target_{n}"] = block.attention.nothing_yet(
                len(annotations), memory[f"keys_{n}"], self.window
            )  # in the dtype that projections come in, which is autocast's
        return memory, state

    def step(self, x: Tensor, memory: Tensors, state: State) -> tuple[Tensor, State, Tensor]:
        """The next position of K hypotheses a sentence, x: (B, K, d_model). Returns (B, K, d_model), the state with this
        position, and the weights (B, K, S) with which the last block looks at the source, the mean of its heads."""
        seen = min(self.position(state) + 1, self.window or self.position(state) + 1)
        bias = self.bias().dense(1, seen, x.device)[0] if self.bias else None
        after, weights = State(), None
        for n, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            source = memory[f"keys_{n}"], memory[f"values_{n}"]
            x, after[f"target_{n}"], weights = block.step(x, state[f"target_{n}"], source, memory["mask"], bias)
        assert weights is not None
        return self.last(x), after, weights.mean(2)

    @staticmethod
    def position(state: State) -> int:
        """How many positions were read: the number of the next one."""
        return state["target_0"].seen
