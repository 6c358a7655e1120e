"""`chunked`: exact for every mask, however it is cut into pieces; biases and dropout with it; never a whole L x L."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from common.attention import (
    Alibi,
    Attended,
    Blocks,
    Causal,
    Dilated,
    Full,
    Global,
    Mask,
    Packed,
    Padding,
    Random,
    T5Bias,
    Window,
    alibi_slopes,
    attention,
)
from common.attention.backends import chunked_pieces
from common.attention.backends.chunked import block_size
from common.attention.backends.chunked_plan import Plan, plan
from common.attention.blocks import lower
from tests.common.attention import properties
from tests.common.attention.properties import assert_exact, assert_within_gate, inputs


@pytest.mark.parametrize("check", properties.ALL, ids=properties.named)
def test_holds(check: Callable[[str], None]):
    check("chunked")


def some_masks(lq: int, lk: int) -> dict[str, Mask]:
    """For a batch of 2 and 4 heads: each kind of list, bucket and group."""
    generator = torch.Generator().manual_seed(lq * 1000 + lk)
    keep = torch.rand(2, lk, generator=generator) > 0.4
    table = torch.rand(2, 4, -(-lq // 16), -(-lk // 16), generator=generator) > 0.6
    queries, keys = (torch.arange(length)[None] * 3 // max(length, 1) for length in (lq, lk))
    return {
        "full": Full(),
        "causal": Causal(),
        "window": Window(20, 3),
        "causal window": Causal() & Window(70, 0),
        "dilated": Dilated(5, 5, 3),
        "global": Window(10, 10) | Global((0, lq // 2, lk - 1)),
        "bigbird": Window(24, 24) | Global((0, 1)) | Random(2, 16, seed=1),
        "padding": Padding(keep),
        "causal padding": Padding(keep) & Causal(),
        "packed": Packed(queries, keys) & Causal(),
        "blocks": Blocks(table[0, 0], 16),
        "blocks by head": Blocks(table[:1], 16),
        "blocks by batch and head": Blocks(table, 16) & Window(40, 40),
    }


@pytest.mark.parametrize(("lq", "lk"), [(200, 200), (130, 200), (200, 130), (1, 300), (100, 1)])
@pytest.mark.parametrize("name", some_masks(1, 1))
def test_exact_for_every_mask(name: str, lq: int, lk: int):
    mask = some_masks(lq, lk)[name]
    assert_exact("chunked", inputs(lq, lk, kv=2, dv=5, dtype=torch.float64), mask)
    assert_exact("chunked", inputs(lq, lk, kv=1, d=3), mask)


@pytest.mark.parametrize("at_once", [1, 64 * 64 * 4, 64 * 64 * 20])
@pytest.mark.parametrize("name", ["causal window", "global", "bigbird", "causal padding", "blocks by batch and head"])
def test_the_size_of_a_piece_changes_nothing(monkeypatch: pytest.MonkeyPatch, name: str, at_once: int):
    """One row of one pair at a time, some rows of one pair, all rows of some pairs."""
    monkeypatch.setattr(chunked_pieces, "AT_ONCE", at_once)
    assert_exact("chunked", inputs(300, kv=2, dtype=torch.float64), some_masks(300, 300)[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kv", [4, 1])
@pytest.mark.parametrize("name", ["full", "causal window", "global", "bigbird", "padding"])
def test_error_gate(name: str, kv: int, dtype: torch.dtype):
    tensors = inputs(260, kv=kv, d=32, dv=32, dtype=dtype)
    assert_within_gate("chunked", tensors, some_masks(260, 260)[name])
    q, k, v, do = tensors
    assert_within_gate("chunked", (q * 4, k * 4, v * 10, do), some_masks(260, 260)[name])


def test_error_gate_with_a_bias():
    for dtype in (torch.bfloat16, torch.float32):
        bias = torch.randn(1, 4, 100, 150).to(dtype)
        assert_within_gate("chunked", inputs(100, 150, d=32, dv=32, dtype=dtype), Causal(), bias)


@pytest.mark.parametrize("sizes", [(2, 4, 1, 1), (1, 4, 1, 0), (2, 1, 0, 1), (1, 1, 1, 1), (1, 1, 0, 0), (2, 4, 0, 0)])
@pytest.mark.parametrize(("lq", "lk"), [(150, 170), (1, 70), (70, 1)])
def test_a_bias_of_any_shape_and_its_gradient(sizes: tuple[int, int, int, int], lq: int, lk: int):
    """sizes: of batch and heads, and whether it differs by query and by key."""
    bias = torch.randn(sizes[0], sizes[1], lq if sizes[2] else 1, lk if sizes[3] else 1, dtype=torch.float64)
    tensors = inputs(lq, lk, kv=2, dtype=torch.float64)
    for name in ("causal", "global", "causal padding", "blocks by batch and head"):
        assert_exact("chunked", tensors, some_masks(lq, lk)[name], bias)


def test_nan_in_a_bias_where_nothing_is_seen_takes_no_part():
    mask = Causal() & Padding(torch.arange(80)[None] > 2)
    allowed = mask.dense(80, 80)
    bias = torch.randn(1, 1, 80, 80, dtype=torch.float64)
    tensors = inputs(80, dtype=torch.float64)
    clean = properties.with_gradients("chunked", *tensors, mask, bias.masked_fill(~allowed, 0.0))
    for junk in (torch.nan, torch.inf, -torch.inf):
        for name, got in properties.with_gradients("chunked", *tensors, mask, bias.masked_fill(~allowed, junk)).items():
            torch.testing.assert_close(got, clean[name], msg=f"{junk} leaks into {name}")


def bias_by_distance(kind: str) -> tuple[Any, Tensor]:
    """A bias, and the leaf that it is made of."""
    if kind == "alibi":
        slopes = alibi_slopes(4).double().requires_grad_()
        return Alibi(slopes), slopes
    table = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    return T5Bias(table, bidirectional=True, max_distance=40), table


@pytest.mark.parametrize("kind", ["alibi", "t5"])
@pytest.mark.parametrize(("lq", "lk"), [(150, 150), (100, 170), (170, 100), (1, 90), (90, 1)])
def test_a_bias_by_distance_is_its_dense_form_and_so_is_the_gradient(kind: str, lq: int, lk: int):
    q, k, v, do = inputs(lq, lk, kv=2, dtype=torch.float64)
    for name in ("full", "causal window", "global", "causal padding", "blocks by batch and head"):
        found = []
        for dense, backend in ((False, "chunked"), (True, "reference")):
            bias, leaf = bias_by_distance(kind)
            if found:
                leaf.data.copy_(found[0][2])
            given = bias.dense(lq, lk) if dense else bias
            leaves = [t.clone().requires_grad_() for t in (q, k, v)]
            out = attention(*leaves, mask=some_masks(lq, lk)[name], backend=backend, bias=given)
            found.append((out, torch.autograd.grad(out, [*leaves, leaf], do), leaf.detach()))
        torch.testing.assert_close(found[0][0], found[1][0])
        for got, expected in zip(found[0][1], found[1][1], strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", ["full", "causal window", "global", "causal padding", "blocks by batch and head"])
@pytest.mark.parametrize(("lq", "lk"), [(100, 150), (150, 40)])
def test_dropout_drops_what_the_reference_drops(name: str, lq: int, lk: int):
    """The same bits for the same seed, in the backward pass too."""
    q, k, v, do = inputs(lq, lk, kv=2, dtype=torch.float64)
    found = []
    for backend in ("chunked", "reference"):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        bias = torch.linspace(-1, 1, lk, dtype=torch.float64).expand(1, 1, lq, lk).clone().requires_grad_()
        kwargs: dict[str, Any] = {"dropout_p": 0.3, "dropout_seed": 1 << 40, "bias": bias, "return_lse": True}
        out = attention(*leaves, mask=some_masks(lq, lk)[name], backend=backend, **kwargs)
        assert isinstance(out, Attended) and out.lse is not None
        found.append([out.output, out.lse, *torch.autograd.grad(out.output, [*leaves, bias], do)])
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_in_fp64(monkeypatch: pytest.MonkeyPatch):
    """By differences, with all that there is at once: grouped heads, bias, dropout, a bucket of two rows, unseen keys."""
    monkeypatch.setattr(chunked_pieces, "AT_ONCE", 1)
    q, k, v, _ = inputs(20, 36, batch=1, heads=2, kv=1, d=2, dv=3, dtype=torch.float64)
    bias = torch.randn(1, 2, 20, 1, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (q, k, v, bias)]
    torch.autograd.gradcheck(
        lambda q, k, v, bias: attention(
            q, k, v, mask=Window(4, 1), backend="chunked", bias=bias, dropout_p=0.2, dropout_seed=3
        ),
        leaves,
        fast_mode=True,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_lse(dtype: torch.dtype):
    """Natural logarithm of the sum, in fp32 (fp64), -inf where nothing is seen; no gradient."""
    q, k, v, _ = inputs(90, 60, kv=2, dtype=dtype)
    mask = Causal() & Window(70, 0)
    got = attention(q.requires_grad_(), k, v, mask=mask, backend="chunked", return_lse=True)
    assert isinstance(got, Attended) and got.lse is not None
    assert got.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32) and not got.lse.requires_grad
    scores = q.detach().double() @ k.double().repeat_interleave(2, 1).transpose(2, 3) * 8**-0.5
    exact = scores.masked_fill(~mask.dense(90, 60), -torch.inf).logsumexp(-1)
    atol = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(got.lse.double(), exact, atol=atol, rtol=0)
    assert bool((got.lse[:, :, :30] == -torch.inf).all())


def test_scores_that_overflow_fp16_do_not_overflow_on_a_cpu():
    q = torch.full((1, 1, 1, 8), 200.0, dtype=torch.float16)
    k = torch.stack((q[0, 0, 0], q[0, 0, 0] / 2))[None, None]
    v = torch.tensor([[[[1.0], [5.0]]]], dtype=torch.float16)
    assert attention(q, k, v, mask=Full(), backend="chunked").item() == 1.0  # type: ignore[union-attr]


def test_only_what_wants_a_gradient_gets_one():
    q, k, v, do = inputs(70)
    for wanted in range(3):
        leaves = [t.clone().requires_grad_(place == wanted) for place, t in enumerate((q, k, v))]
        out = attention(*leaves, mask=Causal(), backend="chunked")
        assert isinstance(out, Tensor)
        out.backward(do)
        assert [leaf.grad is not None for leaf in leaves] == [place == wanted for place in range(3)]


def test_a_backward_pass_under_autocast_keeps_its_precision():
    q, k, v, do = inputs(70)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = attention(*leaves, mask=Causal(), backend="chunked")
    assert isinstance(out, Tensor)
    with torch.autocast("cpu", torch.bfloat16):
        grads = torch.autograd.grad(out, leaves, do)
    for got, expected in zip(
        grads, list(properties.with_gradients("chunked", q, k, v, do, Causal()).values())[1:], strict=True
    ):
        assert torch.equal(got, expected)


def test_no_second_derivative():
    q, k, v, do = inputs(5)
    out = attention(q.requires_grad_(), k, v, mask=Full(), backend="chunked")
    assert isinstance(out, Tensor)
    (first,) = torch.autograd.grad(out, q, do.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


class Largest(TorchDispatchMode):
    """Numbers in the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("length", [1024, 4096])
@pytest.mark.parametrize("mask", [Causal() & Window(32, 0), Window(32, 32) | Global((0,)), Full()], ids=str)
def test_nothing_is_larger_than_a_piece_or_the_inputs(mask: Mask, length: int):
    """Linear in the length, for a full mask too: a block of 64 queries meets all keys, and of these there are length.

    For blocks of 32 a piece's keys, of head_dim 64, are twice as many numbers as its scores.
    """
    q, k, v, do = inputs(length, batch=1, heads=1, kv=1, d=64, dv=64)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    mode = Largest()
    with mode:
        out = attention(*leaves, mask=mask, backend="chunked")
        torch.autograd.grad(out, leaves, do)
    assert q.numel() <= mode.size <= max(2 * chunked_pieces.AT_ONCE, 64 * length)


def covered(its_plan: Plan) -> Tensor:
    """What the buckets mean, (G, rows * block_q, columns * block_k); each block of each row may be in one bucket only."""
    lists = its_plan.lists
    rows, columns = -(-lists.lq // lists.block_q), -(-lists.lk // lists.block_k)
    whole = torch.zeros(len(its_plan.groups), rows, columns, lists.block_q, lists.block_k, dtype=torch.int)
    for group, buckets in enumerate(its_plan.groups):
        for bucket in buckets:
            first, last = bucket.partial
            for n, row in enumerate(bucket.rows.tolist()):
                tiles = bucket.tiles[n if len(bucket.tiles) > 1 else 0]
                for slot, column in enumerate(bucket.columns[n].tolist()):
                    tile = int(tiles[slot - first]) if first <= slot < last else -1
                    whole[group, row, column] += 1 + its_plan.tiles[tile].int()
    return whole.transpose(2, 3).reshape(len(whole), rows * lists.block_q, columns * lists.block_k)


@pytest.mark.parametrize("name", some_masks(1, 1))
def test_buckets_hold_each_listed_block_once(name: str):
    lists = lower(some_masks(150, 170)[name], 150, 170, 16, 16)
    whole = covered(plan(lists, torch.device("cpu")))
    assert int(whole.max()) <= 2, "a block is in two buckets"
    dense = lists.dense().flatten(0, 1)
    # a full block may reach beyond the queries, never beyond the keys
    assert torch.equal(whole[:, :150, :170] == 2, dense) and not bool((whole[:, :, 170:] == 2).any())


def test_a_window_is_one_bucket_of_views_and_its_ends():
    """64 blocks: the first two rows have fewer blocks of keys, the other 62 differ in nothing."""
    lists = lower(Window(128, 0), 4096, 4096, 64, 64)
    [buckets] = plan(lists, torch.device("cpu")).groups
    assert [(tuple(b.columns.shape), b.corner) for b in buckets] == [
        ((1, 1), (0, 0)),
        ((1, 2), (1, 0)),
        ((62, 3), (2, 0)),
    ]
    assert all(len(b.tiles) == 1 for b in buckets)


def test_global_rows_are_a_bucket_of_their_own():
    lists = lower(Window(64, 64) | Global((0,)), 1024, 1024, 64, 64)
    [buckets] = plan(lists, torch.device("cpu")).groups
    assert [tuple(b.columns.shape) for b in buckets if b.columns.shape[1] > 4] == [(1, 16)]
    # of the four blocks of keys that most rows see, one stays where it is: no diagonal, but the same mask
    most = max(buckets, key=lambda b: b.columns.numel() * (b.columns.shape[1] < 5))
    assert most.columns.shape == (13, 4) and most.corner is None and len(most.tiles) == 1


@pytest.mark.parametrize(
    ("mask", "size"),
    [
        (Full(), 64),
        (Causal() & Window(128, 0), 64),
        (Causal() & Window(32, 0), 32),
        (Window(16, 16) | Global((0,)), 16),
        (Window(0, 3), 16),
        (Window(None, 3), 64),
        (Dilated(8, 8, 4), 32),
        (Blocks(torch.ones(4, 4, dtype=torch.bool), 32), 32),
        (Window(96, 96) | Random(3, 64, seed=0), 64),
    ],
    ids=str,
)
def test_block_size(mask: Mask, size: int):
    assert block_size(mask) == size


def test_weights_are_refused():
    q, k, v, _ = inputs(3)
    with pytest.raises(ValueError, match="backend 'chunked' never holds the whole of the weights"):
        attention(q, k, v, mask=Full(), backend="chunked", return_weights=True)
