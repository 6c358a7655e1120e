"""The flash kernels in Triton's interpreter, in blocks of 16, against fp64."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from common.attention import Causal, Full, Global, Mask, Padding, T5Bias, Window, attention, blocks
from common.attention.kernels import INTERPRETED, configurations, launch
from common.attention.kernels.autograd import flash
from common.attention.kernels.configurations import Configuration
from common.attention.kernels.flash_bias import by_diagonal, by_distance
from tests.common.attention.kernels import cases
from tests.common.attention.kernels.cases import Case

UNIT = 16


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "choose", lambda *_: Configuration(UNIT, UNIT, 4, 1))


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    assert INTERPRETED
    with cases.poisoned_memory():
        yield


@pytest.mark.parametrize("case", cases.pairwise(cases.FACTORS), ids=str)
def test_output_and_gradients(case: Case) -> None:
    cases.assert_within_gate(case, UNIT)


@pytest.mark.parametrize("case", cases.LONG, ids=str)
def test_long(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "choose", lambda *_: Configuration(128, 128, 4, 1))
    cases.assert_within_gate(case, 128)


@pytest.mark.parametrize("block_q, block_k", [(16, 32), (32, 16), (64, 16)])
def test_block_sizes(block_q: int, block_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "choose", lambda *_: Configuration(block_q, block_k, 4, 1))
    cases.assert_within_gate(Case(mask="bigbird", heads="grouped", lengths="more keys", bias="whole"), UNIT)


@pytest.mark.parametrize("bias", ["whole", "t5"])
def test_a_query_that_sees_nothing_takes_no_part(bias: str) -> None:
    """NaN in it and in its gradient, next to queries of its block that see something."""
    cases.assert_within_gate(Case(lengths="more queries", heads="grouped", bias=bias), UNIT)


def test_masks_of_each_batch_entry_and_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists in groups by both; of the tables' masks each differs by one alone."""
    by_entry, by_head = cases.MASKS["padding"], cases.MASKS["blocks by head"]
    monkeypatch.setitem(cases.MASKS, "both", lambda sizes, unit: by_entry(sizes, unit) & by_head(sizes, unit))
    cases.assert_within_gate(Case(mask="both", heads="batch"), UNIT)


@pytest.mark.parametrize("p, options", [
    (0.3, {"mask": "window", "heads": "grouped", "lengths": "more keys"}),
    (0.5, {"mask": "full", "heads": "batch", "bias": "whole", "width": "80"}),
    (0.1, {"mask": "bigbird", "heads": "one key head", "bias": "t5"}),
])  # fmt: skip
def test_dropout_drops_what_the_reference_drops(p: float, options: dict[str, str]) -> None:
    """Forward and gradients, whatever the blocks: the seed and the place decide."""
    seed = 5 + (3 << 40)
    mask, tensors, bias = cases.inputs(Case(**options), UNIT)

    def run(q: Tensor, k: Tensor, v: Tensor, made: Any) -> Tensor:
        return attention(q, k, v, mask=mask, backend="reference", bias=made, dropout_p=p, dropout_seed=seed)

    wide = {name: t.double() for name, t in tensors.items()}
    right = cases.differentiate(run, wide, bias)
    for name, value in cases.kernels(mask, tensors, bias, dropout_p=p, dropout_seed=seed).items():
        assert cases.relative_rms(value, right[name].double()) < 1e-6, name


def test_lse_is_natural_and_of_what_is_seen() -> None:
    q, k, v = torch.zeros(1, 1, 20, 8), torch.zeros(1, 1, 3, 8), torch.ones(1, 1, 3, 8)
    answer = attention(q, k, v, mask=Causal(), backend="triton", return_lse=True)
    expected = torch.tensor([-math.inf] * 17 + [0.0, math.log(2), math.log(3)])
    torch.testing.assert_close(answer.lse, expected.view(1, 1, 20))
    assert answer.lse.dtype == torch.float32 and not answer.lse.requires_grad
    assert attention(q, k, v, mask=Causal(), backend="triton", return_lse=False).shape == (1, 1, 20, 8)


def test_large_scores() -> None:
    """Far beyond what exp holds; each query then sees the one key that fits it best."""
    q = torch.randn(1, 1, 20, 16, generator=torch.Generator().manual_seed(0)) * 1e6
    k, v = q / q.norm(dim=-1, keepdim=True), torch.randn(1, 1, 20, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(attention(q, k, v, mask=Full(), backend="triton"), v)


def test_a_bias_of_minus_infinity_hides() -> None:
    """In part of a row, in a whole row (which then is one that sees nothing), and over whole full blocks."""
    bias = torch.zeros(1, 1, 40, 40)
    bias[..., 3, 1:], bias[..., 4, :], bias[..., 20:, :32] = -math.inf, -math.inf, -math.inf
    hidden = attention(*_qkv(), mask=Full(), backend="reference", bias=bias.masked_fill(bias == -math.inf, -1e30))
    hidden[..., 4, :] = 0.0
    q, k, v = (t.requires_grad_() for t in _qkv())
    out = attention(q, k, v, mask=Full(), backend="triton", bias=bias)
    torch.testing.assert_close(out, hidden)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(torch.isfinite(g).all() for g in grads) and not grads[0][..., 4, :].any()


@pytest.mark.parametrize("sizes", [(0, 2, 5, 5), (1, 2, 0, 5), (1, 2, 5, 0)], ids=str)
def test_nothing_to_attend(sizes: tuple[int, int, int, int]) -> None:
    batch, heads, lq, lk = sizes
    q, k, v = (torch.randn(batch, heads, length, 8, requires_grad=True) for length in (lq, lk, lk))
    bias = torch.randn(1, heads, lq, lk, requires_grad=True)
    answer = attention(q, k, v, mask=Full(), backend="triton", bias=bias, return_lse=True)
    assert answer.output.shape == q.shape and not answer.output.any() and (answer.lse == -math.inf).all()
    for tensor, grad in zip((q, k, v, bias), torch.autograd.grad(answer.output.sum(), (q, k, v, bias)), strict=True):
        assert grad.shape == tensor.shape and not grad.any()


@pytest.mark.parametrize("mask, bias", [(Causal() & Window(1, None), None), (Full(), "whole"), (Causal(), "distance")])
def test_gradcheck(mask: Mask, bias: str | None) -> None:
    """By finite differences in fp64, without any attention written out. Two query heads a key head, dropout."""
    shapes = [
        (1, 2, 3, 2),
        (1, 1, 4, 2),
        (1, 1, 4, 3),
        *{None: [], "whole": [(1, 2, 3, 4)], "distance": [(2, 6)]}[bias],
    ]
    draw = torch.Generator().manual_seed(0)
    leaves = [torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        return flash(launch.Problem(q, k, v, mask, rest[0] if rest else None, 0.5, 0.2, 7))[0]

    assert torch.autograd.gradcheck(run, leaves, atol=1e-6, rtol=1e-5)


def test_a_gradient_of_any_strides() -> None:
    """Expanded from one number, as `.sum()` gives it, and transposed."""
    q, k, v = (t.requires_grad_() for t in _qkv())
    out = attention(q, k, v, mask=Causal(), backend="triton")
    strided = torch.randn(1, 2, 16, 40).transpose(2, 3)
    for do in (torch.ones(()).expand_as(out), strided):
        got = torch.autograd.grad(out, (q, k, v), do, retain_graph=True)
        same = torch.autograd.grad(out, (q, k, v), do.contiguous(), retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(got, same, strict=True)) and all(g.any() for g in got)


def test_only_the_gradients_that_are_asked_for() -> None:
    q, k, v = _qkv()
    for place in range(3):
        leaves = [t.clone().requires_grad_(place == n) for n, t in enumerate((q, k, v))]
        attention(*leaves, mask=Causal(), backend="triton").sum().backward()  # type: ignore[call-arg]
        assert [t.grad is not None for t in leaves] == [n == place for n in range(3)] and leaves[place].grad.any()


def test_the_same_bits_each_time() -> None:
    case = Case(mask="bigbird", heads="grouped", bias="t5", dtype="bf16")
    first, second = (cases.kernels(*cases.inputs(case, UNIT), dropout_p=0.2, dropout_seed=3) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_is_what_its_entries_are_alone() -> None:
    """Of different lengths: with what is behind them, and cut to size, bit for bit."""
    q, k, v, _ = (torch.randn(3, 2, 40, 16, generator=torch.Generator().manual_seed(n)) for n in range(4))
    lengths = torch.tensor([40, 21, 1])
    together = attention(q, k, v, mask=Padding.lengths(lengths, 40), backend="triton")
    for b, length in enumerate(lengths.tolist()):
        alone = attention(
            q[b : b + 1], k[b : b + 1, :, :length], v[b : b + 1, :, :length], mask=Full(), backend="triton"
        )
        assert torch.equal(together[b : b + 1], alone)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between batch entries, heads and rows. 4 GiB a tensor, of which memory is only taken where something lies."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    shape = (3, 3, 3, 16)
    strides = [48 * 3, 48, 16, 1]
    strides[axis] = 1 << 30
    far = [torch.empty_strided(shape, strides, dtype=torch.float16) for _ in range(3)]
    assert (shape[axis] - 1) * strides[axis] > 2**31 - 1
    near = [torch.randn(shape, generator=torch.Generator().manual_seed(n)).half() for n in range(3)]
    for a, b in zip(far, near, strict=True):
        a.copy_(b)
    got, right = (cases.kernels(Causal(), {"q": q, "k": k, "v": v, "do": near[0]}, None) for q, k, v in (far, near))
    assert all(torch.equal(got[name], right[name]) for name in right)


def test_diagonals_of_blocks() -> None:
    """By hand: 3 x 2 blocks of 16, of which the causal mask (Lq 40, Lk 24) leaves a tile of each kind."""
    lists = blocks.lower(Full(), 33, 32, 16, 16)
    found = by_diagonal(lists)
    assert found.start.tolist() == [[0, 1, 3, 5, 6]] and found.full_end.tolist() == [[1, 3, 5, 6]]
    assert found.column.tolist() == [2, 1, 2, 0, 1, 0] and found.tile.tolist() == [-1] * 6
    lists = blocks.lower(Causal() | Global((0,)), 33, 33, 16, 16)
    found = by_diagonal(lists)
    assert found.start.tolist() == [[0, 1, 3, 6, 7, 8]]
    assert found.full_end.tolist() == [[1, 3, 3, 6, 7]]
    assert found.column.tolist() == [2, 1, 2, 0, 1, 2, 0, 0]


def test_sums_along_diagonals() -> None:
    """Every tile's entry counts its own place: each distance gets the sum of the places that have it."""
    lq, lk, block = 5, 7, 4
    whole = torch.zeros(8, 8)
    whole[:lq, :lk] = torch.arange(1.0, 36.0).view(lq, lk)
    tiles = whole.unflatten(0, (2, block)).unflatten(2, (2, block)).transpose(1, 2)
    sums = torch.stack([tiles[1, 0], tiles[0, 0] + tiles[1, 1], tiles[0, 1]])[None]
    expected = torch.stack([whole[:lq, :lk].diagonal(d).sum() for d in range(1 - lq, lk)])
    assert torch.equal(by_distance(sums, lq, lk), expected[None])


@pytest.mark.parametrize("size, expected", {
    4: (16, 0), 16: (16, 0), 20: (32, 0), 40: (32, 16), 48: (32, 16), 64: (64, 0), 80: (64, 16), 96: (64, 32), 97: (128, 0),
    128: (128, 0), 129: (128, 16), 192: (128, 64), 193: (256, 0), 256: (256, 0),
}.items())  # fmt: skip
def test_parts_of_a_head(size: int, expected: tuple[int, int]) -> None:
    assert launch.parts(size) == expected


REFUSED = {
    "head_dim": ({"d": 257}, {}, "takes head_dims up to 256, not 257"),
    "weights": ({}, {"return_weights": True}, "never holds the weights"),
}


@pytest.mark.parametrize("sizes, options, reason", REFUSED.values(), ids=REFUSED.keys())
def test_refusals(sizes: dict[str, int], options: dict[str, Any], reason: str) -> None:
    q = torch.zeros(1, 1, 2, sizes.get("d", 8))
    with pytest.raises(ValueError, match=f"backend 'triton' {reason}.*these can: reference"):
        attention(q, q, q, mask=Full(), backend="triton", **options)


def test_refusals_outside_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attention.kernels.INTERPRETED", False)
    q = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="runs on a GPU, not on cpu .there only in Triton's interpreter"):
        attention(q, q, q, mask=Full(), backend="triton")
    with pytest.raises(ValueError, match="computes fp64 in Triton's interpreter alone"):
        attention(q.double(), q.double(), q.double(), mask=Full(), backend="triton")
    monkeypatch.setattr("common.attention.backends.triton.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs triton, which is not installed"):
        attention(q, q, q, mask=Full(), backend="triton")


def test_t5_in_a_batch_sums_over_it() -> None:
    """The table's gradient for two copies is twice that for one."""
    mask = Causal() | Global((0,))
    table = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    one, two = [], []
    for found, copies in ((one, 1), (two, 2)):
        q, k, v = (t.repeat(copies, 1, 1, 1) for t in _qkv())
        out = attention(q, k, v, mask=mask, backend="triton", bias=T5Bias(table, bidirectional=False, max_distance=30))
        found += torch.autograd.grad(out.square().sum(), table)
    torch.testing.assert_close(two[0], 2 * one[0])


def _qkv() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    return q, k, v
