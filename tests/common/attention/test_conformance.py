"""The conformance matrix, but for the kernels' part, which tests/common/attention/kernels/test_flash.py runs; and its page."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from common.attention import BACKENDS, Attended
from common.attention.backends import chunked, reference, sdpa
from common.attention.request import Request
from tests.common.attention import conformance
from tests.common.attention.conformance import problems
from tests.common.attention.conformance_matrix import Part, Result, expected, matrix, results, run
from tests.common.attention.kernels import cases
from tests.common.attention.kernels.cases import Case

DENSE, OF_FLEX, *_ = MATRIX = matrix("cpu")


@pytest.fixture(autouse=True)
def memory_as_it_was() -> Iterator[None]:
    yield
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("case", DENSE.cases, ids=str)
def test_within_the_gate_and_refused_as_expected(case: Case) -> None:
    found = list(results([replace(DENSE, cases=[case])], "cpu"))
    assert len(found) == len(DENSE.backends) and problems(found, "cpu") == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="flex compiles for a CPU with g++")
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_flex(dtype: str) -> None:
    """Those of a dtype together, as some share what is compiled."""
    chosen = [case for case in OF_FLEX.cases if case.dtype == dtype]
    found = list(results([replace(OF_FLEX, cases=chosen)], "cpu"))
    assert len(found) == len(chosen) > 1 and problems(found, "cpu") == []
    assert all(list(result.errors) == ["output"] for result in found)


def test_the_matrix_has_every_backend_with_every_mask_and_dtype() -> None:
    asked = {(name, case.mask, case.dtype) for part in MATRIX for case in part.cases for name in part.backends}
    for backend, mask, dtype in product(BACKENDS, cases.MASKS, cases.DTYPES):
        assert (backend, mask, dtype) in asked or (backend == "flex" and dtype != "fp32")
    for backend in BACKENDS:
        used = {case.lengths for part in MATRIX if backend in part.backends for case in part.cases}
        assert used >= {"1", "17", "127", "1000", "17 of 1000", "1000 of 127"} or backend == "flex"


@pytest.mark.parametrize("whole", [(), ("mask", "lengths")])
def test_any_two_values_meet(whole: tuple[str, ...]) -> None:
    """Looked for one by one."""
    factors = {name: values[:4] for name, values in cases.ALL_FACTORS.items()}
    made = cases.pairwise(factors, whole)
    for (a, of_a), (b, of_b) in combinations(factors.items(), 2):
        for x, y in product(of_a, of_b):
            assert any(getattr(case, a) == x and getattr(case, b) == y for case in made), (x, y)
    assert len(made) < 30 and len(set(made)) == len(made)


def test_all_combinations_of_some_factors() -> None:
    made = cases.pairwise(
        {"mask": ["full", "causal"], "dtype": ["fp32", "bf16"], "bias": ["t5", "none", "alibi"]}, ("mask", "dtype")
    )
    assert {(case.mask, case.dtype) for case in made} == set(product(["full", "causal"], ["fp32", "bf16"]))
    assert len(made) == 6, "three biases with two masks"


CASE = Case(mask="causal", lengths="17")
SMALL = [Part(("chunked",), [CASE], 16)]
RIGHT = Result("chunked", CASE, {"output": (3e-6, 1e-5), "q": (2e-6, 1e-5)})


def broken(r: Request) -> Attended:
    """Sees one key too few in its last row."""
    whole = reference.attend(r)
    last = torch.arange(r.shape[2])[:, None] == r.shape[2] - 1
    return whole._replace(output=torch.where(last, r.v[:, :, :1], whole.output))


def test_a_fault_is_on_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(conformance, "matrix", lambda device: SMALL)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert conformance.main() == 0
    page = capsys.readouterr().out
    assert "All within the gate; refused as expected." in page and " !" not in page.partition("## chunked")[2]
    monkeypatch.setattr(chunked, "attend", broken)
    assert conformance.main() == 1
    page = capsys.readouterr().out
    [row] = [line for line in page.splitlines() if line.startswith("| causal ") and "(1)" in line]
    assert (
        "(1) !" in row
        and "- chunked: causal-fp32-16-17-two-none-contiguous: output " in page.partition("## Verdict")[2]
    )


def test_some_backends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [Part(("reference", "chunked", "sdpa"), [CASE], 16), Part(("triton",), [CASE], 16)]
    monkeypatch.setattr(conformance, "matrix", lambda device: parts)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert conformance.main(["sdpa", "reference"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("## ")]
    assert headings == ["## reference", "## sdpa", "## Largest errors", "## Refused", "## Verdict"]
    assert conformance.main(["sdpa", "tritn"]) == 2 and capsys.readouterr().err.startswith(
        "backends: got tritn, expected"
    )


def test_a_table_of_masks() -> None:
    """Worst of two, and how many; what failed is marked though it has no number."""
    given = [
        RIGHT,
        replace(RIGHT, errors={"output": (9e-6, 1e-5)}),
        Result("chunked", Case("full", "bf16"), {}, failure="RuntimeError: no"),
        Result("chunked", Case("full", "fp16"), {"k": (2e-5, 1e-5), "v": (5e-6, 1e-5)}),
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in conformance.by_mask(given)]
    assert rows[0] == ["mask", "fp32", "fp16", "bf16"]
    assert rows[2] == ["full", "-", "2.00 (1) !", "- !"] and rows[3] == ["causal", "0.90 (2)", "-", "-"]


def test_a_table_of_tensors() -> None:
    other = Result("chunked", Case("full", "bf16"), {"output": (4e-3, 5e-3)})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in conformance.by_tensor([RIGHT, other])]
    assert rows[2:] == [
        ["chunked", "output", "3.0e-06 (0.30)", "-", "4.0e-03 (0.80)", str(other.case)],
        ["chunked", "dq", "2.0e-06 (0.20)", "-", "-", str(CASE)],
    ]


def test_refusals_are_counted_with_their_reasons() -> None:
    some = [Result("sdpa", CASE, {}, refused=("all", "can't")), Result("sdpa", CASE, {}, refused=("all", "can't"))]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in conformance.refusals([RIGHT, *some])]
    assert rows[2:] == [["sdpa", "all", "2 of 2", "can't"]]


WRONG = {
    "outside the gate": (replace(RIGHT, errors={"k": (2e-5, 1e-5)}), "dk 2.00e-05, allowed 1.00e-05"),
    "no number": (replace(RIGHT, errors={"output": (float("nan"), 1e-5)}), "output nan"),
    "failed": (replace(RIGHT, failure="RuntimeError: no"), "RuntimeError: no"),
    "refused without reason": (replace(RIGHT, refused=("all", "does not like it")), "expected None"),
    "not refused": (Result("sdpa", Case(width="96"), {"output": (0.0, 1e-5)}), "refused None, expected"),
}


@pytest.mark.parametrize(("result", "message"), WRONG.values(), ids=WRONG.keys())
def test_problems(result: Result, message: str) -> None:
    [line] = problems([RIGHT, result], "cpu")
    assert line.startswith(f"{result.backend}: {result.case}: ") and message in line


def test_a_mask_that_is_always_refused_on_a_gpu_is_a_problem() -> None:
    """There the reasons are only shown: what the kernels of a GPU take depends on it."""
    some = Result("sdpa", CASE, {}, refused=("all", "can't"))
    assert problems([some, replace(RIGHT, backend="sdpa")], "cuda") == []
    assert problems([some, RIGHT], "cuda") == ["sdpa: causal: refused in every case"]


def test_a_backend_that_raises_or_refuses_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(r: Request) -> Attended:
        raise RuntimeError("out of order\nand more")

    monkeypatch.setattr(chunked, "attend", attend)
    monkeypatch.setattr(sdpa, "unsupported", lambda r: "does not like it")
    found = list(results([Part(("chunked", "sdpa", "reference"), [CASE], 16)], "cpu"))
    assert [r.failure for r in found] == ["RuntimeError: out of order", None, None]
    assert [r.refused for r in found] == [None, ("all", "does not like it"), None]
    assert len(problems(found, "cpu")) == 2 and found[2].errors


@pytest.mark.parametrize("bias, learnt", [("none", []), ("whole", ["bias"]), ("alibi", []), ("t5", ["bias"])])
def test_fewer_gradients_are_asked_for_where_some_are_refused(bias: str, learnt: list[str]) -> None:
    case = Case(bias=bias, heads="batch", lengths="17")
    known = cases.truth(case, 16)
    asked = run("reference", case, known)
    assert list(asked.errors) == ["output", "q", "k", "v", *learnt] and asked.refused is None
    asked = run("sdpa", case, known)
    assert list(asked.errors) == ["output", "q", "k", "v"] and asked.refused == expected("sdpa", case)
    assert (asked.refused is not None) == bool(learnt)


@pytest.mark.parametrize("name", ["output", "q", "k", "v"])
def test_what_is_not_finite_or_not_zero_is_no_answer(name: str) -> None:
    known = cases.truth(Case(mask="all padding", heads="batch"), 16)  # batch entry 0 sees nothing
    assert all(error <= allowed for error, allowed in cases.errors(known, known.right).values())
    wrong = known.right[name].clone()
    for value, message in ((1e-30, "of a row that takes no part is not zero"), (torch.nan, "is not finite")):
        wrong[0, 0, 0, 0] = value
        with pytest.raises(AssertionError, match=f"{name} .*{message}"):
            cases.errors(known, known.right | {name: wrong})


def test_a_gradient_that_vanishes_is_measured_by_what_cancels() -> None:
    """One query, one key: the weight is 1, so dq and dk are 0; with the softmax's sum held fast dq = scale * (do . v) k."""
    case = Case(dtype="bf16", lengths="1", mask="full")
    known = cases.truth(case, 16)
    assert set(known.vanished) == {"q", "k"}
    q, k, v, do = (known.tensors[name].double() for name in ("q", "k", "v", "do"))
    terms = {"q": (do * v).sum(-1, keepdim=True) * k / 4, "k": (do * v).sum(-1, keepdim=True) * q / 4}
    for name, term in terms.items():
        size = float(term.pow(2).mean().sqrt())
        assert known.vanished[name] == pytest.approx(size)
        for share, within in ((0.9, True), (1.1, False)):
            off = {name: term * 2**-8 * share}
            error, allowed = cases.errors(known, off)[name]
            assert error == pytest.approx(2**-8 * share) and (error <= allowed) == within
