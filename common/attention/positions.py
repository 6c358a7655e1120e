"""What a score knows of where query and key stand: biases by distance, and rotations."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


class RelativeBias(ABC):
    """A bias of the scores that depends on the head and on the distance from query to key alone."""

    heads: int

    @abstractmethod
    def values(self, distance: Tensor) -> Tensor:
        """(H, n) for distances (n,), int64: key minus position of the query, so negative before it."""

    def vector(self, lq: int, lk: int, device: torch.device | str = "cpu") -> Tensor:
        """(H, Lq + Lk - 1): entry j - i + Lq - 1 is the bias of query i and key j. All that a kernel reads of it."""
        return self.values(torch.arange(1 - lk, max(lq, 1 - lk), device=device))

    def dense(self, lq: int, lk: int, device: torch.device | str = "cpu") -> Tensor:
        """(1, H, Lq, Lk)."""
        i, j = torch.arange(lq, device=device)[:, None], torch.arange(lk, device=device)
        return self.vector(lq, lk, device)[:, j - i + lq - 1][None]


@dataclass(frozen=True, eq=False)
class Alibi(RelativeBias):
    """Press et al. 2022, section 3: -slope * |distance|. slopes: (H,)."""

    slopes: Tensor

    @property
    def heads(self) -> int:  # type: ignore[override]
        return len(self.slopes)

    def values(self, distance: Tensor) -> Tensor:
        return -self.slopes.to(distance.device)[:, None] * distance.abs()


def alibi_slopes(heads: int) -> Tensor:
    """Press et al. 2022, section 3: 2^(-8 h / heads) for h = 1 .. heads where heads is a power of two.

    Otherwise, as their code has it: those of the next lower power, then every second one of the next higher.
    """
    if heads < 1:
        raise ValueError(f"heads: got {heads}, expected 1 or more")
    lower = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * h / lower) for h in range(1, lower + 1)]
    second = [2 ** (-8 * h / (2 * lower)) for h in range(1, 2 * lower + 1, 2)]
    return torch.tensor((first + second)[:heads])


@dataclass(frozen=True, eq=False)
class T5Bias(RelativeBias):
    """Raffel et al. 2020, section 2.1: a learnt number for each bucket of distances and head. table: (buckets, H)."""

    table: Tensor
    bidirectional: bool
    max_distance: int = 128

    def __post_init__(self) -> None:
        exact = len(self.table) // (4 if self.bidirectional else 2)
        if self.table.ndim != 2 or not 0 < exact < self.max_distance:
            raise ValueError(
                f"T5Bias: got a table of shape {tuple(self.table.shape)} and max_distance {self.max_distance}, expected "
                f"(buckets, heads) with {4 if self.bidirectional else 2} buckets or more, and more distance than {exact}"
            )

    @property
    def heads(self) -> int:  # type: ignore[override]
        return self.table.shape[1]

    def values(self, distance: Tensor) -> Tensor:
        bucket = t5_bucket(distance, len(self.table), self.bidirectional, self.max_distance)
        return self.table.to(distance.device)[bucket].t()


def t5_bucket(distance: Tensor, buckets: int, bidirectional: bool, max_distance: int) -> Tensor:
    """Bucket of each distance (key minus query), int64, from 0 to buckets - 1.

    Half of the buckets hold one distance each, the other half grow logarithmically up to max_distance; all beyond share
    the last. Bidirectional: half of all for keys behind the query; else these count as distance 0.
    """
    behind = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        behind = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return behind + torch.where(distance < exact, distance, far)


@dataclass(frozen=True)
class RotaryScaling:
    """Rotary positions for texts of up to `factor` times the length that a model was trained on.

    kind: "interpolation", positions / factor, so that none is beyond those of training (Chen et al. 2023, section 2.3), or
    "ntk", base * factor^(D / (D - 2)) (Peng et al. 2023, section 3.1): the rates base^(-2i / D) are then those of before
    times factor^(-2i / (D - 2)), from the highest as it was, i = 0, to the lowest as interpolation has it, i = D / 2 - 1.
    Raises ValueError for other kinds and for a factor below 1.
    """

    kind: Literal["interpolation", "ntk"]
    factor: float

    def __post_init__(self) -> None:
        if self.kind not in ("interpolation", "ntk"):
            raise ValueError(f"rotary scaling: got {self.kind!r}, expected interpolation or ntk")
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"rotary scaling: got a factor of {self.factor}, expected a finite number, 1 or more")

    def positions(self, positions: Tensor) -> Tensor:
        """In fp64: whole numbers over a factor are none."""
        return positions.double() / self.factor if self.kind == "interpolation" else positions

    def base(self, base: float, size: int) -> float:
        """size: D. Raises ValueError for "ntk" with a D whose one rate would be the highest and the lowest."""
        if self.kind == "interpolation":
            return base
        if size < 4:
            raise ValueError(f"rotary scaling: got a head dimension of {size}, expected 4 or more for ntk")
        return base * self.factor ** (size / (size - 2))


def rotary(x: Tensor, positions: Tensor, base: float = 10000.0, scaling: RotaryScaling | None = None) -> Tensor:
    """Su et al. 2021, section 3.2.2, equation 34: dimensions 2i and 2i + 1 turn by positions * base^(-2i / D).

    x: (..., time, D) with even D; positions: (time,) or broadcastable to (..., time). The turning is done in fp32 (fp64
    stays fp64). scaling: of positions or base, for longer texts. Raises ValueError for an odd D.
    """
    size = x.shape[-1]
    if size % 2:
        raise ValueError(f"rotary: got a head dimension of {size}, expected an even one")
    if scaling is not None:
        positions, base = scaling.positions(positions), scaling.base(base, size)
    wide = x.double() if x.dtype == torch.float64 else x.float()
    cos, sin = (turns.to(wide.dtype) for turns in rotary_turns(positions, size, base))
    even, odd = wide[..., 0::2], wide[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return turned.flatten(-2).to(x.dtype)


def rotary_turns(positions: Tensor, size: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine of positions * base^(-2i / size), (*positions.shape, size / 2).

    In fp64: in fp32 an angle of a million is off by up to 0.03.
    """
    rate = base ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float64) / size)
    angle = positions[..., None].double() * rate
    return angle.cos(), angle.sin()
