"""Biases as `chunked` reads them, a block of queries and a block of keys at a time, and their gradients."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from common.attention.backends.chunked_plan import Bucket
from common.attention.blocks import BlockLists


class Bias(ABC):
    """`tile` and `add` are of the heads (x, g) (batch * H + head) and of the blocks of a bucket (n rows, m columns)."""

    @abstractmethod
    def tile(self, heads: Tensor, bucket: Bucket) -> Tensor:
        """Broadcastable to (x, n, g, block_q, m * block_k)."""

    @abstractmethod
    def add(self, heads: Tensor, bucket: Bucket, grad: Tensor) -> None:
        """Take in the gradient of the scores, (x, n, g, block_q, m, block_k)."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """Of what the bias was made of, in fp32 (fp64)."""


class DenseBias(Bias):
    """A tensor broadcastable to (B, H, Lq, Lk); its gradient is as large as itself."""

    def __init__(self, bias: Tensor, heads: int, lists: BlockLists, dtype: torch.dtype) -> None:
        self.heads, self.shape, self.dtype, self.device = heads, bias.shape, dtype, bias.device
        pad_q, pad_k = (
            -size % block if size > 1 else 0
            for size, block in zip(bias.shape[2:], (lists.block_q, lists.block_k), strict=True)
        )
        self.padded = torch.nn.functional.pad(bias, (0, pad_k, 0, pad_q))
        self.block = tuple(
            block if size > 1 else 1 for size, block in zip(bias.shape[2:], (lists.block_q, lists.block_k), strict=True)
        )
        self.sum: Tensor | None = None

    def _blocks(self, whole: Tensor) -> Tensor:
        """(B or 1, H or 1, rows or 1, columns or 1, block_q or 1, block_k or 1)."""
        return whole.unflatten(3, (-1, self.block[1])).unflatten(2, (-1, self.block[0])).transpose(3, 4)

    def _place(self, heads: Tensor, bucket: Bucket) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, head, rows, columns = (size > 1 for size in self.shape)
        heads = (heads if batch or head else heads[:1, :1])[..., None, None]
        row, column = bucket.rows[:, None], bucket.columns if columns else bucket.columns[:, :1]
        return (
            torch.div(heads, self.heads, rounding_mode="floor") * batch,
            heads % self.heads * head,
            row * rows,
            column * columns,
        )

    def tile(self, heads: Tensor, bucket: Bucket) -> Tensor:
        found = self._blocks(self.padded)[self._place(heads, bucket)]  # (x, g, n, m, block_q, block_k)
        return found.permute(0, 2, 1, 4, 3, 5).flatten(4).to(self.dtype)

    def add(self, heads: Tensor, bucket: Bucket, grad: Tensor) -> None:
        if self.sum is None:
            self.sum = torch.zeros(self.padded.shape, dtype=self.dtype, device=self.device)
        batch, head, rows, columns = (size > 1 for size in self.shape)
        over = [
            d
            for d, whole in ((0, batch or head), (2, batch or head), (3, rows), (4, columns), (5, columns))
            if not whole
        ]
        grad = (grad.sum(over, keepdim=True) if over else grad).permute(0, 2, 1, 4, 3, 5)
        self._blocks(self.sum).index_put_(self._place(heads, bucket), grad, accumulate=True)

    def gradient(self) -> Tensor:
        whole = torch.zeros(self.padded.shape, dtype=self.dtype, device=self.device) if self.sum is None else self.sum
        return whole[:, :, : self.shape[2], : self.shape[3]]


class RelativeVector(Bias):
    """(H, Lq + Lk - 1): entry j - i + Lq - 1 is the bias of query i and key j. A tile is a Toeplitz matrix of a segment."""

    def __init__(self, vector: Tensor, lists: BlockLists, dtype: torch.dtype) -> None:
        self.lq, self.bq, self.bk = lists.lq, lists.block_q, lists.block_k
        before, after = -lists.lq % self.bq, -lists.lk % self.bk  # queries and keys beyond the lengths
        self.rows, self.inside = -(-lists.lq // self.bq), (before, before + vector.shape[1])
        self.padded = torch.nn.functional.pad(vector.to(dtype), (before, after))
        self.sum = torch.zeros_like(self.padded)

    def _segments(self, bucket: Bucket) -> Tensor:
        """Where the segment of each block begins, (n, m), or (1, m) where all rows stand at the same distances."""
        rows, columns = bucket.rows[:, None], bucket.columns
        if bucket.corner and self.bq == self.bk:
            rows, columns = rows[:1], columns[:1]
        return columns * self.bk + (self.rows - 1 - rows) * self.bq

    def tile(self, heads: Tensor, bucket: Bucket) -> Tensor:
        segments = self.padded.unfold(1, self.bq + self.bk - 1, 1)
        found = segments[heads[..., None, None] % len(self.padded), self._segments(bucket)]
        # query a of a block reads its segment from block_q - 1 - a on
        return found.unfold(-1, self.bk, 1).flip(-2).permute(0, 2, 1, 4, 3, 5).flatten(4)

    def add(self, heads: Tensor, bucket: Bucket, grad: Tensor) -> None:
        start = self._segments(bucket)
        if len(start) < grad.shape[1]:
            grad = grad.sum(1, keepdim=True)
        turned = torch.nn.functional.pad(grad.permute(0, 2, 1, 4, 3, 5).flip(-2), (0, self.bq)).flatten(-2)
        # rows one shorter than they were written: each slips one further to the right, equal distances fall together
        length = self.bq + self.bk - 1
        sums = turned[..., : self.bq * length].unflatten(-1, (self.bq, length)).sum(-2)
        place = start[..., None] + torch.arange(length, device=start.device)
        self.sum.index_put_((heads[..., None, None, None] % len(self.sum), place), sums, accumulate=True)

    def gradient(self) -> Tensor:
        return self.sum[:, self.inside[0] : self.inside[1]]
