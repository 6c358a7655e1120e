"""A cache as one would write it without thinking of speed: a list of tokens for each sequence."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Token:
    """key (H, D_k), value (H, D_v), as they were given."""

    position: int
    key: Tensor
    value: Tensor


class PlainCache:
    """window: what is older is not read; all is kept, so that rolling back brings back what was there."""

    def __init__(self, sequences: int, kv_heads: int, dims: tuple[int, int], window: int | None = None) -> None:
        self.window = window
        self.nothing = [torch.empty(kv_heads, 0, width) for width in dims]
        self.seen = [0] * sequences
        self.tokens: list[list[Token]] = [[] for _ in range(sequences)]

    def append(self, keys: Tensor, values: Tensor, real: Tensor) -> None:
        for n in range(len(self.seen)):
            for t in range(keys.shape[2]):
                if real[n, t]:
                    self.tokens[n].append(Token(self.seen[n], keys[n, :, t], values[n, :, t]))
                    self.seen[n] += 1

    def held(self, n: int) -> list[Token]:
        first = 0 if self.window is None else self.seen[n] - self.window
        return [token for token in self.tokens[n] if token.position >= first]

    def given(self, n: int) -> tuple[Tensor, Tensor]:
        """Keys (H, L, D_k) and values (H, L, D_v) of what is held."""
        keys, values = ([getattr(token, name)[:, None] for token in self.held(n)] for name in ("key", "value"))
        return torch.cat([self.nothing[0], *keys], 1), torch.cat([self.nothing[1], *values], 1)

    def reorder(self, index: list[int]) -> None:
        self.seen = [self.seen[n] for n in index]
        self.tokens = [list(self.tokens[n]) for n in index]

    def roll_back(self, counts: list[int]) -> None:
        for n, count in enumerate(counts):
            self.seen[n] -= count
            self.tokens[n] = [token for token in self.tokens[n] if token.position < self.seen[n]]

    def evict(self, n: int, positions: list[int] | None) -> None:
        if positions is None:
            self.seen[n], self.tokens[n] = 0, []
        else:
            self.tokens[n] = [token for token in self.tokens[n] if token.position not in positions]


def as_stored(x: Tensor, stored: torch.dtype | None) -> Tensor:
    """What is read of numbers (.., D), each D of one token and head."""
    if stored == torch.bfloat16:
        return x.bfloat16().to(x.dtype)
    if stored is None:
        return x
    scale = x.abs().max(-1, keepdim=True).values / 127
    return torch.where(scale > 0, (x / scale).round() * scale, 0.0)
