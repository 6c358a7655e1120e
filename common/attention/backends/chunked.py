"""Exact attention out of batched dense products over the blocks that a mask lists (Beltagy et al. 2020, section 3.2).

Blocks of queries that look at equally many blocks of keys are stacked, their blocks of keys laid side by side, and the
whole is a batch of small dense attentions. As a block of queries meets all of its keys at once there is no running
softmax, and the backward pass needs nothing but the inputs: it computes the weights again. Time and memory are of the
order of the listed blocks and of the length: a piece of `chunked_pieces.AT_ONCE` scores is all that exists at a time, or
that of one block of queries with its keys.

Products are in the inputs' dtype, everything between them in fp32 (fp64). On a CPU fp16 is computed in fp32, as products
of fp16 are more than ten times slower there.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.attention import dropout
from common.attention.backends.chunked_bias import Bias, DenseBias, RelativeVector
from common.attention.backends.chunked_pieces import Piece, groups, pieces
from common.attention.backends.chunked_plan import Plan, plan
from common.attention.backends.visible import of_key_heads
from common.attention.blocks import lower
from common.attention.layouts import Blocks, Random
from common.attention.masks import And, Dilated, Mask, Window
from common.attention.positions import RelativeBias
from common.attention.request import Attended, Request

BLOCK, SMALLEST = 64, 16


def unsupported(r: Request) -> str | None:
    return "never holds the whole of the weights" if r.return_weights else None


def attend(r: Request) -> Attended:
    _, _, lq, lk = r.shape
    block = block_size(r.mask)
    lists = lower(r.mask, lq, lk, min(block, max(lq, 1)), min(block, max(lk, 1)))
    bias = r.bias.vector(lq, lk, r.q.device) if isinstance(r.bias, RelativeBias) else r.bias
    output, lse = _Chunked.apply(r.q, r.k, r.v, bias, _Job.of(r, plan(lists, r.q.device)))  # type: ignore[misc]
    return Attended(output, lse if r.return_lse else None)


def block_size(mask: Mask) -> int:
    """BLOCK, halved while the mask's narrowest window or its own block fits into half of it, down to SMALLEST.

    Smaller blocks cling closer to what is seen, larger ones make better products; between 32 and 128 this hardly
    matters unless a window is narrow.
    """
    size = BLOCK
    while size > SMALLEST and _finest(mask) <= size // 2:
        size //= 2
    return size


def _finest(mask: Mask) -> int:
    if isinstance(mask, And):  # and Or
        return min(_finest(mask.a), _finest(mask.b))
    if isinstance(mask, Dilated):
        return _finest(mask.reach)
    if isinstance(mask, Window) and mask.left is not None and mask.right is not None:
        return max(mask.left, mask.right)
    return mask.block if isinstance(mask, Blocks | Random) else BLOCK


@dataclass(frozen=True, eq=False)
class _Job:
    """One call, but for its tensors: the inputs as blocks, and the scores of a piece.

    key_heads and members: Hkv and H / Hkv. wide: fp32 (fp64); dtype: of the products.
    """

    plan: Plan
    key_heads: int
    members: int
    scale: float
    dropout_p: float
    seed: int
    relative: bool
    lse: bool
    dtype: torch.dtype
    wide: torch.dtype

    @classmethod
    def of(cls, r: Request, its_plan: Plan) -> Self:
        wide = torch.float64 if r.q.dtype == torch.float64 else torch.float32
        dtype = wide if r.q.dtype == torch.float16 and r.q.device.type == "cpu" else r.q.dtype
        relative = isinstance(r.bias, RelativeBias)
        return cls(its_plan, r.k.shape[1], r.group, r.scale, r.dropout_p, r.seed, relative, r.return_lse, dtype, wide)

    def queries(self, x: Tensor) -> Tensor:
        """(B, H, Lq, .) -> (B, Hkv, g, rows, block_q, .); zeros at queries that see no key, and beyond Lq."""
        block, x = self.plan.lists.block_q, x.to(self.dtype)
        if self.plan.live is not None:
            x = x.masked_fill(~self.plan.live[..., None], 0.0)
        x = pad(x, (0, 0, 0, -x.shape[2] % block)).contiguous()
        return x.view(x.shape[0], self.key_heads, self.members, x.shape[2] // block, block, x.shape[3])

    def keys(self, x: Tensor) -> Tensor:
        """(B, Hkv, Lk, .) -> (B, Hkv, columns, block_k, .); zeros at keys that no query sees, and beyond Lk."""
        block, x, seen = self.plan.lists.block_k, x.to(self.dtype), self.plan.seen
        if seen is not None:
            x = x.masked_fill(~of_key_heads(seen, x.shape[1])[..., None], 0.0)
        x = pad(x, (0, 0, 0, -x.shape[2] % block)).contiguous()
        return x.view(x.shape[0], x.shape[1], x.shape[2] // block, block, x.shape[3])

    def bias(self, given: Tensor | None) -> Bias | None:
        if given is None:
            return None
        if self.relative:
            return RelativeVector(given, self.plan.lists, self.wide)
        return DenseBias(given, self.key_heads * self.members, self.plan.lists, self.wide)

    def apart(self, piece: Piece, scores: Tensor) -> Tensor:
        """(x * n, g * block_q, m * block_k) -> (x, n, g, block_q, m * block_k), a view."""
        shape = (len(piece.bucket.rows), piece.heads.shape[1], self.plan.lists.block_q, scores.shape[2])
        return scores.view(-1, *shape)

    def weights(self, piece: Piece, scores: Tensor, bias: Bias | None) -> Tensor:
        """The softmax of q k^T, which is overwritten by what the softmax is taken of."""
        scores *= self.scale
        apart = self.apart(piece, scores)
        if bias is not None:
            apart += bias.tile(piece.heads, piece.bucket)
        if piece.cap is not None:
            first, last = (end * self.plan.lists.block_k for end in piece.bucket.partial)
            inside, cap = apart[..., first:last], piece.cap[:, None]
            if isinstance(bias, DenseBias):  # which may hold NaN where nothing is seen
                inside.masked_fill_(cap == -torch.inf, -torch.inf).masked_fill_(cap == 0.0, 0.0)
            else:
                torch.minimum(inside, cap, out=inside)
        weights = scores.softmax(-1)
        if bias is not None:  # which may be -inf in all of a row
            weights.masked_fill_(scores.amax(-1, keepdim=True) == -torch.inf, 0.0)
        return weights

    def kept(self, piece: Piece) -> Tensor:
        """What dropout multiplies the weights with."""
        lists, device = self.plan.lists, piece.heads.device
        i = piece.bucket.rows[:, None] * lists.block_q + torch.arange(lists.block_q, device=device)
        j = piece.bucket.columns[..., None] * lists.block_k + torch.arange(lists.block_k, device=device)
        p, heads = self.dropout_p, piece.heads[:, None, :, None, None]
        kept = dropout.keep(self.seed, p, heads, i[:, None, :, None], j.flatten(1)[:, None, None])
        return kept.flatten(2, 3).flatten(0, 1).to(self.wide) / (1 - p)


class _Chunked(torch.autograd.Function):
    """q, k, v, bias (a tensor, or the vector of one by distance) -> output, lse. No gradient through lse."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, job: _Job) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(q, k, v, bias)
        ctx.job, lq = job, q.shape[2]
        queries, keys, values, added = job.queries(q), job.keys(k), job.keys(v), job.bias(bias)
        output = q.new_zeros(*queries.shape[:-1], v.shape[3])
        lse = torch.full((*queries.shape[:-1], 1), -torch.inf, dtype=job.wide, device=q.device)
        for group, buckets in groups(job.plan, q.shape[0], job.key_heads, job.members):
            some = [group.queries(queries), group.keys(keys), group.keys(values)]
            for piece in pieces(job.plan, group, buckets, job.wide):
                of_q, of_k, of_v = piece.queries(some[0]), piece.keys(some[1]), piece.keys(some[2])
                scores = torch.bmm(of_q, of_k.transpose(1, 2)).to(job.wide)
                weights = job.weights(piece, scores, added)
                if job.lse:
                    piece.put(group.queries(lse), scores.logsumexp(-1, keepdim=True))
                if job.dropout_p:
                    weights *= job.kept(piece)
                piece.put(group.queries(output), torch.bmm(weights.to(job.dtype), of_v))
        output, lse = output.flatten(3, 4).flatten(1, 2)[:, :, :lq], lse.flatten(3).flatten(1, 2)[:, :, :lq]
        if job.plan.live is not None:
            output.masked_fill_(~job.plan.live[..., None], 0.0)
            lse.masked_fill_(~job.plan.live, -torch.inf)
        ctx.mark_non_differentiable(lse)
        return output, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        job = ctx.job
        with torch.autocast(q.device.type, enabled=False):
            added = job.bias(bias)
            whole_q, whole_k = [job.queries(q), job.queries(grads[0])], [job.keys(k), job.keys(v)]
            d_q, d_k, d_v = (torch.zeros(t.shape, dtype=job.wide, device=q.device) for t in (whole_q[0], *whole_k))
            for group, buckets in groups(job.plan, q.shape[0], job.key_heads, job.members):
                some_q, some_k = [group.queries(t) for t in whole_q], [group.keys(t) for t in whole_k]
                for piece in pieces(job.plan, group, buckets, job.wide):
                    (of_q, of_do), (of_k, of_v) = map(piece.queries, some_q), map(piece.keys, some_k)
                    dropped, d_scores = _scores_backward(job, piece, of_q, of_k, of_v, of_do, added)
                    if added is not None and ctx.needs_input_grad[3]:
                        m, block = piece.bucket.columns.shape[1], job.plan.lists.block_k
                        added.add(piece.heads, piece.bucket, job.apart(piece, d_scores).unflatten(-1, (m, block)))
                    d_scores = d_scores.to(job.dtype)
                    piece.put(group.queries(d_q), torch.bmm(d_scores, of_k))
                    piece.add(group.keys(d_k), torch.bmm(d_scores.transpose(1, 2), of_q))
                    piece.add(group.keys(d_v), torch.bmm(dropped.transpose(1, 2), of_do))
            d_q = d_q.mul_(job.scale).flatten(3, 4).flatten(1, 2)[:, :, : q.shape[2]].to(q.dtype)
            d_k = d_k.mul_(job.scale).flatten(2, 3)[:, :, : k.shape[2]].to(k.dtype)
            d_v = d_v.flatten(2, 3)[:, :, : v.shape[2]].to(v.dtype)
            d_bias = added.gradient().to(bias.dtype) if added is not None and ctx.needs_input_grad[3] else None
        return d_q, d_k, d_v, d_bias, None


def _scores_backward(
    job: _Job, piece: Piece, q: Tensor, k: Tensor, v: Tensor, d_output: Tensor, bias: Bias | None
) -> tuple[Tensor, Tensor]:
    """The weights after dropout, in the products' dtype, and the gradient of the scores: w * (dw - sum of w * dw)."""
    weights = job.weights(piece, torch.bmm(q, k.transpose(1, 2)).to(job.wide), bias)
    d_weights = torch.bmm(d_output, v.transpose(1, 2)).to(job.wide)
    dropped = weights
    if job.dropout_p:
        kept = job.kept(piece)
        dropped = weights * kept
        d_weights *= kept
    d_weights *= weights
    d_scores = d_weights.addcmul_(weights, d_weights.sum(-1, keepdim=True), value=-1)
    return dropped.to(job.dtype), d_scores
