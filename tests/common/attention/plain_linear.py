"""Linear attention written out for tests, with every score: exact in fp64, and as one would write it in a low precision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.attention.linear import linear_attention
from tests.common.attention.plain import relative_rms


@dataclass(frozen=True)
class Case:
    """features: dtype of q and k, and of v unless that has its own. padded: the first text has gaps, the second no key."""

    causal: bool
    log: bool
    features: torch.dtype = torch.float32
    values: torch.dtype | None = None
    lq: int = 40
    lk: int = 40
    m: int = 20
    dv: int = 20
    padded: bool = False
    layout: str = "amid NaN"

    def __str__(self) -> str:
        kind = ("causal " if self.causal else "") + ("logarithms" if self.log else "features")
        types = "-".join(str(t).removeprefix("torch.") for t in (self.features, self.values) if t)
        return f"{kind}-{types}-{self.lq}x{self.lk}-{self.m}x{self.dv}" + "-padded" * self.padded


def inputs(case: Case, batch: int = 2, heads: int = 2) -> dict[str, Tensor]:
    """q, k, v and do; real. Features are random exponentials, so that sums have something to add up."""
    draw = torch.Generator().manual_seed(case.lq + case.m)
    sizes = {"q": (case.lq, case.m), "k": (case.lk, case.m), "v": (case.lk, case.dv), "do": (case.lq, case.dv)}
    made = {n: torch.randn(batch, heads, *s, generator=draw, dtype=torch.float64) for n, s in sizes.items()}
    for name in "qk":
        made[name] = made[name] * 1.5 if case.log else made[name].exp()
    types = {"q": case.features, "k": case.features}
    real = torch.ones(batch, case.lk, dtype=torch.bool)
    if case.padded:
        real = torch.rand(batch, case.lk, generator=draw) < 0.7
        real[1:] = False
    return {n: t.to(types.get(n, case.values or case.features)) for n, t in made.items()} | {"real": real}


def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, log: bool) -> Tensor:
    """Products in the dtype of v, sums of scores in fp32 (fp64 in fp64). allowed: bool (.., Lq, Lk). A query without a key
    gives zeros. Of logarithms the exact scores in fp64; else features with the largest of a query and of all keys taken out.
    """
    wide = torch.float64 if v.dtype == torch.float64 else torch.float32
    if log and wide == torch.float64:
        scores = (q[..., :, None, :] + k[..., None, :, :]).logsumexp(-1).masked_fill(~allowed, -1e30)
        return scores.softmax(-1).masked_fill(~allowed, 0.0) @ v
    if log:
        q, k = q - q.detach().amax(-1, keepdim=True), k - k.detach().amax((2, 3), keepdim=True)
        q, k = q.to(wide).exp(), k.to(wide).exp()
    scores = (q.to(v.dtype) @ k.to(v.dtype).mT).to(wide).masked_fill(~allowed, 0.0)
    total = scores.sum(-1, keepdim=True)
    return (scores / total.masked_fill(total == 0, 1.0)).to(v.dtype) @ v


def allowed(case: Case, real: Tensor) -> Tensor:
    """bool (B, 1, Lq, Lk)."""
    seen = torch.ones(case.lq, case.lk, dtype=torch.bool, device=real.device)
    return (seen.tril() if case.causal else seen) & real[:, None, None, :]


def written_out(case: Case, given: dict[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """output, q, k and v: the gradients, all made in a dtype, or each tensor in its own."""
    q, k, v = (given[name].detach().to(dtype or given[name].dtype, copy=True).requires_grad_() for name in "qkv")
    out = plain(q, k, v, allowed(case, given["real"]), case.log)
    grads = torch.autograd.grad(out, (q, k, v), given["do"].to(out.dtype))
    return {"output": out.detach()} | dict(zip("qkv", grads, strict=True))


def kernels(case: Case, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same of the triton backend; padding holds NaN, and so does what lies around the tensors."""
    padding = ~given["real"][:, None, :, None]
    tensors = (given["q"], *(given[name].masked_fill(padding, torch.nan) for name in "kv"))
    q, k, v = (laid_out(tensor, case.layout).requires_grad_() for tensor in tensors)
    real = given["real"] if case.padded else None
    out = linear_attention(q, k, v, causal=case.causal, log=case.log, real=real, backend="triton").output
    grads = torch.autograd.grad(out, (q, k, v), laid_out(given["do"], case.layout))
    return {"output": out.detach()} | dict(zip("qkv", grads, strict=True))


def laid_out(x: Tensor, layout: str) -> Tensor:
    """A copy in memory of another order."""
    if layout == "amid NaN":
        room = x.new_full((*(n + 2 for n in x.shape[:-1]), x.shape[-1] + 7), torch.nan)
        return room[(*(slice(1, -1) for _ in x.shape[:-1]), slice(3, -4))].copy_(x)
    if layout == "time before heads":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    assert layout == "features first", layout
    return x.mT.contiguous().mT


def assert_within_gate(case: Case, given: dict[str, Tensor]) -> None:
    """Output and gradients: relative RMS against fp64 at most twice that of `plain` in the same precision, + 1e-5; and zeros
    for padding and for queries that see no key."""
    got, exact, ordinary = kernels(case, given), written_out(case, given, torch.float64), written_out(case, given)
    for name, tensor in got.items():
        error, most = relative_rms(tensor, exact[name]), 2 * relative_rms(ordinary[name], exact[name]) + 1e-5
        assert torch.isfinite(tensor).all(), name
        assert error <= most, f"{name}: relative error {error:.2e}, at most {most:.2e}"
    blind = ~allowed(case, given["real"]).any(-1)[..., None]
    padding = ~given["real"][:, None, :, None]
    for name, dead in {"output": blind, "q": blind, "k": padding, "v": padding}.items():
        assert not got[name].masked_select(dead).any(), f"{name} of what takes no part is not zero"
