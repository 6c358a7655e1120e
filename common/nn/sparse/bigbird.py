"""BigBird: blocks that are global, near or drawn at random (Zaheer et al. 2020, section 2 and appendix D)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.attention import Mask
from common.attention.by_content import block_table, real_keys
from common.nn.sparse.layer import Layer, Settings, refuse_global, without_padding


@dataclass(frozen=True, kw_only=True)
class BigBird(Settings):
    """Factory.

    block: tokens in a block; everything is in units of it. global_blocks: ITC, the first blocks of the sequence are global.
    global_tokens: ETC, so many learned tokens in front are global, which no block counts. They are the model's (it puts them
    in front of the first layer's input and takes them off after the last): a layer takes the first positions of x for them.
    window_blocks: an odd number, a block and its neighbours. random_blocks: of each block of queries, drawn without
    replacement over the whole sequence from what is neither global nor in its window. max_length: the longest sequence that
    a draw is made for. seed: of the draws, which differ from layer to layer.
    """

    block: int
    global_blocks: int = 0
    global_tokens: int = 0
    window_blocks: int = 3
    random_blocks: int = 0
    max_length: int | None = None
    seed: int = 0

    causal = False
    uses_global = False

    def __post_init__(self) -> None:
        if self.block < 1 or min(self.global_blocks, self.global_tokens, self.random_blocks) < 0:
            raise ValueError(f"{self}: expected a block of 1 or more, and counts of 0 or more")
        if self.window_blocks < 1 or self.window_blocks % 2 == 0:
            raise ValueError(f"window_blocks: got {self.window_blocks}, expected an odd number, as many on each side")
        if self.global_blocks and self.global_tokens:
            raise ValueError("global_blocks (ITC) and global_tokens (ETC): got both, expected one of them")
        if self.random_blocks and not self.max_length:
            raise ValueError(
                f"max_length: got {self.max_length}, expected the longest length, as random blocks are drawn"
            )

    @property
    def extra_tokens(self) -> int:
        return self.global_tokens

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "BigBirdAttention":
        return BigBirdAttention(d_model, heads, self, layer)


class BigBirdAttention(Layer):
    """One layer. Padding stands on the right, as blocks count from the first token. Stages change nothing.

    What is drawn is a fixed order of all blocks for each block of queries, in the state dict; a call takes the first that
    its sequence has and that nothing covers. So every call sees the same, in training or not, and a sample the same with
    any padding. Where fewer are left than are to be drawn, they are all seen.
    """

    order: Tensor | None

    def __init__(self, d_model: int, heads: int, of: BigBird, layer: int) -> None:
        super().__init__(d_model, heads, of)
        self.block, self.near = of.block, of.window_blocks // 2
        self.global_blocks, self.extra, self.random = of.global_blocks, of.global_tokens, of.random_blocks
        order = None
        if of.random_blocks:
            assert of.max_length
            blocks = -(-of.max_length // of.block)
            generator = torch.Generator().manual_seed((of.seed << 16) + layer)
            order = torch.rand(blocks, blocks, generator=generator).argsort(1).to(torch.int32)
        self.register_buffer("order", order)

    def table(self, real: Tensor) -> Tensor:
        """Which blocks see which, bool (B, n, n). real: bool (B, n), whether there is anything but padding in a block."""
        n = real.shape[1]
        place = torch.arange(n, device=real.device)
        covered = (place[:, None] - place).abs() <= self.near
        covered[:, : self.global_blocks] = True
        covered[: self.global_blocks] = True
        table = covered.expand(len(real), n, n)
        if self.order is None:
            return table
        if n > len(self.order):
            raise ValueError(
                f"tokens: got {n} blocks of {self.block}, expected at most {len(self.order)}, those of max_length"
            )
        beyond = len(self.order)  # later than all others
        order = self.order[:n, :n].to(real.device).masked_fill(covered, beyond).masked_fill(~real[:, None], beyond)
        soonest, drawn = order.topk(min(self.random, n), largest=False)
        return table.scatter(2, drawn, table.gather(2, drawn) | (soonest < beyond))

    def mask(self, time: int, real: Tensor | None = None) -> Mask:
        """Of `time` tokens behind the extra ones; with extra ones, these are in whole blocks, filled up in front."""
        n, front = -(-time // self.block), -(-self.extra // self.block)
        everywhere = torch.ones(1, time, dtype=torch.bool) if real is None else real
        blocks = pad(everywhere, (0, n * self.block - time)).unflatten(1, (n, self.block)).any(2)
        table = pad(self.table(blocks), (front, 0, front, 0), value=True)
        mask = block_table(table[0] if len(table) == 1 else table[:, None], self.block)
        if real is None and front * self.block == self.extra:
            return mask
        fill = front * self.block - self.extra
        return mask & real_keys(pad(pad(everywhere, (self.extra, 0), value=True), (fill, 0), value=False))

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        refuse_global(is_global, "BigBird, whose global blocks or tokens are the first ones,")
        if x.shape[1] <= self.extra:
            raise ValueError(
                f"x: got {x.shape[1]} positions, expected {self.extra} extra tokens and one or more behind"
            )
        x = without_padding(x, real)
        mask = self.mask(x.shape[1] - self.extra, None if real is None else real[:, self.extra :])
        fill = -self.extra % self.block
        q, k, v = (pad(t, (0, 0, fill, 0)) for t in self.project(x))
        return self.merge(self.attend(q, k, v, mask)[:, :, fill:])
