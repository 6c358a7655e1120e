"""The public function: what it refuses and says, whom it asks, and parts of keys put together."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from common.attention import (
    BACKENDS,
    Alibi,
    Attended,
    Blocks,
    Causal,
    Full,
    Packed,
    Padding,
    RelativeBias,
    T5Bias,
    Window,
    alibi_slopes,
    attention,
    merge,
    unsupported,
)
from common.attention.backends import chunked, reference
from common.attention.request import Request
from tests.common.attention.properties import inputs
from tests.common.attention.test_masks import written

Q, K = torch.zeros(2, 4, 3, 8), torch.zeros(2, 2, 5, 8)

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such backend": (
        {"backend": "fastest"},
        "backend: got 'fastest', expected one of reference, sdpa, flex, chunked, triton",
    ),
    "rank 3": ({"q": Q[0]}, r"q: got shape \(4, 3, 8\), expected \(batch, heads, time, head_dim\)"),
    "rank 5": ({"v": K[None]}, r"v: got shape \(1, 2, 2, 5, 8\), expected"),
    "rank 0": ({"k": torch.zeros(())}, r"k: got shape \(\), expected"),
    "all rank 0": ({"q": torch.zeros(()), "k": torch.zeros(())}, r"q: got shape \(\), expected"),
    "integers": ({"q": Q.long()}, "q: got torch.int64 .* expected one dtype of fp16, bf16, fp32, fp64"),
    "integers throughout": ({"q": Q.int(), "k": K.int(), "v": K.int()}, "q: got torch.int32 .* expected one dtype"),
    "8 bits": ({"q": Q.to(torch.float8_e4m3fn)}, "q: got torch.float8_e4m3fn .* expected one dtype"),
    "complex numbers": ({"v": K.to(torch.complex64)}, "v: got torch.complex64 .* expected one dtype"),
    "two dtypes": ({"k": K.double()}, r"k: got torch.float64 \(q: torch.float32\), expected one dtype"),
    "two devices": ({"v": K.to("meta")}, "v: got meta, expected cpu as q"),
    "two batches": ({"k": K[:1], "v": K[:1]}, r"got \(2, 4, 3, 8\), \(1, 2, 5, 8\) and .* expected the same batch"),
    "k and v of different time": (
        {"v": K[:, :, :4]},
        r"and \(2, 2, 4, 8\), expected .* k and v of the same heads and time",
    ),
    "k and v of different heads": (
        {"v": K[:, :1]},
        r"and \(2, 1, 5, 8\), expected .* k and v of the same heads and time",
    ),
    "two head_dims": ({"k": K[..., :4]}, "head_dim of q and k: got 8 and 4, expected the same, 1 or more"),
    "head_dim 0": (
        {"q": Q[..., :0], "k": K[..., :0]},
        "head_dim of q and k: got 0 and 0, expected the same, 1 or more",
    ),
    "head_dim 0 of v": ({"v": K[..., :0]}, "head_dim of v: got 0, expected 1 or more"),
    "no heads of q": (
        {"q": Q[:, :0]},
        "heads: got 0 of q and 2 of k and v, expected these to divide those, 1 or more of each",
    ),
    "no heads of k": (
        {"k": K[:, :0], "v": K[:, :0]},
        "heads: got 4 of q and 0 of k and v, expected these to divide those",
    ),
    "a tensor as mask": (
        {"mask": torch.ones(3, 5)},
        r"mask: got Tensor, expected a Mask such as Causal\(\), Padding\(keep\) or Blocks\(table, block\)",
    ),
    "no mask": ({"mask": None}, r"mask: got NoneType, expected a Mask such as Causal\(\)"),
    "a mask that is not made yet": ({"mask": Causal}, r"mask: got ABCMeta, expected a Mask such as Causal\(\)"),
    "padding of other keys": ({"mask": Padding(written("1111", "1110"))}, "Padding: got a mask of 4 keys, expected 5"),
    "padding of another batch": (
        {"mask": Padding(written("11111", "11111", "11111"))},
        "got 3 for batch, expected 1 or 2",
    ),
    "packed for as many queries as keys": (
        {"mask": Packed.lengths(torch.tensor([2, 3]))},
        "Packed: got segments of 5 queries and 5 keys, expected 3 and 5",
    ),
    "too few blocks": (
        {"mask": Blocks(written("1", "1"), 2)},
        r"Blocks of 2: got a table of \(2, 1\) blocks, expected \(2, 3\)",
    ),
    "a number as bias": (
        {"bias": 1.0},
        "bias: got float, expected a tensor, or a RelativeBias such as Alibi or T5Bias",
    ),
    "bias of rank 0": ({"bias": torch.tensor(1.0)}, r"bias: got shape \(\), expected \(2, 4, 3, 5\)"),
    "bias of rank 3": (
        {"bias": torch.zeros(4, 3, 5)},
        r"bias: got shape \(4, 3, 5\), expected \(2, 4, 3, 5\) with any size 1",
    ),
    "bias of other keys": (
        {"bias": torch.zeros(1, 1, 3, 4)},
        r"bias: got shape \(1, 1, 3, 4\), expected \(2, 4, 3, 5\)",
    ),
    "bias by key head": ({"bias": torch.zeros(1, 2, 3, 5)}, r"bias: got shape \(1, 2, 3, 5\), expected \(2, 4, 3, 5\)"),
    "bool bias": (
        {"bias": torch.ones(1, 1, 3, 5, dtype=torch.bool)},
        "bias: got torch.bool, expected floating point; what may be seen is for mask=",
    ),
    "bias of integers": (
        {"bias": torch.ones(1, 1, 3, 5, dtype=torch.int64)},
        "bias: got torch.int64, expected floating",
    ),
    "bias elsewhere": ({"bias": torch.zeros(1, 1, 3, 5, device="meta")}, "bias: got meta, expected cpu as q"),
    "slopes of other heads": ({"bias": Alibi(alibi_slopes(2))}, "bias: got one of 2 heads, expected 4"),
    "table of other heads": ({"bias": T5Bias(torch.zeros(8, 2), True, 16)}, "bias: got one of 2 heads, expected 4"),
    "scale NaN": ({"scale": math.nan}, "scale: got nan, expected a finite number, 0 or more"),
    "scale without end": ({"scale": math.inf}, "scale: got inf, expected a finite number, 0 or more"),
    "scale below 0": ({"scale": -0.5}, "scale: got -0.5, expected a finite number, 0 or more"),
    "scale to be learned": ({"scale": torch.ones((), requires_grad=True)}, "scale: got 1.0, expected a finite number"),
    "NaN dropped": ({"dropout_p": math.nan}, "dropout_p: got nan, expected from 0 to below 1"),
    "all dropped": ({"dropout_p": 1.0}, "dropout_p: got 1.0, expected from 0 to below 1"),
    "less than none": ({"dropout_p": -0.1}, "dropout_p: got -0.1, expected from 0 to below 1"),
    "negative seed": ({"dropout_seed": -1}, r"dropout_seed: got -1, expected an integer from 0 to below 2\^63"),
    "seed that is no integer": ({"dropout_seed": 1.5}, "dropout_seed: got 1.5, expected an integer"),
    "seed of 64 bits": ({"dropout_seed": 1 << 63}, r"dropout_seed: got 9223372036854775808, expected"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_refused(backend: str, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch):
    """Whatever the backend, and before it is asked anything."""
    for name in ("attend", "unsupported"):
        monkeypatch.setattr(f"common.attention.backends.{backend}.{name}", lambda r: pytest.fail("asked all the same"))
    arguments: dict[str, Any] = {"q": Q, "k": K, "v": K, "mask": Full(), "backend": backend} | changes
    q, k, v = (arguments.pop(name) for name in "qkv")
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, **arguments)


def test_autocast_makes_no_numbers_of_integers():
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="q: got torch.int64"):
        attention(Q.long(), K.long(), K.long(), mask=Full(), backend="reference")


def test_a_table_goes_where_the_distances_are():
    """As slopes do: to the device of the queries, whatever its own."""
    with FakeTensorMode():
        for bias in (T5Bias(torch.zeros(8, 4, device="cuda"), True, 16), Alibi(torch.zeros(4, device="cuda"))):
            assert bias.vector(3, 5, "cpu").device == torch.device("cpu")


def test_without_triton_all_else_works():
    """As on macOS and Windows, where it can't be installed."""
    code = """
import sys
sys.modules["triton"] = None  # as if it were not installed
import torch
from common.attention import Causal, attention
q = torch.randn(1, 2, 5, 8)
for backend in ("reference", "sdpa", "chunked"):
    assert attention(q, q, q, mask=Causal(), backend=backend).shape == q.shape
try:
    attention(q, q, q, mask=Causal(), backend="triton")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    reason = "backend 'triton' needs triton, which is not installed (it exists for Linux alone); these can: reference, "
    assert done.stdout.startswith(reason) and "chunked" in done.stdout


@pytest.mark.parametrize(("heads", "kv"), [(5, 2), (17, 2), (8, 3), (2, 4)])
def test_key_heads_that_do_not_divide_are_refused(heads: int, kv: int):
    q, k = torch.zeros(1, heads, 4, 8), torch.zeros(1, kv, 4, 8)
    with pytest.raises(
        ValueError, match=f"heads: got {heads} of q and {kv} of k and v, expected these to divide those"
    ):
        attention(q, k, k, mask=Full(), backend="reference")


@pytest.mark.parametrize(("heads", "kv"), [(8, 2), (8, 1), (8, 8)])
def test_key_heads_that_divide_are_taken(heads: int, kv: int):
    q, k = torch.zeros(1, heads, 4, 8), torch.zeros(1, kv, 4, 8)
    assert attention(q, k, k, mask=Full(), backend="reference").shape == (1, heads, 4, 8)  # type: ignore[union-attr]


def request(**changes: Any) -> Request:
    q, k, v, _ = inputs(3)
    made: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": Full(), "bias": None, "scale": 1.0, "dropout_p": 0.0}
    made |= {"seed": 0, "return_lse": False, "return_weights": False}
    return Request(**made | changes)


def test_what_a_backend_cannot_do_is_refused_with_those_that_can(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("common.attention.BACKENDS", ("reference", "sdpa", "chunked"))
    q, k, v, _ = inputs(3)
    message = "^backend 'chunked' never holds the whole of the weights; these can: reference$"
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, mask=Full(), backend="chunked", return_weights=True)
    with pytest.raises(
        ValueError, match="backend 'sdpa' draws its own random numbers .*; these can: reference, chunked"
    ):
        attention(q, k, v, mask=Full(), backend="sdpa", dropout_p=0.1)


def test_nothing_is_computed_where_a_backend_refuses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("common.attention.BACKENDS", ("reference", "chunked"))
    monkeypatch.setattr(chunked, "attend", lambda r: pytest.fail("asked all the same"))
    monkeypatch.setattr(reference, "attend", lambda r: pytest.fail("something else was put in its place"))
    with pytest.raises(ValueError, match="backend 'chunked'"):
        attention(*inputs(3)[:3], mask=Full(), backend="chunked", return_weights=True)


def test_a_backend_is_asked_by_its_name_alone(monkeypatch: pytest.MonkeyPatch):
    asked: list[Request] = []

    def attend(r: Request) -> Attended:
        asked.append(r)
        return Attended(r.q, r.q[..., 0])

    monkeypatch.setattr(chunked, "attend", attend)
    q, k, v, _ = inputs(3)
    out = attention(q, k, v, mask=Causal(), backend="chunked", scale=0.5, dropout_p=0.25, dropout_seed=9)
    assert out is q and asked[0].q is q and asked[0].k is k and asked[0].v is v
    assert (asked[0].scale, asked[0].dropout_p, asked[0].seed, asked[0].mask) == (0.5, 0.25, 9, Causal())
    answer = attention(q, k, v, mask=Causal(), backend="chunked", return_lse=True)
    assert isinstance(answer, Attended) and answer.output is q and asked[1].scale == 8**-0.5 and asked[1].return_lse


def test_the_answer_holds_what_was_asked_for():
    q, k, v, _ = inputs(3)
    assert isinstance(attention(q, k, v, mask=Full(), backend="reference"), Tensor)
    answer = attention(q, k, v, mask=Full(), backend="reference", return_lse=True)
    assert isinstance(answer, Attended) and answer.lse is not None and answer.weights is None
    answer = attention(q, k, v, mask=Full(), backend="reference", return_weights=True)
    assert isinstance(answer, Attended) and answer.lse is None and answer.weights is not None


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("cuts", [[37], [20, 17], [1, 35, 1], [0, 37]])
def test_merged_ranges_of_keys_are_the_whole(backend: str, cuts: list[int]):
    """Window(9, 0) of 37 queries leaves many of them nothing in a range; two of them see nothing at all."""
    q, k, v, _ = inputs(37, dtype=torch.float64)
    allowed = Window(9, 0).dense(37, 37)
    allowed[[3, 30]] = False
    parts, first = [], 0
    for size in cuts:
        here = slice(first, first + size)
        mask = _elementwise(allowed[:, here])
        parts.append(attention(q, k[:, :, here], v[:, :, here], mask=mask, backend=backend, return_lse=True))
        first += size
    merged = merge(parts)  # type: ignore[arg-type]
    whole = attention(q, k, v, mask=_elementwise(allowed), backend="reference", return_lse=True)
    assert isinstance(whole, Attended) and merged.lse is not None and whole.lse is not None
    torch.testing.assert_close(merged.output, whole.output, atol=1e-12, rtol=0)
    torch.testing.assert_close(merged.lse, whole.lse)
    assert bool((merged.output[:, :, [3, 30]] == 0).all()) and bool((merged.lse[:, :, [3, 30]] == -torch.inf).all())


def _elementwise(allowed: Tensor) -> Blocks:
    return Blocks(allowed, 1)


def test_merging_keeps_the_dtype_and_passes_no_gradient():
    q, k, v, _ = inputs(5, dtype=torch.bfloat16)
    part = attention(q.requires_grad_(), k, v, mask=Full(), backend="reference", return_lse=True)
    assert isinstance(part, Attended)
    merged = merge([part, part])
    assert merged.output.dtype == torch.bfloat16 and merged.lse is not None and merged.lse.dtype == torch.float32
    assert not merged.output.requires_grad, "the share of a part depends on q, and no gradient flows through lse"


def test_merging_needs_lse():
    with pytest.raises(ValueError, match="merge: got a part without lse, expected return_lse=True"):
        merge([Attended(torch.zeros(1, 1, 2, 3))])


@pytest.mark.parametrize("bias", [Alibi(alibi_slopes(4)), T5Bias(torch.randn(8, 4), True, 16)], ids=["alibi", "t5"])
@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_a_bias_by_distance_is_its_dense_form(backend: str, bias: RelativeBias):
    q, k, v, _ = inputs(20, 33)
    one = attention(q, k, v, mask=Window(15, 15), backend=backend, bias=bias)
    other = attention(q, k, v, mask=Window(15, 15), backend="reference", bias=bias.dense(20, 33))
    assert isinstance(one, Tensor) and isinstance(other, Tensor)
    torch.testing.assert_close(one, other)


def test_every_backend_answers_what_it_can_not_do():
    for backend in BACKENDS:
        reason = unsupported(request(return_weights=True), backend)
        assert (reason is None) == (backend == "reference")
        assert reason is None or (reason[0].islower() and not reason.endswith("."))


def test_the_table_is_printed():
    """A line a backend and mask, reasons below; no GPU is needed."""
    done = subprocess.run(
        [sys.executable, "-m", "common.attention"], capture_output=True, text=True, check=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["mask", *(f for d in ("cpu", "cuda") for t in _DTYPES for f in (d, t))]
    for backend in BACKENDS:
        assert sum(line.startswith(f"{backend}: ") for line in lines) == 10
    assert next(line for line in lines if line.startswith("chunked: Packed")).split()[-8:] == ["yes"] * 8
    assert next(line for line in lines if line.startswith("flex: Causal ")).split()[-5] != "yes", "fp64 on a CPU"
    assert any(line.endswith("'flex' has no backward pass on a CPU") for line in lines)


_DTYPES = ("float16", "bfloat16", "float32", "float64")
