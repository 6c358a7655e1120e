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
    ) -> None:
        super().__init__()
        if positions not in ("learned", "sinusoidal", "none"):
            raise ValueError(f"positions: got {positions!r}, expected learned, sinusoidal or none")
        if (positions == "learned") != (max_length is not None):
            raise ValueError(f"max_length: got {max_length}, expected a number for learned positions and for no other")
        spread = d_model**-0.5 if std is None else std
        self.positions = positions
        self.factor = d_model**0.5 if scale else 1.0
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocabulary, d_model), std=spread))
        self.places = (
            nn.Parameter(nn.init.normal_(torch.empty(max_length, d_model), std=spread)) if max_length else None
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens: int64 (B, T); positions: int64 (T,) or (B, T), 0 to T - 1 unless given. Returns (B, T, d_model).

        Raises ValueError for more tokens than there are learned positions.
        """
        x = nn.functional.embedding(tokens, self.weight) * self.factor
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
            if self.places is not None and tokens.shape[-1] > len(self.places):
                raise ValueError(f"tokens: got {tokens.shape[-1]} in a row, expected at most {len(self.places)}")
        if self.places is not None:
            x = x + nn.functional.embedding(positions, self.places)
        elif self.positions == "sinusoidal":
            x = x + sinusoids(positions, x.shape[-1]).to(x.dtype)
        return self.dropout(x)


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
