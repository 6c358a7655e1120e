"""The conformance matrix as a page.

    python -m tests.common.attention.conformance [backend ...]

prints it, of all backends unless some are named, and exits with 1 where an error is outside its gate or a backend refuses
what it should not. Without a GPU the kernels run in Triton's interpreter; with one they are compiled, which takes longer, and
the other backends run there too.
"""

import os
import platform
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product

import torch

from common.attention import BACKENDS
from tests.common.attention import properties
from tests.common.attention.conformance_matrix import Result, expected, matrix, results
from tests.common.attention.kernels import cases

WIDTH = 120

INTRODUCTION = """Each number is an error divided by what is allowed, the worst of its cases, and in brackets is how many cases
ran; above 1 is outside the gate and marked "!". The error is the relative RMS of the output and of every gradient against plain
attention in fp64; allowed is twice that of plain attention in the same dtype, + 1e-5. A gradient that is exactly zero is
measured against what cancels in it, and may be off by one rounding of that. What takes no part holds NaN in the inputs, and so
does memory that torch gives out; rows that take no part must come out as exact zeros. A backend that refuses the gradients is
asked for fewer of them, at last for the output alone. Cases combine:"""

TENSORS = {"output": "output", "q": "dq", "k": "dk", "v": "dv", "bias": "dbias"}


def page(found: list[Result], device: str, wall: float, cpu: float) -> list[str]:
    """Lines. wall, cpu: seconds that it took."""
    lines = ["# Conformance of the attention backends", "", *machine(device)]
    lines += [f"{len(found)} runs of a case by a backend in {wall:.0f} s; {cpu:.0f} s of this process's CPU time", ""]
    lines += [*textwrap.wrap(INTRODUCTION, WIDTH), "", *factors()]
    for backend in BACKENDS:
        if own := [r for r in found if r.backend == backend]:
            lines += ["", f"## {backend}", "", *by_mask(own)]
    lines += ["", "## Largest errors", "", "With their share of what is allowed.", "", *by_tensor(found)]
    lines += ["", "## Refused", "", *refusals(found)]
    wrong = [f"- {line}" for line in problems(found, device)]
    return [*lines, "", "## Verdict", "", *(wrong or ["All within the gate; refused as expected."])]


def machine(device: str) -> list[str]:
    triton = version("triton") if find_spec("triton") else "absent"
    where = torch.cuda.get_device_name() if device == "cuda" else f"a CPU ({platform.machine()})"
    how = "compiled" if device == "cuda" else "in Triton's interpreter"
    versions = f"torch {torch.__version__}, triton {triton}, Python {platform.python_version()}"
    return [f"{versions}; on {where}, kernels {how}"]


def factors() -> list[str]:
    shown = {
        "masks": cases.MASKS,
        "dtypes": cases.DTYPES,
        "Lq x Lk (in blocks if with a point)": [f"{lq} x {lk}" for lq, lk in cases.LENGTHS.values()],
        "head_dim of k, v": [f"{d}, {dv}" if d != dv else str(d) for d, dv in cases.WIDTHS.values()],
        "batch, heads, key heads": map(str, cases.HEADS.values()),
        "biases": cases.BIASES,
        "layouts": cases.LAYOUTS,
    }
    lines = [f"- {name}: {'; '.join(values)}" for name, values in shown.items()]
    names = ", ".join(properties.named(check).replace("_", " ") for check in properties.ALL)
    return [*lines, "", *textwrap.wrap(f"Beside this, tests ask of the backends: {names}.", WIDTH)]


def by_mask(found: list[Result]) -> list[str]:
    rows = []
    for mask in cases.MASKS:
        cells = []
        for dtype in cases.DTYPES:
            here = [r for r in found if (r.case.mask, r.case.dtype) == (mask, dtype)]
            ran = [r for r in here if r.errors]
            worst = max((r.ratio(name) for r in ran for name in r.errors), default=0.0)
            bad = worst > 1 or any(r.failure for r in here)
            cells.append((f"{worst:.2f} ({len(ran)})" if ran else "-") + " !" * bad)
        rows.append([mask, *cells])
    return table(["mask", *cases.DTYPES], rows)


def by_tensor(found: list[Result]) -> list[str]:
    """The errors that are largest in relation to what is allowed."""
    rows = []
    for backend, (name, shown) in product(BACKENDS, TENSORS.items()):
        ran = [r for r in found if r.backend == backend and name in r.errors]
        ran.sort(key=lambda r: -r.ratio(name))
        cells = []
        for dtype in cases.DTYPES:
            worst = next((r for r in ran if r.case.dtype == dtype), None)
            cells.append(f"{worst.errors[name][0]:.1e} ({worst.ratio(name):.2f})" if worst else "-")
        if ran:
            rows.append([backend, shown, *cells, str(ran[0].case)])
    return table(["backend", "tensor", *cases.DTYPES, "worst case"], rows)


def refusals(found: list[Result]) -> list[str]:
    counted = Counter((r.backend, *r.refused) for r in found if r.refused)
    asked = Counter(r.backend for r in found)
    rows = [[of, what, f"{count} of {asked[of]}", why] for (of, what, why), count in counted.items()]
    rows.sort(key=lambda row: (BACKENDS.index(row[0]), row))
    return table(["backend", "refuses", "cases", "as it"], rows) if rows else ["Nothing."]


def problems(found: list[Result], device: str) -> list[str]:
    """What is outside the gate or failed. On a CPU, what is refused but should not be, and the other way round; elsewhere,
    masks of which a backend refuses every case."""
    wrong = []
    for r in found:
        where = f"{r.backend}: {r.case}: "
        for name, (error, allowed) in r.errors.items():
            if not error <= allowed:
                wrong.append(f"{where}{TENSORS[name]} {error:.2e}, allowed {allowed:.2e}")
        if r.failure:
            wrong.append(where + r.failure)
        elif device == "cpu" and r.refused != (should := expected(r.backend, r.case)):
            wrong.append(f"{where}refused {r.refused}, expected {should}")
    for backend, mask in product(BACKENDS, cases.MASKS) if device != "cpu" else ():
        here = [r for r in found if (r.backend, r.case.mask) == (backend, mask)]
        if here and not any(r.errors or r.failure for r in here):
            wrong.append(f"{backend}: {mask}: refused in every case")
    return wrong


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    width = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    shown = [columns, ["-" * w for w in width], *rows]
    return ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)) + " |" for row in shown]


def main(backends: Sequence[str] = ()) -> int:
    if unknown := set(backends) - set(BACKENDS):
        print(f"backends: got {', '.join(sorted(unknown))}, expected some of {', '.join(BACKENDS)}", file=sys.stderr)
        return 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
    else:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or torch warns, as it does when it fills memory
    wall, cpu = time.perf_counter(), time.process_time()
    asked = [
        replace(part, backends=tuple(b for b in part.backends if b in (backends or BACKENDS)))
        for part in matrix(device)
    ]
    found = list(results([part for part in asked if part.backends], device))
    print("\n".join(page(found, device, time.perf_counter() - wall, time.process_time() - cpu)))
    return 1 if problems(found, device) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
