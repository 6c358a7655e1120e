"""`sdpa`: pinned to one kernel, aligned bottom-right, and refusing what that kernel can't do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend

from common.attention import (
    Alibi,
    Attended,
    Blocks,
    Causal,
    Full,
    Global,
    Mask,
    Padding,
    T5Bias,
    Window,
    alibi_slopes,
    attention,
)
from common.attention.backends import sdpa
from common.attention.request import Request
from tests.common.attention import properties
from tests.common.attention.plain import plain
from tests.common.attention.properties import (
    assert_close,
    assert_exact,
    assert_within_gate,
    doubled,
    inputs,
    with_gradients,
)


@pytest.mark.parametrize("check", properties.ALL, ids=properties.named)
def test_holds(check: Callable[[str], None]):
    check("sdpa")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("mask", [Full(), Causal(), Window(20, 3) | Global((5,)), Causal() & Window(9, 0)], ids=str)
def test_error_gate(mask: Mask, dtype: torch.dtype):
    assert_within_gate("sdpa", inputs(130, kv=2, d=32, dv=32, dtype=dtype), mask)
    assert_within_gate("sdpa", inputs(70, 130, d=32, dv=32, dtype=dtype), mask)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(2, 4, 30, 40), (1, 4, 1, 40), (1, 1, 30, 1)])
def test_a_bias_without_gradient(sizes: tuple[int, int, int, int], dtype: torch.dtype):
    """Also where it holds NaN and nothing is seen, and in rows that see nothing."""
    q, k, v, _ = inputs(30, 40, kv=2, dtype=dtype)
    mask = Causal() & Padding(torch.arange(40)[None] > 13)
    bias = torch.randn(sizes, dtype=dtype)
    exact = plain(*doubled(q, k, v), mask.dense(30, 40), scale=8**-0.5, bias=bias.double())
    assert bool((exact[:, :, :4] == 0).all())
    assert_close(attention(q, k, v, mask=mask, backend="sdpa", bias=bias), exact)  # type: ignore[arg-type]
    if sizes[2:] == (30, 40):
        bias = bias.masked_fill(~mask.dense(30, 40), torch.nan)
        assert_close(attention(q, k, v, mask=mask, backend="sdpa", bias=bias), exact)  # type: ignore[arg-type]


def test_masks_by_batch_and_head():
    """With grouped heads a key takes part if any of its heads' queries sees it."""
    table = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(0)) > 0.7
    mask = Blocks(table, 8)
    seen = mask.dense(20, 37).unflatten(1, (2, 2)).any(2).any(2)[..., None]
    assert not bool(seen.all())
    q, k, v, do = inputs(20, 37, kv=2)
    assert_exact("sdpa", (q, k, v, do), mask)
    clean = with_gradients("sdpa", q, k, v, do, mask)
    dirty = with_gradients("sdpa", q, k.masked_fill(~seen, torch.nan), v.masked_fill(~seen, torch.nan), do, mask)
    assert all(torch.equal(dirty[name], clean[name]) for name in clean)


def test_a_bias_by_distance():
    q, k, v, _ = inputs(30, 40)
    bias, mask = Alibi(alibi_slopes(4)), Window(15, 15)
    exact = plain(*doubled(q, k, v), mask.dense(30, 40), scale=8**-0.5, bias=bias.dense(30, 40).double())
    assert_close(attention(q, k, v, mask=mask, backend="sdpa", bias=bias), exact)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mask", "lq", "causal", "masked"),
    [
        (Full(), 6, False, False),
        (Causal(), 6, True, False),
        (Causal(), 4, False, True),
        (Window(None, 0), 6, False, True),
    ],
    ids=str,
)
def test_one_kernel_is_allowed_and_causal_is_its_own_only_in_a_square(
    monkeypatch: pytest.MonkeyPatch, mask: Mask, lq: int, causal: bool, masked: bool
):
    """torch's is_causal is aligned top-left. What else is not allowed can't be fallen back to."""
    seen: list[Any] = []

    def spy(q: Any, k: Any, v: Any, attn_mask: Any, **kwargs: Any) -> Any:
        flags = (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())
        flags += (torch.backends.cuda.mem_efficient_sdp_enabled(), torch.backends.cuda.cudnn_sdp_enabled())
        seen.extend((flags, kwargs["is_causal"], attn_mask is not None))
        return q

    monkeypatch.setattr(sdpa, "scaled_dot_product_attention", spy)
    attention(*inputs(lq, 6)[:3], mask=mask, backend="sdpa")
    assert seen == [(True, False, False, False), causal, masked]


def request(
    device: str = "cpu", dtype: torch.dtype = torch.float32, size: int = 64, heads: int = 4, **changes: Any
) -> Request:
    q, k = (
        torch.empty(2, 4, 16, size, device=device, dtype=dtype),
        torch.empty(2, heads, 16, size, device=device, dtype=dtype),
    )
    return replace(Request(q, k, k, Causal(), None, 1.0, 0.0, 0, False, False), **changes)


WANTS = torch.zeros(1, 4, 16, 16, requires_grad=True)
REFUSED: dict[str, tuple[dict[str, Any], str | None]] = {
    "plain": ({}, None),
    "weights": ({"return_weights": True}, "gives no weights and no lse"),
    "lse": ({"return_lse": True}, "gives no weights and no lse"),
    "dropout": ({"dropout_p": 0.1}, "draws its own random numbers for dropout, so a seed can't be kept"),
    "dv": (
        {"v": torch.empty(2, 4, 16, 8)},
        "is pinned to a flash kernel, which takes one head_dim for q, k and v, not 64 and 8",
    ),
    "bias": ({"bias": WANTS.detach()}, None),
    "bias with gradient": ({"bias": WANTS}, "is pinned to a flash kernel, which has no gradient for a bias"),
    "t5": ({"bias": T5Bias(torch.zeros(8, 4), True)}, None),
    "t5 with gradient": (
        {"bias": T5Bias(torch.zeros(8, 4, requires_grad=True), True)},
        "is pinned to a flash kernel, which has no gradient for a bias",
    ),
    "another device": ({"device": "meta"}, "is pinned to kernels for cpu and cuda, not meta"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_on_a_cpu(changes: dict[str, Any], reason: str | None):
    assert sdpa.unsupported(request(**changes)) == reason
    with torch.no_grad():
        assert sdpa.unsupported(request(bias=WANTS)) is None


ON_A_GPU: dict[str, tuple[dict[str, Any], SDPBackend, str | None]] = {
    "bf16, causal": ({"dtype": torch.bfloat16, "heads": 2}, SDPBackend.FLASH_ATTENTION, None),
    "fp32, causal": ({}, SDPBackend.EFFICIENT_ATTENTION, None),
    "bf16, window": ({"dtype": torch.bfloat16, "mask": Window(3, 0)}, SDPBackend.EFFICIENT_ATTENTION, None),
    "too wide": (
        {"dtype": torch.float16, "size": 264},
        SDPBackend.FLASH_ATTENTION,
        "a head_dim of at most 256, not 264",
    ),
    "fp64": ({"dtype": torch.float64}, SDPBackend.EFFICIENT_ATTENTION, "takes no fp64"),
    "grouped heads": ({"heads": 2}, SDPBackend.EFFICIENT_ATTENTION, "takes as many heads of k and v as of q"),
    "odd head_dim": ({"size": 66}, SDPBackend.EFFICIENT_ATTENTION, "a head_dim that is a multiple of 4"),
    "odd head_dim of 16 bits": (
        {"size": 68, "dtype": torch.bfloat16, "mask": Window(3, 0)},
        SDPBackend.EFFICIENT_ATTENTION,
        "a head_dim that is a multiple of 8",
    ),
    "bf16 with a bias": (
        {"dtype": torch.bfloat16, "bias": WANTS},
        SDPBackend.EFFICIENT_ATTENTION,
        "rounds a bias to 16 bits",
    ),
    "fp32 with a bias": ({"bias": WANTS}, SDPBackend.EFFICIENT_ATTENTION, None),
}


@pytest.mark.parametrize(("changes", "kernel", "reason"), ON_A_GPU.values(), ids=ON_A_GPU.keys())
def test_kernels_and_refusals_on_a_gpu(changes: dict[str, Any], kernel: SDPBackend, reason: str | None):
    with FakeTensorMode(allow_non_fake_inputs=True):
        r = request("cuda", **changes)
        assert sdpa.pinned(r) is kernel
        found = sdpa.unsupported(r)
    assert (found is None) if reason is None else (found is not None and found.endswith(reason))


def test_empty_tensors_are_refused_on_a_gpu():
    with FakeTensorMode():
        q, k = torch.empty(2, 4, 0, 64, device="cuda"), torch.empty(2, 4, 16, 64, device="cuda")
        assert sdpa.unsupported(request("cuda", q=q, k=k, v=k)) == "takes no empty tensors on a GPU"


def test_the_answer_has_neither_lse_nor_weights():
    r = Request(*inputs(3)[:3], Full(), None, 1.0, 0.0, 0, False, False)
    assert sdpa.attend(r)[1:] == Attended(r.q)[1:] == (None, None)
