"""Relative positions of Transformer-XL as more dimensions of queries and keys (Dai et al. 2019, section 3.3)."""

import torch
from torch import Tensor, nn

from common.attention.positions import rotary_turns
from common.nn.feedforward import projection


class RelativePositions(nn.Module):
    """Scores (W_q x_i + u)^T W_k x_j + (W_q x_i + v)^T W_r R_{i-j}, all else of attention as it is.

    R_{i-j} holds the sines and cosines of w_m (i - j), w_m = 10000^(-2m / size). By the addition theorems

        sin w(i-j) = sin wi cos wj - cos wi sin wj        cos w(i-j) = cos wi cos wj + sin wi sin wj

    so with a = W_r^T (W_q x_i + v), split into the factors a_s of the sines and a_c of the cosines, the second term is
    [a_c sin wi - a_s cos wi, a_s sin wi + a_c cos wi] . [sin wj, cos wj]: a dot product of `size` dimensions, which goes
    beside that of the first. Exact, and only q and k know of it, so any backend and any mask will do; where positions are
    counted from makes no difference.

    Angles are taken in fp64 and the turning is done in fp32; what comes out is in the inputs' dtype. In 16 bits the scores'
    error is 1.4 to 1.7 times that of W_r R rounded to 16 bits, wherever positions are counted from. Parameters: W_r (size to
    heads * head_dim, without bias), u and v (heads, head_dim).
    """

    def __init__(self, d_model: int, heads: int, head_dim: int, *, size: int | None = None) -> None:
        """size: dimensions of R, d_model unless given. Raises ValueError for an odd one."""
        super().__init__()
        self.size = d_model if size is None else size
        if self.size % 2 or self.size < 2:
            raise ValueError(
                f"relative positions: got {self.size} dimensions, expected an even number, a sine to a cosine"
            )
        self.heads, self.head_dim = heads, head_dim
        self.w_r = projection(self.size, heads * head_dim, bias=False)
        self.u, self.v = (nn.Parameter(nn.init.normal_(torch.empty(heads, head_dim), std=0.02)) for _ in range(2))

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        """(B, H, T, head_dim) -> (B, H, T, head_dim + size). positions: int64 (T,) or (B, T)."""
        factors = (q + self.v[:, None]) @ self.w_r.weight.unflatten(0, (self.heads, self.head_dim))
        sin, cos = self._turns(positions, q.dtype)
        of_sin, of_cos = factors.to(sin.dtype).chunk(2, -1)
        turned = torch.cat((of_cos * sin - of_sin * cos, of_sin * sin + of_cos * cos), -1)
        return torch.cat((q + self.u[:, None], turned.to(q.dtype)), -1)

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        """(B, H, T, head_dim) -> (B, H, T, head_dim + size). positions: as for the queries, counted from the same place."""
        turns = torch.cat(self._turns(positions, k.dtype), -1).to(k.dtype)
        return torch.cat((k, turns.expand(*k.shape[:-1], self.size)), -1)

    def _turns(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Sines and cosines, (1 or B, 1, T, size / 2), in fp32 (fp64)."""
        cos, sin = rotary_turns(positions, self.size)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        sin, cos = (t.to(wide).view(-1, 1, *t.shape[-2:]) for t in (sin, cos))
        return sin, cos
