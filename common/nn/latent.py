"""Multi-head latent attention, with the interface of the layers of long texts (`common.nn.sparse`): keys and values of all
heads are made of one short vector a token (DeepSeek-AI 2024, DeepSeek-V2, section 2.1)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common import attention as core
from common.attention.cache import CacheShape, Remembered
from common.nn.feedforward import projection
from common.nn.sparse.kept import Kept, extended
from common.nn.sparse.layer import SelfAttention, among, without_padding

EPSILON = 1e-6
"""Of the norms, that of the released models."""


@dataclass(frozen=True, kw_only=True)
class Latent(Kept):
    """Factory. latent: d_c, numbers that keys and values of a token are made of. rotary_dim: d_h^R, of each head's rotary
    queries and of the one rotary key that all heads share. query_latent: d_c', numbers that queries are made of; None: they
    are made of x, as in DeepSeek-V2-Lite. head_dim: d_h. The backend must take keys that are longer than values."""

    latent: int
    rotary_dim: int
    query_latent: int | None = None
    causal: bool = False
    linear_bias: bool = False

    extra_tokens = 0
    uses_global = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("latent", "query_latent"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name}: got {size}, expected 1 or more")
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise ValueError(f"rotary_dim: got {self.rotary_dim}, expected an even number, 2 or more")
        if self.linear_bias:
            raise ValueError("linear_bias: got True, expected False: what is absorbed are matrices alone")

    def __call__(self, d_model: int, heads: int, layer: int, layers: int) -> "LatentAttention":
        return LatentAttention(d_model, heads, self)


class LatentAttention(SelfAttention):
    """With h_t the row t of x, i a head, and numbers those of the paper's equations:

        c_t^KV = RMSNorm(W^DKV h_t)                                      (9)
        k_t,i^C = W_i^UK c_t^KV          v_t,i^C = W_i^UV c_t^KV         (10, 11)
        c_t^Q = RMSNorm(W^DQ h_t)        q_t,i^C = W_i^UQ c_t^Q          (12, 13)
        q_t,i^R = RoPE(W_i^QR c_t^Q)     k_t^R = RoPE(W^KR h_t)          (14, 15)
        q_t,i = [q_t,i^C; q_t,i^R]       k_t,i = [k_t,i^C; k_t^R]        (16, 17)
        o_t,i = sum_j softmax_j(q_t,i . k_j,i / sqrt(d_h + d_h^R)) v_j,i^C       u_t = W^O [o_t,1; ..; o_t,H]    (18, 19)

    The norms stand not in these but in section 3.1.2, "additional RMS Norm layers after the compressed latent vectors". The
    "scaling factors at the width bottlenecks" there have no value in the paper, and are left out.

    `forward` is this, through the attention core. `step` is the absorbed form (section 2.1.2): q^C . W^UK c = (W^UK^T q^C) . c
    and sum_j a_j W^UV c_j = W^UV sum_j a_j c_j, so that no key or value of a head is ever made again, and of a token only
    c^KV and k^R are kept. W^UK and W^UV are multiplied one after the other with what stands beside them, W^UQ and W^O: their
    products as one would be larger. Other tokens are chosen by none: is_global and stage change nothing.
    """

    counts_as_written_out = True
    """Its FLOPs are counted as those of the reference, whoever computes it."""

    def __init__(self, d_model: int, heads: int, of: Latent) -> None:
        super().__init__(d_model, heads, of)
        self.latent, self.rotary_dim, self.stored = of.latent, of.rotary_dim, of.stored
        self.scale = (self.head_dim + of.rotary_dim) ** -0.5
        self.mask: core.Mask = core.Causal() if of.causal else core.Full()
        self.w_dkv, self.kv_norm = projection(d_model, of.latent, bias=False), nn.RMSNorm(of.latent, eps=EPSILON)
        self.w_uk, self.w_uv = (projection(of.latent, heads * self.head_dim, bias=False) for _ in range(2))
        self.w_kr = projection(d_model, of.rotary_dim, bias=False)
        self.w_dq = self.q_norm = None
        if of.query_latent is not None:
            self.w_dq = projection(d_model, of.query_latent, bias=False)
            self.q_norm = nn.RMSNorm(of.query_latent, eps=EPSILON)
        of_queries = d_model if of.query_latent is None else of.query_latent
        self.w_uq = projection(of_queries, heads * self.head_dim, bias=False)
        self.w_qr = projection(of_queries, heads * of.rotary_dim, bias=False)
        self.w_o = projection(heads * self.head_dim, d_model, bias=False)

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, is_global: Tensor | None = None, stage: int = 0
    ) -> Tensor:
        x = without_padding(x, real)
        places = torch.arange(x.shape[1], device=x.device)
        (q_c, q_r), (c, k_r) = self.queries(x, places), self.compressed(x, places)
        k_c, v = self.split(self.w_uk(c)), self.split(self.w_uv(c))
        q, k = torch.cat((q_c, q_r), -1), torch.cat((k_c, k_r[:, None].expand(-1, self.heads, -1, -1)), -1)
        return self.merge(self.attend(q, k, v, among(self.mask, real)))

    def step(self, x: Tensor, memory: Remembered | None) -> tuple[Tensor, Remembered]:
        """A few plain operations, whatever the backend, and without dropout. What is kept passes no gradient on: this is for
        decoding."""
        if not isinstance(self.mask, core.Causal):
            return super().step(x, memory)
        place = torch.tensor([0 if memory is None else memory.seen], device=x.device)
        (q_c, q_r), (c, k_r) = self.queries(x, place), self.compressed(x, place)
        after = extended(memory, self.cache_shape(c.dtype), k_r[:, None], c[:, None])
        w_uk, w_uv = (
            w.weight.unflatten(0, (self.heads, self.head_dim)) for w in (self.w_uk, self.w_uv)
        )  # (H, d_h, d_c)
        absorbed = torch.einsum("bhtd,hdc->bthc", q_c, w_uk)
        scores = (absorbed @ after.values.mT + q_r.transpose(1, 2) @ after.keys.mT) * self.scale  # (B, 1, H, T)
        wide = torch.promote_types(scores.dtype, torch.float32)
        seen = scores.softmax(-1, dtype=wide).to(after.values.dtype) @ after.values  # (B, 1, H, d_c)
        return self.merge(torch.einsum("bthc,hdc->bhtd", seen, w_uv)), after

    def queries(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q^C (B, H, T, d_h) and q^R (B, H, T, d_h^R)."""
        c = x if self.w_dq is None or self.q_norm is None else _normed(self.w_dq(x), self.q_norm)
        q_r = self.w_qr(c).unflatten(-1, (self.heads, self.rotary_dim)).transpose(1, 2)
        return self.split(self.w_uq(c)), core.rotary(q_r, positions)

    def compressed(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """c^KV (B, T, d_c) and k^R (B, T, d_h^R): what `step` keeps."""
        k_r = core.rotary(self.w_kr(x), positions)
        return _normed(self.w_dkv(x), self.kv_norm), k_r

    def cache_shape(self, dtype: torch.dtype) -> CacheShape:
        """What `step` keeps of a token, computed in `dtype`: d_c + d_h^R numbers (Table 1), the rotary key as one head's
        key and the latent as its value."""
        return CacheShape(kv_heads=1, key_dim=self.rotary_dim, value_dim=self.latent, dtype=dtype, stored=self.stored)


def _normed(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """In x's dtype. Under autocast x has fewer bits than the norm's weights: it is normed in theirs."""
    return norm(x.to(norm.weight.dtype)).to(x.dtype)
