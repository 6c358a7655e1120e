"""flash-attn's and xformers' functions against their formulas, written out head by head with einsum."""

from typing import Any

import pytest
import torch
from torch import Tensor

from common.adapters.layouts import flash_attn_func, memory_efficient_attention

BACKENDS = ("reference", "sdpa", "chunked")


class LowerTriangularMask:
    """Stands for xformers' class of the same name, as do the next two."""


class LowerTriangularFromBottomRightMask:
    pass


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    pass


def inputs(lq: int, lk: int, heads: int = 4, kv_heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, lq, heads, 8), torch.randn(2, lk, kv_heads, 8), torch.randn(2, lk, kv_heads, 8)
    return q.double(), k.double(), v.double()


def oracle(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, scale: float, bias: Tensor | float = 0.0) -> Tensor:
    """keep: bool (Lq, Lk). Zeros for a query that sees nothing."""
    heads = []
    for h in range(q.shape[2]):
        g = h // (q.shape[2] // k.shape[2])
        own = bias[:, h] if isinstance(bias, Tensor) else bias
        scores = torch.einsum("bid,bjd->bij", q[:, :, h], k[:, :, g]) * scale + own
        exp = torch.where(keep, (scores - scores.max()).exp(), 0.0)
        total = exp.sum(-1, keepdim=True)
        heads.append(torch.einsum("bij,bjd->bid", exp / torch.where(total > 0, total, 1.0), v[:, :, g]))
    return torch.stack(heads, 2)


FLASH_CAUSAL = {
    (2, 5): [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    (5, 2): [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]],
}
"""As flash-attn's documentation prints them."""


@pytest.mark.parametrize("lengths", FLASH_CAUSAL)
@pytest.mark.parametrize("backend", BACKENDS)
def test_flash_causal_is_aligned_bottom_right(backend: str, lengths: tuple[int, int]) -> None:
    q, k, v = inputs(*lengths)
    want = oracle(q, k, v, torch.tensor(FLASH_CAUSAL[lengths]).bool(), 8**-0.5)
    got = flash_attn_func(q, k, v, causal=True, backend=backend)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window_size", [(-1, -1), (3, 1), (3, -1), (-1, 1), (0, 0)])
@pytest.mark.parametrize("lengths", [(9, 9), (6, 9), (9, 6)])
def test_flash_windows(lengths: tuple[int, int], window_size: tuple[int, int], causal: bool, kv_heads: int) -> None:
    """Keys between i + Lk - Lq - left and i + Lk - Lq + right, both included."""
    q, k, v = inputs(*lengths, kv_heads=kv_heads)
    lq, lk = lengths
    left, right = window_size
    keep = torch.zeros(lq, lk, dtype=torch.bool)
    for i in range(lq):
        for j in range(lk):
            distance = j - (i + lk - lq)
            keep[i, j] = (left < 0 or -distance <= left) and (right < 0 or distance <= right)
            keep[i, j] &= not causal or distance <= 0
    want = oracle(q, k, v, keep, 0.7)
    for backend in BACKENDS:
        got = flash_attn_func(q, k, v, 0.0, 0.7, causal, window_size, backend=backend)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_flash_gradients() -> None:
    """Of inputs (batch, length, heads, dim), through the change of layout."""
    q, k, v = given = inputs(6, 9, kv_heads=2)
    for tensor in given:
        tensor.requires_grad_()
    keep = torch.ones(6, 9, dtype=torch.bool).tril(3)
    weight = torch.randn(2, 6, 4, 8).double()
    want = torch.autograd.grad((oracle(q, k, v, keep, 8**-0.5) * weight).sum(), given)
    got = torch.autograd.grad((flash_attn_func(q, k, v, causal=True, backend="chunked") * weight).sum(), given)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("name", ["flash", "xformers"])
def test_dropout_is_of_the_weights(name: str, backend: str) -> None:
    """With values of the identity the output is the weights: each is dropped or divided by 1 - p, a quarter is dropped."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 64, 64).double().transpose(1, 2), torch.randn(2, 4, 64, 64).double().transpose(1, 2)
    v = torch.eye(64).double()[None, :, None].expand(2, 64, 4, 64)
    weights = oracle(q, k, v, torch.ones(64, 64, dtype=torch.bool), 64**-0.5)
    if name == "flash":
        got = flash_attn_func(q, k, v, 0.25, backend=backend)
    else:
        got = memory_efficient_attention(q, k, v, None, 0.25, backend=backend)
    kept = got != 0
    torch.testing.assert_close(got[kept], weights[kept] / 0.75, rtol=1e-10, atol=0)
    assert abs(kept.double().mean() - 0.75) < 0.02  # 32768 of them: eight standard deviations


XFORMERS_CAUSAL = {
    "top left": (LowerTriangularMask(), {(2, 4): [[1, 0, 0, 0], [1, 1, 0, 0]], (3, 2): [[1, 0], [1, 1], [1, 1]]}),
    "bottom right": (
        LowerTriangularFromBottomRightMask(),
        {(2, 4): [[1, 1, 1, 0], [1, 1, 1, 1]], (3, 2): [[0, 0], [1, 0], [1, 1]]},
    ),
}
"""As their `materialize` gives them."""


@pytest.mark.parametrize("which", XFORMERS_CAUSAL)
@pytest.mark.parametrize("lengths", [(2, 4), (3, 2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_xformers_causal(backend: str, lengths: tuple[int, int], which: str) -> None:
    q, k, v = inputs(*lengths)
    bias, keep = XFORMERS_CAUSAL[which]
    want = oracle(q, k, v, torch.tensor(keep[lengths]).bool(), 8**-0.5)
    torch.testing.assert_close(memory_efficient_attention(q, k, v, bias, backend=backend), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [(150, 150), (90, 200), (200, 90)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_xformers_top_left_over_several_blocks(backend: str, lengths: tuple[int, int]) -> None:
    q, k, v = inputs(*lengths)
    want = oracle(q, k, v, torch.ones(lengths, dtype=torch.bool).tril(), 8**-0.5)
    got = memory_efficient_attention(q, k, v, LowerTriangularMask(), backend=backend)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_xformers_tensor_bias_and_scale(backend: str) -> None:
    """The bias is added after the scale, and -inf hides."""
    q, k, v = inputs(6, 9)
    bias = torch.randn(2, 4, 6, 9).double()
    hidden = torch.rand(6, 9) < 0.3
    hidden[:, 0] = False
    want = oracle(q, k, v, ~hidden, 0.7, bias)
    got = memory_efficient_attention(q, k, v, bias.masked_fill(hidden, -torch.inf), 0.0, 0.7, backend=backend)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["LowerTriangularMask", "LowerTriangularFromBottomRightMask"])
@pytest.mark.parametrize("lengths", [(6, 6), (6, 9), (9, 6)])
def test_xformers_own_masks(lengths: tuple[int, int], name: str) -> None:
    xformers = pytest.importorskip("xformers.ops.fmha.attn_bias")
    bias = getattr(xformers, name)()
    q, k, v = inputs(*lengths)
    want = oracle(q, k, v, bias.materialize(lengths) == 0, 8**-0.5)
    torch.testing.assert_close(memory_efficient_attention(q, k, v, bias, backend="chunked"), want, rtol=0, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="xformers' kernels need a GPU")
@pytest.mark.parametrize("name", [None, "LowerTriangularMask", "LowerTriangularFromBottomRightMask"])
def test_xformers_own_function(name: str | None) -> None:
    theirs = pytest.importorskip("xformers.ops")
    attn_bias = pytest.importorskip("xformers.ops.fmha.attn_bias")
    bias = None if name is None else getattr(attn_bias, name)()
    q, k, v = (t.half().cuda() for t in inputs(16, 32))
    got = memory_efficient_attention(q, k, v, bias, 0.0, 0.7, backend="reference")
    torch.testing.assert_close(got, theirs.memory_efficient_attention(q, k, v, bias, 0.0, 0.7), rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"softcap": 30.0}, "softcap=30.0, expected 0.0"),
        ({"alibi_slopes": torch.ones(4)}, "alibi_slopes="),
        ({"deterministic": True}, "deterministic=True, expected False"),
        ({"return_attn_probs": True}, "return_attn_probs=True, expected False"),
        ({"softmax_scal": 1.0}, "softmax_scal, which neither"),
        ({"window_size": (-2, 0)}, "Window left: got -2"),
    ],
)
def test_flash_refuses(theirs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flash_attn_func(*inputs(3, 3), backend="reference", **theirs)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"op": (None, None)}, "op="),
        ({"output_dtype": torch.float32}, "output_dtype=torch.float32, expected None"),
        ({"attn_bias": LowerTriangularMaskWithTensorBias()}, "got LowerTriangularMaskWithTensorBias, expected None"),
        ({"attn_bias": [0.0]}, "attn_bias: got list"),
    ],
)
def test_xformers_refuses(theirs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory_efficient_attention(*inputs(3, 3), backend="reference", **theirs)


def test_shapes_are_refused() -> None:
    q, k, v = inputs(3, 3, kv_heads=2)
    with pytest.raises(ValueError, match="heads: got 4, 2 and 2 of query, key and value"):
        memory_efficient_attention(q, k, v, backend="reference")
    with pytest.raises(ValueError, match=r"query: got shape \(2, 3, 8\), expected \(batch, length, heads, head_dim\)"):
        flash_attn_func(q[:, :, 0], k[:, :, 0], v[:, :, 0], backend="reference")


def test_what_is_theirs_alone_is_taken_as_it_is_by_default() -> None:
    q, k, v = inputs(3, 3)
    flash = {"softcap": 0.0, "alibi_slopes": None, "deterministic": False, "return_attn_probs": False}
    want = oracle(q, k, v, torch.ones(3, 3, dtype=torch.bool), 8**-0.5)
    torch.testing.assert_close(flash_attn_func(q, k, v, backend="reference", **flash), want, rtol=0, atol=1e-12)
    got = memory_efficient_attention(q, k, v, backend="reference", op=None, output_dtype=None)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
