"""Who is timed: our backends, attention as one writes it out, and others' kernels, each for what it can do."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention

from common.attention import BACKENDS, Causal, Full, Mask, Window, attention, unsupported
from common.attention.request import Request
from common.bench.workload import Inputs

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
TORCH = {
    "torch:flash": SDPBackend.FLASH_ATTENTION,
    "torch:cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch:math": SDPBackend.MATH,
}
PEER = "flash_attn"  # a package that need not be there
CONTESTANTS = (*BACKENDS, "plain", *TORCH, PEER)


def prepare(name: str, inputs: Inputs, mask: Mask, dropout_p: float, seed: int) -> Attend | str:
    """A function of q, k and v, or why there is none for inputs like these (a phrase that follows the name)."""
    if name in BACKENDS:
        return _backend(name, inputs, mask, dropout_p, seed)
    if name == "plain":
        return Plain(mask, dropout_p)
    return Pinned(TORCH[name], mask, dropout_p) if name in TORCH else _flash_attn(inputs, mask, dropout_p)


def _backend(name: str, inputs: Inputs, mask: Mask, dropout_p: float, seed: int) -> Attend | str:
    q, k, v, _ = inputs
    if name == "triton" and q.device.type == "cpu":
        return "is only interpreted on a CPU, which says nothing of its speed"
    request = Request(q, k, v, mask, None, q.shape[-1] ** -0.5, dropout_p, seed, False, False)
    if reason := unsupported(request, name):
        return reason
    return partial(attention, mask=mask, backend=name, dropout_p=dropout_p, dropout_seed=seed)


class Dense:
    """A mask as one tensor, True = may attend, made when it is first used and kept; `of` gives all who use a mask the
    same one, for as long as any does."""

    shared: ClassVar[WeakValueDictionary[Mask, "Dense"]] = WeakValueDictionary()

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.made: Tensor | None = None

    @classmethod
    def of(cls, mask: Mask) -> "Dense":
        return cls.shared.setdefault(mask, cls(mask))

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        if self.made is None or self.made.shape[-2:] != (q.shape[2], k.shape[2]) or self.made.device != q.device:
            self.made = self.mask.dense(q.shape[2], k.shape[2], q.device)
        return self.made


class Plain:
    """softmax(Q K^T / sqrt(D)) V with every matrix stored, in the inputs' dtype."""

    def __init__(self, mask: Mask, dropout_p: float) -> None:
        self.seen = None if isinstance(mask, Full) else Dense.of(mask)
        self.dropout_p = dropout_p

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) if t.shape[1] < q.shape[1] else t for t in (k, v))
        x = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)  # one name, so that each matrix goes when the next is there
        if self.seen is not None:
            x = torch.where(self.seen(q, k), x, -torch.inf)
        x = x.softmax(-1)
        return (dropout(x, self.dropout_p) if self.dropout_p else x) @ v


class Pinned:
    """One kernel of torch's, which raises where it can't; masks other than the causal one go in as a whole tensor."""

    def __init__(self, kernel: SDPBackend, mask: Mask, dropout_p: float) -> None:
        self.kernel, self.causal, self.dropout_p = kernel, isinstance(mask, Causal), dropout_p
        self.seen = None if isinstance(mask, Full | Causal) else Dense.of(mask)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen, grouped = self.seen and self.seen(q, k), k.shape[1] < q.shape[1]
        with sdpa_kernel([self.kernel]):
            return scaled_dot_product_attention(q, k, v, seen, self.dropout_p, self.causal, enable_gqa=grouped)


def _flash_attn(inputs: Inputs, mask: Mask, dropout_p: float) -> Attend | str:
    """Dao's package: (batch, time, heads, head_dim), windows as ours, -1 for no limit."""
    if find_spec(PEER) is None:
        return "is not installed"
    if not isinstance(mask, Full | Window):
        return "takes no such mask"
    if inputs.q.device.type != "cuda" or inputs.q.dtype not in (torch.float16, torch.bfloat16):
        return "takes fp16 and bf16 on a GPU"
    call: Any = import_module(PEER).flash_attn_func
    sides = (mask.left, mask.right) if isinstance(mask, Window) else (None, None)
    window = tuple(-1 if side is None else side for side in sides)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return call(q, k, v, dropout_p, causal=isinstance(mask, Causal), window_size=window).transpose(1, 2)

    return attend
