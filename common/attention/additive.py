"""Additive attention over a whole sentence: Bahdanau et al. 2014, section 3.1, where all queries are known at once.

from common.attention import additive_attention
context = additive_attention(states @ w_a, annotations @ u_a, annotations, v_a, mask=real, backend="triton")
"""

from importlib.util import find_spec

import torch
from torch import Tensor

from common.attention.request import DTYPES
from common.attention.scores import additive_score, masked_softmax

BACKENDS = ("reference", "triton")


def additive_attention(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, *, mask: Tensor, backend: str) -> Tensor:
    """softmax over j of v^T tanh(q_i + k_j), times the values (Bahdanau et al. 2014, equations 5 and 6, appendix A.1.2).

    Args:
        query: (B, T, A), the projected states ``W_a s``; keys: (B, S, A), the projected annotations ``U_a h``; values:
            (B, S, D), what is mixed; v: (A,), ``v_a``. Any strides. One dtype of fp16, bf16, fp32, fp64; under autocast
            they are cast to its dtype.
        mask: (B, S) bool, True = a real word. In a sentence without one the context is zeros and no gradient passes.
        backend: "reference" keeps a few (B, T, S, A) tensors; "triton" none of that size, and for the gradients two of
            (B, T, S). Nothing is put in place of what was asked for.

    Returns:
        (B, T, D), the contexts. What masked keys and values hold takes no part in it, NaN or not.

    Raises:
        ValueError: for shapes and dtypes that do not fit, and where the backend can't run, with its reason.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, keys, values, v = (t.to(dtype) if t.is_floating_point() else t for t in (query, keys, values, v))
    _check(query, keys, values, v, mask)
    if backend == "triton":
        if reason := _unsupported(query):
            raise ValueError(f"backend 'triton' {reason}; these can: reference")
        from common.attention.kernels import additive

        return additive.additive(query, keys, values, v, mask)
    with torch.autocast(query.device.type, enabled=False):  # it computes in fp32
        return _reference(query, keys, values, v, mask)


def _reference(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The specification, computed in fp32 (fp64 inputs in fp64)."""
    wide = torch.promote_types(query.dtype, torch.float32)
    k, x = (t.to(wide).masked_fill(~mask[..., None], 0.0) for t in (keys, values))
    q = query.to(wide).masked_fill(~mask.any(1)[:, None, None], 0.0)
    weights = masked_softmax(additive_score(q, k.unsqueeze(1), v.to(wide)), mask.unsqueeze(1))
    return (weights @ x).to(query.dtype)


def _unsupported(query: Tensor) -> str | None:
    """Why the kernels can't run on it, to follow "backend 'triton' "."""
    if find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    from common.attention import kernels

    if kernels.INTERPRETED:
        return None
    if not query.is_cuda:
        return f"runs on a GPU, not on {query.device.type} (a CPU will do with TRITON_INTERPRET=1, which is slow)"
    return "computes fp64 on a CPU alone, with TRITON_INTERPRET=1" if query.dtype == torch.float64 else None


def _check(query: Tensor, keys: Tensor, values: Tensor, v: Tensor, mask: Tensor) -> None:
    """Raises ValueError, naming what was got and expected."""
    shapes = (("query", query, "(batch, steps, A)"), ("keys", keys, "(batch, source, A)"))
    shapes += (("values", values, "(batch, source, D)"), ("v", v, "(A,)"))
    for name, tensor, shape in shapes:
        if tensor.ndim != len(shape.split(", ")):
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {shape}")
        if tensor.dtype not in DTYPES or tensor.dtype != query.dtype:
            raise ValueError(
                f"{name}: got {tensor.dtype} (query: {query.dtype}), expected one dtype of fp16, bf16, fp32, fp64"
            )
    (batch, _, size), source = query.shape, keys.shape[1]
    wanted = (("keys", keys, (batch, source, size)), ("values", values, (batch, source, values.shape[2])))
    for name, tensor, shape in (*wanted, ("v", v, (size,)), ("mask", mask, (batch, source))):
        if tensor.shape != shape:
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}, expected {shape} to go with a query of {tuple(query.shape)} and "
                f"keys of {tuple(keys.shape)}"
            )
        if tensor.device != query.device:
            raise ValueError(f"{name}: got {tensor.device}, expected {query.device} as query")
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: got {mask.dtype}, expected torch.bool, True = may attend")
    if not size:
        raise ValueError("query: got a last axis of 0, expected 1 or more")
