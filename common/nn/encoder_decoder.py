"""The Transformer as a translation model (Vaswani et al. 2017), section by section."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common.attention import Padding
from common.nn.decoder import Decoder, State, Tensors
from common.nn.embedding import AddedPositions, Embedding
from common.nn.feedforward import Activation
from common.nn.matched import Match, matched_d_ff
from common.nn.transformer import BlockSettings, Norm, NormType, Positions, Stack

Place = Literal["encoder", "decoder", "cross"]
PLACES: tuple[Place, ...] = get_args(Place)


class Transformer(nn.Module):
    """p(y | x). layers, d_model, d_ff, heads: N, d_model, d_ff, h of Table 3 (6, 512, 2048, 8 for the base model);
    head_dim_k, head_dim_v: its d_k and d_v, d_model / h unless given; source_words, target_words: with the special tokens.

    The defaults are the paper's: norms behind the sum of a sublayer and its input (3.1), projections of attention without
    biases (3.2.2), max(0, x) (3.3), one matrix for both embeddings, times sqrt(d_model), and for the logits (3.4),
    sinusoids (3.5), dropout of what each sublayer adds and of the sums of embeddings and positions (5.4). Everything else
    is an ablation: attention_dropout; positions "learned" (max_length of them on each side, Table 3 E), "none", or on the
    scores of self-attention "rotary", "alibi", "t5"; norm "pre"; norm_type "rms"; activation "gelu", "swiglu";
    linear_bias; and share_embeddings=False: a source matrix of its own. So are fewer heads of keys and values: kv_heads, in
    the attentions named by `grouped`, self-attention of the encoder and decoder and the attention from one to the other
    (Shazeer 2019 has all three, Ainslie et al. 2023 the last two); match="params", which widens d_ff (`matched_d_ff`); and
    decoder_window, the positions of the target that are seen, the query's own counted.

    backend: who computes attention in `forward` (`common.attention`); decoding a word at a time asks none.
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        *,
        layers: int,
        d_model: int,
        d_ff: int,
        heads: int,
        backend: str,
        dropout: float = 0.0,
        head_dim_k: int | None = None,
        head_dim_v: int | None = None,
        kv_heads: int | None = None,
        grouped: Sequence[Place] = PLACES,
        match: Match = "none",
        decoder_window: int | None = None,
        attention_dropout: float = 0.0,
        positions: Positions = "sinusoidal",
        max_length: int | None = None,
        norm: Norm = "post",
        norm_type: NormType = "layer",
        activation: Activation = "relu",
        linear_bias: bool = False,
        share_embeddings: bool = True,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers: got {layers}, expected 1 or more")
        if share_embeddings and source_words != target_words:
            raise ValueError(
                f"source_words and target_words: got {source_words} and {target_words}, expected the same for one shared "
                "embedding: make one vocabulary for both languages, or set share_embeddings=false"
            )
        if not grouped or set(grouped) - set(PLACES):
            raise ValueError(f"grouped: got {list(grouped)}, expected some of {', '.join(PLACES)}")
        settings = BlockSettings(
            d_model=d_model,
            heads=heads,
            d_ff=d_ff,
            backend=backend,
            kv_heads=kv_heads,
            head_dim_k=head_dim_k,
            head_dim_v=head_dim_v,
            norm=norm,
            norm_type=norm_type,
            activation=activation,
            positions=positions,
            dropout=dropout,
            attention_dropout=attention_dropout,
            linear_bias=linear_bias,
        )
        place = {name: settings if name in grouped else replace(settings, kv_heads=None) for name in PLACES}
        makers = [place["encoder"].self_attention, place["decoder"].self_attention, place["cross"].multihead]
        width = matched_d_ff(match, d_model, d_ff, makers, 2, activation)
        place = {name: replace(of, d_ff=width) for name, of in place.items()}
        added: AddedPositions = positions if positions in ("learned", "sinusoidal") else "none"

        def embedding(words: int, shared: nn.Parameter | None) -> Embedding:
            return Embedding(
                words, d_model, positions=added, max_length=max_length, scale=True, dropout=dropout, shared=shared
            )

        self.target_embedding = embedding(target_words, None)
        self.source_embedding = embedding(source_words, self.target_embedding.weight if share_embeddings else None)
        self.encoder = Stack(layers, place["encoder"], bidirectional=True)
        self.decoder = Decoder(layers, place["decoder"], cross=place["cross"], window=decoder_window)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (N, target_words) of the N real target positions, in the order of `target_mask` (teacher forcing).

        source, source_mask: (B, S), padded on either side; target_in, target_mask: (B, T), padded on the right.
        """
        hidden = self.decode(self.encode(source, source_mask), source_mask, target_in)
        return self.logits(hidden[target_mask])

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Annotations (B, S, d_model) of source (B, S); mask: bool, True at real tokens. Rows of padding mean nothing."""
        return self.encoder(self.source_embedding(source, real=mask), mask=Padding(mask))

    def decode(self, annotations: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """(B, T, d_model): what the word after each of target_in (B, T) is predicted from."""
        return self.decoder(self.target_embedding(target_in), annotations, source_mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., d_model) to (..., target_words), by the matrix of the target embedding (3.4)."""
        return nn.functional.linear(hidden, self.target_embedding.weight)

    # -- the step interface of common.decode ---------------------------------------------------------------------

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Tensors, State]:
        """Memory: keys and values of the source, (B, kv_heads, S, .) a layer, computed once for all words and hypotheses.
        State: keys and values of the target so far, none yet, for each layer."""
        return self.decoder.begin(self.encode(source, source_mask), source_mask)

    def step(self, memory: Tensors, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor]:
        """tokens: (B, K) last words of K hypotheses a sentence. Returns log-probabilities (B, K, target_words), the state
        with the keys and values of these words, and the weights (B, K, S) with which the next word looks at the source:
        the mean over the heads of the last layer, as good a guess at an alignment as any single one.

        The same as `forward`, without dropout of the weights. Raises ValueError behind the last learned position.
        """
        x = self.target_embedding(tokens.unsqueeze(-1), start=self.decoder.position(state)).squeeze(-2)
        hidden, state, weights = self.decoder.step(x, memory, state)
        scores = self.logits(hidden)
        wide = torch.promote_types(scores.dtype, torch.float32)
        return torch.log_softmax(scores, -1, dtype=wide), state, weights
