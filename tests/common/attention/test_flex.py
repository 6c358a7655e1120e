"""`flex`: compiled, masked by our block lists. Each shape is compiled anew, which takes seconds: there are three."""

import shutil
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from common.attention import (
    Alibi,
    Blocks,
    Causal,
    Dilated,
    Full,
    Global,
    Mask,
    Packed,
    Padding,
    Window,
    alibi_slopes,
    attention,
)
from common.attention.backends import flex
from common.attention.blocks import lower
from common.attention.request import Request
from tests.common.attention.plain import plain
from tests.common.attention.properties import assert_close, by_time, doubled, inputs

compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="flex compiles for a CPU with g++")


def assert_exact(mask: Mask, bias: Any = None) -> None:
    """140 queries, 200 keys, 4 heads on 2, dv other than d; NaN in all that takes no part."""
    q, k, v, _ = inputs(140, 200, kv=2, d=16, dv=8)
    allowed = mask.dense(140, 200).expand(2, 4, 140, 200)
    added = 0.0 if bias is None else bias.dense(140, 200).double()
    exact = plain(*doubled(q, k, v), allowed, scale=16**-0.5, bias=added)
    q = q.masked_fill(~allowed.any(-1, keepdim=True), torch.nan)
    unseen = ~allowed.unflatten(1, (2, 2)).any(2).any(2)[..., None]
    k, v = k.masked_fill(unseen, torch.nan), v.masked_fill(unseen, torch.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*without torch.compile.*")
        assert_close(attention(q, k, v, mask=mask, backend="flex", bias=bias), exact)  # type: ignore[arg-type]


@compiler
def test_masks_of_one_shape_are_compiled_once():
    """Full, partial and missing blocks, dead rows, unseen keys, rows that see all."""
    assert_exact(Window(20, 3) | Global((5,)))
    before = counters["stats"]["unique_graphs"]
    keep = torch.arange(200)[None]
    some = torch.tensor([0, 1, 0, 0, 130, 9]), torch.tensor([2, 4, 0, 3, 100, 91])  # sequences without queries, or keys
    segments = (torch.repeat_interleave(torch.arange(6), lengths)[None] for lengths in some)
    triangle = Blocks(torch.ones(140, 200, dtype=torch.bool).tril(), 1)
    masks = [Full(), Causal(), Dilated(9, 9, 3), Causal() & Padding((keep > 70) & (keep < 190)), Window(0, 0)]
    for mask in [*masks, Window(2, 0), Packed(*segments), triangle]:
        assert_exact(mask)
    assert counters["stats"]["unique_graphs"] == before


@compiler
def test_any_strides():
    """Rows that are one number in memory, heads side by side at each time, and a number for each head of keys."""
    q, k, v, _ = inputs(140, 200, kv=2, d=16, dv=8)
    one = [t[..., :1].contiguous().expand_as(t) for t in (q, k, v)]
    numbered = torch.arange(2.0).view(1, 2, 1, 1).expand_as(v)
    for tensors in ((one[0], k, v), (q, one[1], v), (q, k, one[2]), (q, k, numbered), [by_time(t) for t in (q, k, v)]):
        assert not all(t.is_contiguous() for t in tensors)
        exact = plain(*doubled(*tensors), torch.tensor(True), scale=16**-0.5)
        assert_close(attention(*tensors, mask=Full(), backend="flex"), exact)  # type: ignore[call-arg]


@compiler
def test_masks_by_batch_and_head():
    table = torch.rand(2, 4, 9, 13, generator=torch.Generator().manual_seed(0)) > 0.6
    assert_exact(Blocks(table, 16))


@compiler
def test_a_bias_by_distance():
    """On both sides: before a query alone, a wrong distance would add the same to all."""
    assert_exact(Window(50, 50), Alibi(alibi_slopes(4)))


@compiler
def test_a_bias_of_minus_infinity_hides():
    """In part of a row as a mask does; a query of which it hides every key gets zeros. The rest of the scores is 0."""
    q, k, v, _ = inputs(140, 200, kv=2, d=16, dv=8)
    allowed = torch.rand(140, 200, generator=torch.Generator().manual_seed(1)) > 0.5
    allowed[4] = False
    bias = torch.zeros(1, 1, 140, 200).masked_fill(~allowed, -torch.inf)
    out = attention(q, k, v, mask=Full(), backend="flex", bias=bias, scale=0.0)
    assert isinstance(out, torch.Tensor)
    assert_close(out, plain(*doubled(q, k, v), allowed, scale=0.0))


def request(device: str = "cpu", dtype: torch.dtype = torch.float32, **changes: Any) -> Request:
    q = torch.empty(2, 4, 16, 64, device=device, dtype=dtype)
    return replace(Request(q, q, q, Causal(), None, 1.0, 0.0, 0, False, False), **changes)


WANTS = torch.zeros(2, 4, 16, 64, requires_grad=True)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "weights": ({"return_weights": True}, "is compiled for its output alone: no weights, no lse"),
    "lse": ({"return_lse": True}, "is compiled for its output alone: no weights, no lse"),
    "dropout": ({"dropout_p": 0.1}, "has no dropout"),
    "fp64": ({"dtype": torch.float64}, "takes no fp64"),
    "nothing": ({"q": torch.empty(2, 4, 0, 64)}, "takes no empty tensors"),
    "q with gradient": ({"q": WANTS}, "has no backward pass on a CPU"),
    "v with gradient": ({"v": WANTS}, "has no backward pass on a CPU"),
    "bias with gradient": ({"bias": torch.zeros(1, 1, 16, 16, requires_grad=True)}, "has no backward pass on a CPU"),
    "slopes with gradient": (
        {"bias": Alibi(torch.ones(4, requires_grad=True))},
        "has no backward pass on a CPU",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(changes: dict[str, Any], reason: str):
    assert flex.unsupported(request(**changes)) == reason


def test_a_gradient_is_refused_on_a_cpu_alone_and_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with torch.no_grad():
        assert flex.unsupported(request(q=WANTS)) is None
    with FakeTensorMode():
        q = torch.empty(2, 4, 16, 64, device="cuda", requires_grad=True)
        assert flex.unsupported(request("cuda", q=q, k=q, v=q)) is None


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert flex.unsupported(request()) == "compiles for a CPU with no-such-compiler, which is not there"


@pytest.mark.parametrize(
    "mask",
    [
        Full(),
        Causal(),
        Window(150, 20) | Global((300,)),
        Blocks(torch.rand(2, 1, 25, 38) > 0.5, 16),
        Blocks(torch.rand(1, 3, 25, 38) > 0.5, 16) & Window(90, 90),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_the_block_mask_means_the_mask(mask: Mask):
    """400 queries and 600 keys: the lists as torch reads them, and the function that is asked within partial blocks."""
    block_mask = flex._block_mask(lower(mask, 400, 600, 128, 128), torch.device("cpu"))
    batch, heads = mask.groups
    dense = mask.dense(400, 600).expand(batch, heads, 400, 600)
    found = torch.zeros(batch, heads, 4 * 128, 5 * 128, dtype=torch.bool)
    inside = torch.arange(128)
    for b in range(batch):
        for h in range(heads):
            for row in range(4):
                for column in block_mask.full_kv_indices[b, h, row, : int(block_mask.full_kv_num_blocks[b, h, row])]:
                    found[b, h, row * 128 : row * 128 + 128, int(column) * 128 : int(column) * 128 + 128] = True
                for column in block_mask.kv_indices[b, h, row, : int(block_mask.kv_num_blocks[b, h, row])]:
                    i, j = row * 128 + inside[:, None], int(column) * 128 + inside
                    allowed = block_mask.mask_mod(torch.tensor(b), torch.tensor(h), i, j)
                    assert bool(allowed.any()) and not bool(found[b, h, i, j].any())
                    found[b, h, i, j] = allowed
    assert torch.equal(found[:, :, :400, :600], dense) and not bool(found[..., 600:].any())
