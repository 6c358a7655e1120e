"""Full attention with the interface of the sparse ones: what they are measured against."""

from dataclasses import dataclass

import torch
from torch import Tensor

from common import attention as core
from common.nn.sparse.layer import Layer, Relative, among, without_padding


@dataclass(frozen=True, kw_only=True)
class Full(Relative):
    """Factory."""

    causal: bool = False

    extra_tokens = 0
    uses_global = False

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "FullAttention":
        return FullAttention(d_model, heads, self)


class FullAttention(Layer):
    """Every token sees every real one, or those up to its own. is_global and stage change nothing: all is seen already."""

    counts_as_written_out = True
    """Its FLOPs are counted as those of the reference, whoever computes it."""

    def __init__(self, d_model: int, heads: int, of: Full) -> None:
        super().__init__(d_model, heads, of)
        self.mask: core.Mask = core.Causal() if of.causal else core.Full()

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        q, k, v = self.project(x)
        mask = among(self.mask, real)
        return self.merge(self.attend(q, k, v, mask))

    def step(self, x: Tensor, memory: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """memory: keys and values, (B, H, T, .) each."""
        if not isinstance(self.mask, core.Causal):
            return super().step(x, memory)
        place = torch.tensor([0 if memory is None else memory[0].shape[2]], device=x.device)
        q, k, v = self.query(x, self.w_q, place), self.key(x, self.w_k, place), self.split(self.w_v(x))
        if memory is not None:
            k, v = torch.cat((memory[0], k), 2), torch.cat((memory[1], v), 2)
        return self.merge(self.attend(q, k, v, core.Full())), (k, v)
