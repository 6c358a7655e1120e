"""`attention` with the arguments of flash-attn's and xformers' functions, whose tensors are (batch, length, heads, head_dim).

flash_attn_func = partial(common.adapters.layouts.flash_attn_func, backend="chunked")
"""

from typing import Any

from torch import Tensor

from common.adapters.top_left import causal_top_left
from common.attention import Causal, Full, Mask, Window, attention

FLASH_ATTN_DEFAULTS = {"softcap": 0.0, "alibi_slopes": None, "deterministic": False, "return_attn_probs": False}
XFORMERS_DEFAULTS = {"op": None, "output_dtype": None}
"""Arguments that are theirs alone: only these values are taken."""


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    *,
    backend: str,
    **theirs: Any,
) -> Tensor:
    """flash-attn's function of that name (Dao 2023).

    Args:
        q: (B, Lq, H, D). k: (B, Lk, Hkv, D) and v: (B, Lk, Hkv, Dv), with Hkv a divisor of H: query head h reads head
            h // (H / Hkv).
        dropout_p: of the weights, in this call, whatever is training.
        softmax_scale: D^(-1/2) unless given.
        causal: aligned bottom-right where lengths differ, as theirs is; queries before the first key get zeros.
        window_size: (left, right) keys beside the query's own, which stands at i + Lk - Lq; -1: no limit. causal: right
            is 0.
        backend: as `attention` has it.

    Returns (B, Lq, H, Dv). Raises ValueError for other shapes, for softcap, alibi_slopes, deterministic and
    return_attn_probs unless they are as they are by default, and for what the backend can't do.
    """
    _refuse("flash_attn_func", theirs, FLASH_ATTN_DEFAULTS)
    left, right = (None if size == -1 else size for size in window_size)
    right = 0 if causal else right
    mask: Mask = Window(left, right)
    if left is None and right in (None, 0):
        mask = Full() if right is None else Causal()  # which backends know
    return _attention(q, k, v, mask, None, softmax_scale, dropout_p, backend)


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    backend: str,
    **theirs: Any,
) -> Tensor:
    """xformers' function of that name (Rabe and Staats 2021).

    Args:
        query: (B, Lq, H, D). key: (B, Lk, H, D) and value: (B, Lk, H, Dv).
        attn_bias: added to the scaled scores: a tensor (B, H, Lq, Lk) with any size 1 in its place; or xformers'
            LowerTriangularMask, which is aligned top-left where lengths differ, or LowerTriangularFromBottomRightMask.
            They are known by their names, so that xformers need not be there.
        p: dropout of the weights, in this call, whatever is training.
        scale: D^(-1/2) unless given.
        backend: as `attention` has it.

    Returns (B, Lq, H, Dv). Raises ValueError for other shapes (theirs with 3 or 5 dimensions too), for other kinds of
    attn_bias, for op and output_dtype unless they are None, and for what the backend can't do.
    """
    _refuse("memory_efficient_attention", theirs, XFORMERS_DEFAULTS)
    if not query.shape[-2] == key.shape[-2] == value.shape[-2]:
        raise ValueError(
            f"heads: got {query.shape[-2]}, {key.shape[-2]} and {value.shape[-2]} of query, key and value, expected the "
            "same; flash_attn_func takes fewer of key and value"
        )
    mask, bias, kind = Full(), None, type(attn_bias).__name__  # of no subclass: those of xformers mean something else
    if isinstance(attn_bias, Tensor):
        bias = attn_bias
    elif kind == "LowerTriangularMask":
        mask = causal_top_left(query.shape[1], key.shape[1])
    elif kind == "LowerTriangularFromBottomRightMask":
        mask = Causal()
    elif attn_bias is not None:
        raise ValueError(
            f"attn_bias: got {kind}, expected None, a tensor, LowerTriangularMask or LowerTriangularFromBottomRightMask"
        )
    return _attention(query, key, value, mask, bias, scale, p, backend)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    bias: Tensor | None,
    scale: float | None,
    dropout_p: float,
    backend: str,
) -> Tensor:
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        if tensor.ndim != 4:
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected (batch, length, heads, head_dim)")
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    output = attention(q, k, v, mask=mask, bias=bias, scale=scale, dropout_p=dropout_p, backend=backend)
    return output.transpose(1, 2)


def _refuse(function: str, given: dict[str, Any], defaults: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in defaults:
            raise ValueError(f"{function}: got {name}, which neither theirs nor ours takes")
        if value is not defaults[name] and value != defaults[name]:
            raise ValueError(f"{function}: got {name}={value!r}, expected {defaults[name]!r}: ours has nothing else")
