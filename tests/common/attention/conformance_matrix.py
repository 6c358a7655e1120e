"""The conformance matrix: every backend with every mask, dtype and shape, against attention in fp64."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from unittest import mock

from torch import Tensor

from common.attention import RelativeBias, attention, unsupported
from common.attention.request import Request
from tests.common.attention.kernels import cases
from tests.common.attention.kernels.cases import Case, Truth

FLEX = [
    *(Case(mask, lengths="square", heads="batch") for mask in cases.MASKS),
    *(Case(mask, "bf16", "80", "more keys", "grouped", "alibi", "time before heads") for mask in ("causal", "bigbird")),
    *(Case(mask, "fp16", "96", "more queries", "one key head", "whole") for mask in ("window", "dilated")),
]
"""Few, as each new combination of shapes and dtypes is compiled, for seconds."""


@dataclass(frozen=True)
class Part:
    """Backends that run the same cases. unit: what masks and some lengths are counted in, and the interpreter's block."""

    backends: tuple[str, ...]
    cases: list[Case]
    unit: int


def matrix(device: str) -> list[Part]:
    every = cases.pairwise(cases.ALL_FACTORS, whole=("mask", "dtype", "lengths"))
    return [
        Part(("reference", "sdpa", "chunked"), every, 64),
        Part(("flex",), FLEX, 128),
        Part(("triton",), cases.pairwise(cases.FACTORS), 16 if device == "cpu" else 128),
        Part(("triton",), cases.LONG, 128),
    ]


@dataclass(frozen=True)
class Result:
    """What one backend made of one case.

    errors: of the output and of each gradient, by the names of `cases.errors`, with what is allowed. refused: what, and the
    backend's reason. failure: what was raised instead of an answer.
    """

    backend: str
    case: Case
    errors: dict[str, tuple[float, float]]
    refused: tuple[str, str] | None = None
    failure: str | None = None

    def ratio(self, name: str) -> float:
        """Of the error to what is allowed: above 1 is outside the gate."""
        error, allowed = self.errors[name]
        return error / allowed


ASKED = {
    "nothing": ("q", "k", "v", "bias"),
    "gradient of the bias": ("q", "k", "v"),
    "all gradients": (),
}
"""What is left out, and the gradients that are asked for then."""


def run(backend: str, case: Case, known: Truth) -> Result:
    """With all gradients, or without those that the backend refuses. Raises what the backend and `cases.errors` raise."""

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | RelativeBias | None) -> Tensor:
        asked = Request(q, k, v, known.mask, bias, q.shape[3] ** -0.5, 0.0, 0, False, False)
        if reason := unsupported(asked, backend):
            raise _Refused(reason)
        out = attention(q, k, v, mask=known.mask, backend=backend, bias=bias)
        assert isinstance(out, Tensor)
        return out

    reason = ""
    for left_out, wanted in ASKED.items():
        try:
            got = cases.differentiate(attend, known.tensors, known.bias, wanted)
        except _Refused as refused:
            reason = str(refused)
        else:
            return Result(backend, case, cases.errors(known, got), (left_out, reason) if reason else None)
    return Result(backend, case, {}, ("all", reason))


class _Refused(Exception):
    pass


def expected(backend: str, case: Case) -> tuple[str, str] | None:
    """What a backend refuses of a case on a CPU, and why."""
    d, dv = cases.WIDTHS[case.width]
    pinned = "is pinned to a flash kernel, which"
    if backend == "sdpa" and d != dv:
        return "all", f"{pinned} takes one head_dim for q, k and v, not {d} and {dv}"
    if backend == "sdpa" and case.bias not in ("none", "alibi"):
        return "gradient of the bias", f"{pinned} has no gradient for a bias"
    if backend == "flex" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        return "all", f"compiles for a CPU with {compiler}, which is not there"
    if backend == "flex":
        return "all gradients", "has no backward pass on a CPU"
    if backend == "triton" and find_spec("triton") is None:
        return "all", "needs triton, which is not installed (it exists for Linux alone)"
    return None


def results(parts: list[Part], device: str) -> Iterator[Result]:
    """A backend that fails is one result among the others."""
    for part in parts:
        with cases.poisoned_memory(device), blocks_of(part, device):
            for case in part.cases:
                known = cases.truth(case, part.unit, device)
                yield from (attempt(backend, case, known) for backend in part.backends)


def attempt(backend: str, case: Case, known: Truth) -> Result:
    try:
        return run(backend, case, known)
    except Exception as error:  # noqa: BLE001 - whatever it is: the page says it, the rest goes on
        return Result(backend, case, {}, failure=f"{type(error).__name__}: {error}".splitlines()[0])


@contextmanager
def blocks_of(part: Part, device: str) -> Iterator[None]:
    """Interpreted kernels in blocks of the part's unit; on a GPU in those of their table."""
    if "triton" not in part.backends or device != "cpu" or find_spec("triton") is None:
        yield
        return
    from common.attention.kernels import configurations

    chosen = configurations.Configuration(part.unit, part.unit, 4, 1)
    with mock.patch.object(configurations, "choose", lambda *_: chosen):
        yield
