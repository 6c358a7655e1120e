"""Additive attention's reference and the public function: a case worked by hand, fp64, and what is refused."""

# pyright: reportArgumentType=false
import math

import pytest
import torch
from torch import Tensor

from common.attention.additive import additive_attention
from tests.common.attention.plain_additive import assert_as_exact_as_plain, d_out_of, inputs, passes


def attend(*given: Tensor) -> Tensor:
    *tensors, mask = given
    return additive_attention(*tensors, mask=mask, backend="reference")  # type: ignore[call-arg]


def test_by_hand() -> None:
    # v = 1: scores tanh(0.5), tanh(-0.5) = -tanh(0.5) and one masked; the values 1 and 0 show the first weight
    query, keys = torch.tensor([[[0.5]]]), torch.tensor([[[0.0], [-1.0], [3.0]]])
    values, mask = torch.tensor([[[1.0], [0.0], [9.0]]]), torch.tensor([[True, True, False]])
    context = attend(query, keys, values, torch.ones(1), mask)
    assert context.item() == pytest.approx(1 / (1 + math.exp(-2 * math.tanh(0.5))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_against_fp64(dtype: torch.dtype) -> None:
    assert_as_exact_as_plain(attend, inputs((2, 5, 7, 6, 3), dtype))


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_a_masked_word_takes_no_part(garbage: float) -> None:
    query, keys, values, v, mask = inputs((3, 4, 5, 6, 3))
    mask[2] = False
    clean = passes(attend, (query, keys, values, v, mask), d_out_of((query, keys, values)))
    dirty = (query.clone(), keys.clone(), values.clone(), v, mask)
    dirty[0][2], dirty[1][~mask], dirty[2][~mask] = garbage, garbage, garbage
    for name, tensor in passes(attend, dirty, d_out_of(dirty)).items():
        assert torch.equal(tensor, clean[name]), name
    assert (clean["context"][2] == 0).all() and (clean["query"][2] == 0).all()
    assert (clean["keys"][~mask] == 0).all() and (clean["values"][~mask] == 0).all()


def test_under_autocast_the_inputs_are_cast() -> None:
    given = inputs((2, 3, 4, 5, 6))
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(*given)
    assert context.dtype == torch.bfloat16
    assert torch.equal(context, attend(*(t.bfloat16() for t in given[:4]), given[4]))


def test_autocast_makes_no_numbers_of_integers() -> None:
    query, keys, values, v, mask = inputs((2, 3, 4, 5, 6))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="keys: got torch.int64"):
        attend(query, keys.long(), values, v, mask)


REFUSED = {
    "rank of the query": ({"query": torch.zeros(3, 5)}, r"query: got shape \(3, 5\), expected \(batch, steps, A\)"),
    "rank of v": ({"v": torch.zeros(1, 5)}, r"v: got shape \(1, 5\), expected \(A,\)"),
    "keys of another batch": ({"keys": torch.zeros(1, 4, 5)}, r"keys: got shape \(1, 4, 5\), expected \(2, 4, 5\)"),
    "keys of another size": ({"keys": torch.zeros(2, 4, 6)}, r"keys: got shape \(2, 4, 6\), expected \(2, 4, 5\)"),
    "values of another length": ({"values": torch.zeros(2, 3, 6)}, r"values: got shape .* expected \(2, 4, 6\)"),
    "v of another size": ({"v": torch.zeros(6)}, r"v: got shape \(6,\), expected \(5,\)"),
    "mask of another length": ({"mask": torch.ones(2, 5) > 0}, r"mask: got shape \(2, 5\), expected \(2, 4\)"),
    "an additive mask": ({"mask": torch.zeros(2, 4)}, "mask: got torch.float32, expected torch.bool"),
    "two dtypes": ({"v": torch.zeros(5).double()}, r"v: got torch.float64 \(query: torch.float32\)"),
    "integers": ({"query": torch.zeros(2, 3, 5, dtype=torch.int64)}, "query: got torch.int64"),
    "another device": ({"keys": torch.zeros(2, 4, 5, device="meta")}, "keys: got meta, expected cpu"),
    "a backend that is none": ({"backend": "cuda"}, "backend: got 'cuda', expected one of reference, triton"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(change: dict, message: str) -> None:
    names = ("query", "keys", "values", "v", "mask")
    given = dict(zip(names, inputs((2, 3, 4, 5, 6)), strict=True)) | {"backend": "reference"} | change
    with pytest.raises(ValueError, match=message):
        additive_attention(**given)


def test_no_size_at_all_is_refused() -> None:
    query, keys, values, _, mask = inputs((2, 3, 4, 5, 6))
    with pytest.raises(ValueError, match="query: got a last axis of 0"):
        attend(query[..., :0], keys[..., :0], values, torch.zeros(0), mask)


def test_triton_missing_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attention.additive.find_spec", lambda name: None)
    *given, mask = inputs((2, 3, 4, 5, 6))
    with pytest.raises(ValueError, match="backend 'triton' needs the package triton.*: reference"):
        additive_attention(*given, mask=mask, backend="triton")  # type: ignore[call-arg]
