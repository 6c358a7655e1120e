"""The causal mask that counts from the first query and the first key, as some libraries do where lengths differ."""

from dataclasses import dataclass

from torch import Tensor

from common.attention import Causal, Mask
from common.attention.masks import status_of


@dataclass(frozen=True)
class TopLeft(Mask):
    """Query i sees keys 0 to i. `Causal` is aligned bottom-right instead: query i stands at key i + Lk - Lq."""

    def allowed(self, i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        return j <= i

    def status(self, i0: Tensor, i1: Tensor, j0: Tensor, j1: Tensor, lq: int, lk: int) -> Tensor:
        return status_of(j1 <= i0, j0 > i1)


def causal_top_left(lq: int, lk: int) -> Mask:
    """`TopLeft` of lq queries and lk keys; `Causal` where both are the same, which backends know to be causal."""
    return Causal() if lq == lk else TopLeft()
