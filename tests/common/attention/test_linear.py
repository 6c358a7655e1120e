"""Linear attention against its scores written out in fp64."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention.linear import State, linear_attention
from common.bench import peak_bytes


def problem(lq: int, lk: int, log: bool, seed: int = 0, features: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, n, features, generator=draw, dtype=torch.float64) for n in (lq, lk))
    v = torch.randn(2, 3, lk, 4, generator=draw, dtype=torch.float64)
    return (q, k, v) if log else (q.abs() + 0.1, k.abs() + 0.1, v)


def written_out(q: Tensor, k: Tensor, v: Tensor, causal: bool, log: bool, real: Tensor | None = None) -> Tensor:
    """All scores at once; of logarithms, by a sum of exponents over features."""
    scores = (q[..., :, None, :] + k[..., None, :, :]).logsumexp(-1) if log else (q @ k.mT).log()
    if causal:
        scores = scores.masked_fill(~torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(), -torch.inf)
    if real is not None:
        scores, v = scores.masked_fill(~real[:, None, None], -torch.inf), v.masked_fill(~real[:, None, :, None], 0.0)
    return scores.softmax(-1).nan_to_num(0.0) @ v


@pytest.mark.parametrize("log", [True, False], ids=["logarithms", "features"])
@pytest.mark.parametrize(("causal", "chunk"), [(False, 128), (True, 1), (True, 3), (True, 128)])
@pytest.mark.parametrize(("lq", "lk"), [(1, 1), (7, 7), (10, 10), (3, 9)])
def test_outputs_and_gradients(lq: int, lk: int, causal: bool, chunk: int, log: bool) -> None:
    if causal and lq != lk:
        lq = lk
    inputs = q, k, v = tuple(x.requires_grad_() for x in problem(lq, lk, log))
    expected = written_out(q, k, v, causal, log)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = linear_attention(q, k, v, causal=causal, log=log, chunk=chunk).output
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)
    for got, wanted in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, atol=1e-11, rtol=1e-9)


@pytest.mark.parametrize("log", [True, False], ids=["logarithms", "features"])
@pytest.mark.parametrize("parts", [[1] * 9, [4, 0, 5], [9]], ids=["token by token", "two and nothing", "at once"])
def test_a_state_goes_on_where_it_was(log: bool, parts: list[int]) -> None:
    q, k, v = problem(9, 9, log)
    state, found = None, []
    for some in zip(*(x.split(parts, 2) for x in (q, k, v)), strict=True):
        output, state = linear_attention(*some, causal=True, log=log, state=state, chunk=2)
        found.append(output)
    torch.testing.assert_close(torch.cat(found, 2), written_out(q, k, v, True, log), atol=1e-12, rtol=1e-10)
    assert isinstance(state, State) and state.sums.shape == (2, 3, 5, 5)


@pytest.mark.parametrize("log", [True, False], ids=["logarithms", "features"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_takes_no_part_whatever_it_holds(causal: bool, log: bool) -> None:
    """The second sample has no real key at all."""
    q, k, v = problem(8, 8, log)
    real = torch.tensor([[False, True, True, False, True, True, True, False], [False] * 8])
    expected = written_out(q, k, v, causal, log, real)
    assert not expected[1].any()
    for worst in (torch.nan, torch.inf, 1e30):
        dirty = [x.masked_fill(~real[:, None, :, None], worst) for x in (k, v)]
        found = linear_attention(q, *dirty, causal=causal, log=log, real=real, chunk=3).output
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_logarithms_of_any_size_are_exact(causal: bool) -> None:
    """exp(700) is beyond fp64 and exp(90) beyond fp32: scores of 10 000 are, too."""
    q, k, v = problem(20, 20, True)
    q, k = 300 * q, 300 * k + 5000
    expected = written_out(q, k, v, causal, True)
    torch.testing.assert_close(
        linear_attention(q, k, v, causal=causal, log=True, chunk=1).output, expected, atol=1e-12, rtol=1e-10
    )
    single = linear_attention(q.float(), k.float(), v.float(), causal=causal, log=True, chunk=1).output
    assert single.dtype == torch.float32 and (single - expected).abs().max() < 5e-3  # a float has 10 000 to 1e-3


def test_what_follows_changes_nothing() -> None:
    q, k, v = problem(12, 12, True)
    before = linear_attention(q, k, v, causal=True, log=True, chunk=4).output
    k, v = k.clone(), v.clone()
    k[:, :, 9:], v[:, :, 9:] = 50.0, -7.0
    after = linear_attention(q, k, v, causal=True, log=True, chunk=4).output
    assert torch.equal(before[:, :, :8], after[:, :, :8])
    torch.testing.assert_close(before[:, :, 8:9], after[:, :, 8:9], atol=1e-9, rtol=1e-9)
    assert not torch.allclose(before[:, :, 9:], after[:, :, 9:])


def test_half_precision_is_summed_in_fp32() -> None:
    """2,000 ones are 256 in bf16 if summed there."""
    ones = torch.ones(1, 1, 2000, 1, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_attention(ones, ones, ones, causal=True)
    assert found.output.dtype == torch.bfloat16 and torch.equal(found.output, ones)
    assert found.state.sums.dtype == torch.float32 and found.state.sums.flatten().tolist() == [2000.0, 2000.0]


@pytest.mark.parametrize("causal", [False, True])
def test_autocast_changes_nothing(causal: bool) -> None:
    q, k, v = (x.float() for x in problem(9, 9, False))
    with torch.autocast("cpu", torch.bfloat16):
        under = linear_attention(q, k, v, causal=causal)
    expected = linear_attention(q, k, v, causal=causal)
    assert torch.equal(under.output, expected.output) and torch.equal(under.state.sums, expected.state.sums)


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear_and_has_no_prefix_sums_of_every_token(causal: bool) -> None:
    sizes, features, width = (2048, 4096), 64, 32
    peaks = []
    for length in sizes:
        q, k, v = (torch.rand(1, 1, length, n, requires_grad=True) for n in (features, features, width))
        call = partial(linear_attention, causal=causal)
        peaks.append(peak_bytes(lambda q, k, v, call=call: call(q, k, v).output.sum().backward(), [q, k, v]))
    assert peaks[1] / peaks[0] == pytest.approx(2, rel=0.1)
    assert peaks[1] < sizes[1] * features * width * 4 / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"q": torch.ones(2, 3, 4, 5)},
            r"q: got \(2, 3, 4, 5\), expected \(2, 3, 6, 5\) to go with k .* in a causal text",
        ),
        ({"q": torch.ones(3, 6, 5)}, r"q: got torch.float32 \(3, 6, 5\), expected floating point"),
        ({"v": torch.ones(2, 3, 5, 4)}, r"v: got \(2, 3, 5, 4\), expected \(2, 3, 6, 4\)"),
        ({"k": torch.ones(2, 3, 6, 5, dtype=torch.int64)}, "k: got torch.int64"),
        ({"q": torch.ones(2, 3, 6, 0), "k": torch.ones(2, 3, 6, 0)}, "got no features"),
        ({"real": torch.ones(2, 6)}, "real: got torch.float32"),
        ({"real": torch.ones(2, 5, dtype=torch.bool)}, r"expected bool \(2, 6\)"),
        ({"chunk": 0}, "chunk: got 0"),
        ({"v": torch.ones(2, 3, 6, 4, device="meta")}, "v: got meta, expected cpu as q"),
        ({"backend": "cuda"}, "backend: got 'cuda', expected one of reference, triton"),
        ({"state": State(torch.zeros(2, 3, 5, 5), torch.zeros(2, 3, 5))}, "state: got one of logarithms"),
        ({"state": State(torch.zeros(2, 3, 5, 4), None)}, r"expected \(2, 3, 5, 5\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"q": torch.ones(2, 3, 6, 5), "k": torch.ones(2, 3, 6, 5), "v": torch.ones(2, 3, 6, 4), "causal": True}
    with pytest.raises(ValueError, match=message):
        linear_attention(**given | changes)


def test_triton_missing_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attention.backends.triton.find_spec", lambda name: None)
    q, k, v = problem(3, 3, False)
    with pytest.raises(ValueError, match="backend 'triton' needs triton, which is not installed .*: reference"):
        linear_attention(q, k, v, backend="triton")


def test_a_chunk_is_of_128_unless_given() -> None:
    q, k, v = problem(200, 200, True)
    found, expected = (linear_attention(q, k, v, causal=True, log=True, chunk=chunk).output for chunk in (None, 128))
    assert torch.equal(found, expected)
