"""The kernels of linear attention under Triton's interpreter, against scores written out in fp64."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from common.attention.kernels import configurations
from common.attention.kernels.configurations import Tile
from common.attention.linear import State, linear_attention
from tests.common.attention import plain_linear
from tests.common.attention.kernels.cases import poisoned_memory
from tests.common.attention.kernels.largest import Largest
from tests.common.attention.plain import relative_rms
from tests.common.attention.plain_linear import Case, allowed, inputs, plain

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
TABLE, CHUNKS = configurations.LINEAR, configurations.LINEAR_CHUNKS
KINDS = pytest.mark.parametrize("log", [False, True], ids=["features", "logarithms"])


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, features and values by 16: most sizes of the cases are two of these and a part of a third."""
    monkeypatch.setattr(configurations, "LINEAR_CHUNKS", dict.fromkeys(CHUNKS, 16))
    monkeypatch.setattr(configurations, "LINEAR", dict.fromkeys(TABLE, Tile(16, 16, 4, 1)))


CASES = [
    Case(True, False, SINGLE, padded=True),
    Case(True, True, SINGLE, padded=True),
    Case(False, False, SINGLE, lq=17, padded=True, layout="time before heads"),
    Case(False, True, SINGLE, lk=33, padded=True, layout="features first"),
    Case(True, False, HALF),
    Case(True, True, HALF, m=16),
    Case(False, False, HALF, lq=1, dv=16),
    Case(False, True, HALF, lq=20),
    Case(True, False, BRAIN, dv=33),
    Case(True, True, SINGLE, BRAIN, lq=33, lk=33, padded=True),  # as under autocast: features are wide
    Case(True, False, SINGLE, lq=1, lk=1, m=1, dv=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients(case: Case) -> None:
    with poisoned_memory():
        plain_linear.assert_within_gate(case, inputs(case, *((2, 1) if case.padded else (1, 2))))


@pytest.mark.parametrize(("log", "dtype"), [(False, HALF), (True, BRAIN)], ids=["features", "logarithms"])
def test_with_the_tiles_of_the_table(log: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "LINEAR_CHUNKS", CHUNKS)
    monkeypatch.setattr(configurations, "LINEAR", TABLE)
    case = Case(True, log, SINGLE if log else dtype, dtype, lq=200, lk=200, m=100, dv=70)
    plain_linear.assert_within_gate(case, inputs(case, 1, 1))


@KINDS
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_states_too(causal: bool, log: bool) -> None:
    """Of two parts of a text, where the second goes on from the first: by finite differences, along one direction. The sums
    of a state alone mean something where no logarithms are taken out of them."""
    given = inputs(Case(causal, log, DOUBLE, lq=20, lk=20, m=3, dv=2), 1, 1)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        first, state = linear_attention(q, k, v, causal=causal, log=log, backend="triton")
        q, k, v = (x[:, :, :3] for x in (q, k, v))
        second, state = linear_attention(q, k, v, causal=causal, log=log, state=state, backend="triton")
        return torch.cat((first, second), 2).square().sum() + (0 if log else state.sums.sin().sum())

    leaves = [given[name].requires_grad_() for name in "qkv"]
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True, atol=1e-8, rtol=1e-6)


@KINDS
@pytest.mark.parametrize("parts", [[1, 1, 1], [18, 0, 2]], ids=["token by token", "chunks and nothing"])
def test_a_state_goes_on_where_it_was(parts: list[int], log: bool) -> None:
    case = Case(True, log, DOUBLE, lq=sum(parts), lk=sum(parts), m=17, dv=3)
    given = inputs(case, 1, 1)
    state, known, found = None, None, []
    for q, k, v in zip(*(given[name].split(parts, 2) for name in "qkv"), strict=True):
        output, state = linear_attention(q, k, v, causal=True, log=log, state=state, backend="triton")
        known = linear_attention(q, k, v, causal=True, log=log, state=known).state
        found.append(output)
        torch.testing.assert_close(state, known, atol=1e-12, rtol=1e-12)
    expected = plain(given["q"], given["k"], given["v"], allowed(case, given["real"]), log)
    torch.testing.assert_close(torch.cat(found, 2), expected, atol=1e-12, rtol=1e-10)


def test_of_half_precision_the_state_is_wide() -> None:
    """300 ones are 256 in bf16 if summed there; a score of 250 squared, times as many keys, is beyond fp16."""
    for dtype, value in ((BRAIN, 1.0), (HALF, 250.0)):
        ones = torch.full((1, 1, 300, 1), value, dtype=dtype)
        output, state = linear_attention(ones, ones, ones, causal=True, backend="triton")
        assert output.dtype == dtype
        torch.testing.assert_close(output, ones, atol=0.0, rtol=torch.finfo(dtype).eps)
        assert state.sums.dtype == SINGLE and state.sums.flatten().tolist() == [300 * value * value, 300 * value]


@pytest.mark.parametrize("causal", [True, False])
def test_large_logarithms(causal: bool) -> None:
    """exp(90) is beyond fp32: keys around 5,000 and queries around -3,000, of which a float has 2.5e-4 at most."""
    case = Case(causal, True, SINGLE, lq=33, lk=33)
    given = inputs(case, 1, 1)
    given["q"], given["k"] = 4 * given["q"] - 3000, given["k"] + 5000
    exact = plain_linear.written_out(case, given, DOUBLE)
    for name, tensor in plain_linear.kernels(case, given).items():
        assert relative_rms(tensor, exact[name]) < 1e-3, name


def test_a_text_of_padding_leaves_the_state_as_it_was() -> None:
    """And asks the state; of gradients the one of v alone is made."""
    given = inputs(Case(True, True, DOUBLE, lq=3, lk=3, m=2, dv=2), 1, 1)
    state = linear_attention(given["q"], given["k"], given["v"], causal=True, log=True).state
    q, none = torch.zeros(1, 1, 18, 2, dtype=DOUBLE), torch.zeros(1, 18, dtype=torch.bool)
    k, v = (torch.full_like(q, torch.nan) for _ in range(2))
    output, after = linear_attention(
        q, k, v.requires_grad_(), causal=True, log=True, real=none, state=state, backend="triton"
    )
    asked = linear_attention(q, k[:, :, :0], v[:, :, :0], log=True, state=state).output
    torch.testing.assert_close((output, after), (asked, state))
    (gradient,) = torch.autograd.grad(output.sum(), [v])
    assert not gradient.any()


@pytest.mark.parametrize("causal", [True, False])
def test_signed_scores_whose_sum_is_zero_are_not_divided(causal: bool) -> None:
    """Scores of 1 and -1, of the second query or of all; a third key has none. Output and gradients are the reference's."""
    one = torch.ones(1, 1, 3, 1, dtype=DOUBLE)
    key, value = (torch.tensor(x, dtype=DOUBLE).view(1, 1, 3, 1) for x in ([1.0, -1.0, 0.0], [3.0, 1.0, 5.0]))
    results = []
    for backend in ("triton", "reference"):
        q, k, v = (x.clone().requires_grad_() for x in (one, key, value))
        output = linear_attention(q, k, v, causal=causal, backend=backend).output
        results.append((output, *torch.autograd.grad(output.square().sum(), [q, k, v])))
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-12)
    assert results[0][0].flatten().tolist() == [3.0 if causal else 2.0, 2.0, 2.0]


@pytest.mark.parametrize("empty", ["texts", "queries", "keys"])
def test_nothing_in_gives_nothing_out(empty: str) -> None:
    sizes = {"texts": 1, "queries": 5, "keys": 6} | {empty: 0}
    q, k = (torch.ones(sizes["texts"], 2, sizes[n], 3, requires_grad=True) for n in ("queries", "keys"))
    v = torch.ones(sizes["texts"], 2, sizes["keys"], 4, requires_grad=True)
    with poisoned_memory():
        found = linear_attention(q, k, v, backend="triton")
        grads = torch.autograd.grad(found.output.sum(), [q, k, v])
    torch.testing.assert_close(found, linear_attention(q, k, v))
    assert all(not g.any() and g.shape == x.shape for g, x in zip(grads, (q, k, v), strict=True))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int) -> None:
    """2^31 elements between the first and the last entry of one axis: 4 GiB of addresses, few of them touched."""
    given = inputs(Case(True, False, HALF, lq=3, lk=3, m=3, dv=3), 3, 3)
    strides = [1 << 30 if n == axis else 9 * 3 ** (2 - n) for n in range(3)] + [1]
    results = []
    for far in (False, True):
        q, k, v = (given[name].requires_grad_() for name in "qkv")
        if far:
            q, k, v = (torch.empty_strided(x.shape, strides, dtype=HALF).copy_(x.detach()) for x in (q, k, v))
            q, k, v = (x.requires_grad_() for x in (q, k, v))
        output = linear_attention(q, k, v, causal=True, backend="triton").output
        results.append((output, *torch.autograd.grad(output, [q, k, v], given["do"])))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("causal", [True, False])
def test_no_tensor_of_all_pairs_and_none_of_all_prefix_sums(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "LINEAR_CHUNKS", dict.fromkeys(CHUNKS, 128))
    length, size = 512, 16
    q, k, v = (torch.rand(1, 1, length, size, requires_grad=True) for _ in range(3))
    with Largest() as seen:
        linear_attention(q, k, v, causal=causal, backend="triton").output.sum().backward()
    assert (
        0 < seen.size <= length * size * 4
    )  # bytes of an input; prefix sums and pairs have 4 and 8 times as many numbers


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = torch.ones(1, 1, 4, 3)
    with pytest.raises(ValueError, match="has chunks of its own, and takes none of 4; these can: reference"):
        linear_attention(ones, ones, ones, backend="triton", chunk=4)
    with pytest.raises(ValueError, match="takes values of 1 number or more"):
        linear_attention(ones, ones, ones[..., :0], backend="triton")
    with pytest.raises(ValueError, match="takes fp16, bf16, fp32 and fp64, not torch.float8_e5m2"):
        linear_attention(ones, ones.to(torch.float8_e5m2), ones, backend="triton")
    with pytest.raises(ValueError, match="state: got one of plain features"):
        linear_attention(ones, ones, ones, log=True, state=State(torch.ones(1, 1, 3, 4), None), backend="triton")
    monkeypatch.setattr("common.attention.kernels.INTERPRETED", False)
    with pytest.raises(ValueError, match="backend 'triton' runs on a GPU, not on cpu .*; these can: reference"):
        linear_attention(ones, ones, ones, backend="triton")
    with pytest.raises(ValueError, match="computes fp64 in Triton's interpreter alone"):
        linear_attention(ones, ones.double(), ones, backend="triton")
