"""What holds for every backend, for the flash kernels in Triton's interpreter, and what makes their bits repeatable."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch

triton = pytest.importorskip("triton")

from common.attention import Causal, Padding, T5Bias, attention, kernels
from common.attention.backends import reference
from common.attention.kernels import INTERPRETED, configurations
from common.attention.kernels.configurations import Configuration
from tests.common.attention import properties
from tests.common.attention.kernels import cases
from tests.common.attention.kernels.cases import Case


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "choose", lambda *_: Configuration(32, 32, 4, 1))


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """New memory holds NaN: an output or a part of one that nobody writes shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert INTERPRETED and torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # numpy, of what is masked
@pytest.mark.parametrize("check", properties.ALL, ids=properties.named)
def test_holds(check: Callable[[str], None]) -> None:
    check("triton")


def test_deterministic_algorithms_may_be_demanded() -> None:
    """torch raises where an operation has none; the bits are the same with and without."""
    q, k, v, do = properties.inputs(20, kv=2)
    table = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for demanded in (True, False):
        leaves = [t.clone().requires_grad_() for t in (q, k, v, table)]
        torch.use_deterministic_algorithms(demanded)
        try:
            bias = T5Bias(leaves[3], bidirectional=True, max_distance=16)
            out = attention(*leaves[:3], mask=Causal(), backend="triton", bias=bias)  # type: ignore[call-arg]
            found.append((out, *torch.autograd.grad(out, leaves, do)))
        finally:
            torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_nothing_depends_on_which_program_comes_first_or_on_a_search() -> None:
    """No kernel adds up what several programs write, and none is tried out on the tensors of its first call."""
    jitted = {}
    for module in iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for name, value in vars(import_module(module.name)).items():
            assert not isinstance(value, triton.runtime.Autotuner | triton.runtime.autotuner.Heuristics), name
            if hasattr(value, "arg_names") and hasattr(value, "fn"):
                jitted[name] = inspect.getsource(value.fn)
    assert {"forward_kernel", "delta_kernel", "key_value_kernel", "query_kernel", "bias_kernel"} <= set(jitted)
    assert [name for name, source in jitted.items() if "atomic_" in source] == []


@pytest.mark.parametrize("dtype", list(cases.DTYPES))
def test_the_gate_lets_none_pass_that_loses_a_key(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 640 that a query may see; without the fault it passes."""
    case, backend = Case(mask="full", dtype=dtype), "common.attention.backends.triton.attend"
    monkeypatch.setattr(backend, reference.attend)
    cases.assert_within_gate(case, 256)
    last = torch.arange(640)[None] < 639
    monkeypatch.setattr(backend, lambda r: reference.attend(replace(r, mask=r.mask & Padding(last))))
    with pytest.raises(AssertionError, match="^output: "):
        cases.assert_within_gate(case, 256)
