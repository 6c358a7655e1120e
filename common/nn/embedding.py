"""From token numbers to vectors, and what a model is told of where a token stands (Vaswani et al. 2017, 3.4 and 3.5)."""

from typing import Literal

import torch
from torch import Tensor, nn

from common.attention import Alibi, RelativeBias, T5Bias, alibi_slopes

AddedPositions = Literal["learned", "sinusoidal", "none"]


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same (section 3.5).

    positions: (...). Returns (..., d_model), fp32, from angles in fp64. With an odd d_model the last sine has no cosine.
    """
    rate = 10000.0 ** (-torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64) / d_model)
    angle = positions[..., None].double() * rate
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)[..., :d_model].float()


class Embedding(nn.Module):
    """x = E[token] (times sqrt(d_model) if `scale`, section 3.4), plus the position's vector, then dropout (5.4).

    E is drawn with std d_model^(-1/2) unless `std` is given: after the scale its entries have variance 1, and logits
    h E^T of a normalised h too. Sinusoids have no longest length; learned positions have `max_length` of them.
    shared: the E of another embedding, in place of one of its own (section 3.4).
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        *,
        positions: AddedPositions,
        max_length: int | None = None,
        scale: bool = False,
        std: float | None = None,
        dropout: float = 0.0,
        shared: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        if positions not in ("learned", "sinusoidal", "none"):
            raise ValueError(f"positions: got {positions!r}, expected learned, sinusoidal or none")
        if (positions == "learned") != (max_length is not None):
            raise ValueError(f"max_length: got {max_length}, expected a number for learned positions and for no other")
        spread = d_model**-0.5 if std is None else std
        self.positions = positions
        self.factor = d_model**0.5 if scale else 1.0
        if shared is None:
            shared = nn.Parameter(nn.init.normal_(torch.empty(vocabulary, d_model), std=spread))
        assert shared.shape == (vocabulary, d_model)
        self.weight = shared
        self.places = (
            nn.Parameter(nn.init.normal_(torch.empty(max_length, d_model), std=spread)) if max_length else None
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, *, real: Tensor | None = None, start: int = 0
    ) -> Tensor:
        """tokens: int64 (B, T). Returns (B, T, d_model).

        positions: int64 (T,) or (B, T), `start` and those that follow unless given. real: bool (B, T), in place of
        positions: the real tokens of a row are numbered from 0, wherever its padding lies. Raises ValueError for more
        tokens than there are learned positions, and for a position that is none of them.
        """
        x = nn.functional.embedding(tokens, self.weight) * self.factor
        if self.positions != "none":
            if positions is not None:
                self._check(positions)
                x = x + self.vectors(positions).to(x.dtype)
            else:
                vectors = self.following(start, tokens.shape[-1]).to(x.dtype)
                x = x + (vectors if real is None else vectors[(real.cumsum(-1) - 1).clamp(min=0)])
        return self.dropout(x)

    def following(self, start: int, count: int) -> Tensor:
        """(count, d_model): the vectors of position `start` and those that follow."""
        if self.places is not None and start + count > len(self.places):
            raise ValueError(f"tokens: got {start + count} in a row, expected at most {len(self.places)}, max_length")
        return self.vectors(torch.arange(start, start + count, device=self.weight.device))

    def _check(self, positions: Tensor) -> None:
        """Raises ValueError; the lookup itself would end a process that uses a GPU, and say nothing of positions."""
        if self.places is None or not positions.numel():
            return
        low, high = (int(end) for end in positions.aminmax())
        if low < 0 or high >= len(self.places):
            raise ValueError(f"positions: got {low} to {high}, expected 0 to {len(self.places) - 1}, below max_length")

    def vectors(self, positions: Tensor) -> Tensor:
        """(..., d_model) of positions (...)."""
        if self.places is not None:
            return nn.functional.embedding(positions, self.places)
        return sinusoids(positions, self.weight.shape[1])


class ScoreBias(nn.Module):
    """The bias by distance that all layers of a stack share: ALiBi's slopes, or T5's learned table of buckets."""

    def __init__(self, kind: Literal["alibi", "t5"], heads: int, *, bidirectional: bool, buckets: int = 32) -> None:
        super().__init__()
        self.kind, self.bidirectional = kind, bidirectional
        self.register_buffer("slopes", alibi_slopes(heads) if kind == "alibi" else None, persistent=False)
        self.table = nn.Parameter(torch.zeros(buckets, heads)) if kind == "t5" else None

    def forward(self) -> RelativeBias:
        if self.table is not None:
            return T5Bias(self.table, self.bidirectional)
        assert isinstance(self.slopes, Tensor)
        return Alibi(self.slopes)
