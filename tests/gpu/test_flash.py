"""The flash kernels compiled, with the configurations of the table: what tests/common/attention/kernels asks for, on a GPU.

Lengths are in blocks of 128, so that each list has full, cut-off and partial blocks.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from common.attention import Causal, attention
from common.attention.kernels import configurations
from common.attention.kernels.configurations import CONFIGURATIONS, Configuration, Key
from tests.common.attention.kernels import cases
from tests.common.attention.kernels.cases import Case

UNIT = 128


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    with cases.poisoned_memory("cuda"):
        yield


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", [*cases.pairwise(cases.FACTORS), *cases.LONG], ids=str)
def test_output_and_gradients(case: Case) -> None:
    cases.assert_within_gate(case, UNIT, "cuda")


@pytest.mark.parametrize("width", ["128", "256"])
@pytest.mark.parametrize("dtype", list(cases.DTYPES))
def test_large_heads(width: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.WIDTHS, width, (int(width), int(width)))
    cases.assert_within_gate(Case(width=width, dtype=dtype, heads="grouped"), UNIT, "cuda")


TARGET = configurations.target_of(torch.device("cuda")) if torch.cuda.is_available() else "sm_80"


@pytest.mark.parametrize("key, chosen", [
    (key, chosen) for key, all_of_it in CONFIGURATIONS.items() if key.target == TARGET and key.kind != "32 bit"
    for chosen in all_of_it
], ids=lambda value: "-".join(map(str, value)).replace(" ", "_"))  # fmt: skip
def test_every_configuration(key: Key, chosen: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are only for a benchmark to try too."""
    usual = configurations.choose
    monkeypatch.setattr(
        configurations, "choose", lambda part, *rest: chosen if part == key.part else usual(part, *rest)
    )
    monkeypatch.setitem(cases.WIDTHS, "largest", (key.size, key.size))
    bias = "t5" if key.kind == "16 bit +" else "none"
    cases.assert_within_gate(Case(width="largest", dtype="bf16", bias=bias, heads="grouped"), UNIT, "cuda")


@pytest.mark.parametrize("dtype", list(cases.DTYPES))
def test_dropout_drops_what_the_reference_drops(dtype: str) -> None:
    case = Case(mask="causal window", heads="grouped", dtype=dtype, bias="t5")
    mask, tensors, bias = cases.inputs(case, UNIT, "cuda")
    seed = 5 + (3 << 40)
    got = cases.kernels(mask, tensors, bias, dropout_p=0.3, dropout_seed=seed)

    def run(q: Any, k: Any, v: Any, made: Any) -> torch.Tensor:
        return attention(q, k, v, mask=mask, backend="reference", bias=made, dropout_p=0.3, dropout_seed=seed)

    right = cases.differentiate(run, {name: t.double() for name, t in tensors.items()}, bias)
    for name, value in got.items():
        assert cases.relative_rms(value, right[name].double()) < {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}[dtype], name


def test_the_same_bits_each_time() -> None:
    case = Case(mask="bigbird", heads="grouped", bias="t5", dtype="bf16", width="64")
    first, second = (cases.kernels(*cases.inputs(case, UNIT, "cuda"), dropout_p=0.2, dropout_seed=3) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int) -> None:
    """Strides of 2^30 elements, 4 GiB a tensor."""
    shape = (3, 3, 3, 16)
    strides = [48 * 3, 48, 16, 1]
    strides[axis] = 1 << 30
    far = [torch.empty_strided(shape, strides, dtype=torch.float16, device="cuda") for _ in range(3)]
    near = [torch.randn(shape, generator=torch.Generator().manual_seed(n)).half().cuda() for n in range(3)]
    for a, b in zip(far, near, strict=True):
        a.copy_(b)
    got, right = (cases.kernels(Causal(), {"q": q, "k": k, "v": v, "do": near[0]}, None) for q, k, v in (far, near))
    assert all(torch.equal(got[name], right[name]) for name in right)
