"""The rule that backends are accepted by: a right one passes, and none that loses a single key of hundreds."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from common.attention import Attended, Padding, Window
from common.attention.backends import chunked, reference
from common.attention.request import Request
from tests.common.attention.plain import plain
from tests.common.attention.properties import assert_within_gate, doubled, inputs

LENGTH = 256
ALL_KEYS = Window(LENGTH, LENGTH)


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ten times as large as usual, so that no bound on the error itself would do."""
    q, k, v, do = inputs(LENGTH, batch=1, heads=2, kv=2, d=64, dv=64, dtype=dtype)
    return q, k, v * 10, do


def losing(key: int) -> Callable[[Request], Attended]:
    keep = torch.arange(LENGTH)[None] != key
    return lambda r: reference.attend(replace(r, mask=r.mask & Padding(keep)))


def losing_a_gradient(name: str, row: int) -> Callable[[Request], Attended]:
    """Right but for the gradient of one row of q, k or v, which is zero."""
    here = (torch.arange(LENGTH) == row)[:, None]

    def attend(r: Request) -> Attended:
        tensor = getattr(r, name)
        return reference.attend(replace(r, **{name: torch.where(here, tensor.detach(), tensor)}))

    return attend


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_right_one_passes(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "attend", reference.attend)
    assert_within_gate("chunked", tensors(dtype), ALL_KEYS)


FAULTS: dict[str, tuple[Callable[[Request], Attended], str]] = {
    "last key": (losing(LENGTH - 1), "output"),
    "a key within": (losing(100), "output"),
    "gradient of a query": (losing_a_gradient("q", 3), "dq"),
    "gradient of the last key": (losing_a_gradient("k", LENGTH - 1), "dk"),
    "gradient of a value": (losing_a_gradient("v", 100), "dv"),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("fault", "where"), FAULTS.values(), ids=FAULTS.keys())
def test_one_that_loses_a_row_fails(
    fault: Callable[[Request], Attended], where: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "attend", fault)
    with pytest.raises(AssertionError, match=f"^{where} of Window.* in {dtype}: "):
        assert_within_gate("chunked", tensors(dtype), ALL_KEYS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_twice_the_usual_error_is_the_bound(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(times: float) -> Callable[[Request], Attended]:
        """So many times as far from fp64 as attention in its plain form is, gradients too."""

        def attend(r: Request) -> Attended:
            everything, wide = torch.tensor(True), doubled(r.q, r.k, r.v)
            exact, usual = (plain(*qkv, everything, scale=r.scale).double() for qkv in (wide, (r.q, r.k, r.v)))
            return Attended((exact + times * (usual - exact)).to(r.q.dtype))

        return attend

    monkeypatch.setattr(chunked, "attend", of(1.5))
    assert_within_gate("chunked", tensors(dtype), ALL_KEYS)
    monkeypatch.setattr(chunked, "attend", of(2.5))
    with pytest.raises(AssertionError, match="^output of "):
        assert_within_gate("chunked", tensors(dtype), ALL_KEYS)
