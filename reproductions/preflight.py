"""What a machine needs before `make setup`: names all that is missing at once, each with how to get it.

Standard library only, and old syntax: it must run under any python3 from 3.8 on to say that 3.11 or 3.12 is needed.
"""

import shutil
import subprocess
import sys
from typing import List

SUPPORTED = ((3, 11), (3, 12))
GIB = 2**30
DISK_CUDA, DISK_CPU = 12 * GIB, 4 * GIB
"""Installed size with room for pip's downloads; on Linux the standard build of torch brings the CUDA libraries."""

PROBE = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1])"


def missing_python(python: str) -> List[str]:
    """`python` is the interpreter that the environment is to be made with; empty if none was found."""
    versions = " or ".join("%d.%d" % v for v in SUPPORTED)
    advice = (
        "Debian 12: apt-get install python3 python3-venv; Ubuntu 24.04: apt-get install python3.12-venv; "
        "macOS: brew install python@3.12; conda: conda env create -f environment.yml. "
        "One that lies elsewhere: make setup PYTHON=/path/to/python3.12"
    )
    if not python:
        return ["Python %s with venv (none of python3.12, python3.11, python3 is one). %s" % (versions, advice)]
    try:
        probe = subprocess.run([python, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        return ["Python %s with venv (%s: %s). %s" % (versions, python, error.strerror, advice)]
    found = tuple(int(n) for n in probe.stdout.split())
    if probe.returncode != 0:
        lines = probe.stderr.decode(errors="replace").strip().splitlines() or ["exit code %d" % probe.returncode]
        why = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        return ["Python %s with venv (%s fails: %s). %s" % (versions, python, why, advice)]
    if found not in SUPPORTED:
        return ["Python %s (%s is %d.%d). %s" % ((versions, python) + found + (advice,))]
    return []


def missing_tools() -> List[str]:
    needs = [
        (("git",), "git (every result records its commit). Debian: apt-get install git; macOS: xcode-select --install"),
        (("make", "gmake"), "make. Debian: apt-get install make; macOS: xcode-select --install"),
        (
            ("cc", "gcc", "clang"),
            "a C compiler (triton and torch.compile need it). Debian: apt-get install gcc libc6-dev; "
            + "macOS: xcode-select --install",
        ),
    ]
    return [what for names, what in needs if not any(shutil.which(name) for name in names)]


def missing_space(path: str, torch_index: str) -> List[str]:
    cuda = sys.platform == "linux" and not torch_index.rstrip("/").endswith("cpu")
    need, free = DISK_CUDA if cuda else DISK_CPU, shutil.disk_usage(path).free
    if free >= need:
        return []
    smaller = (
        " A machine without a GPU needs less: make setup TORCH_INDEX=<address of PyTorch's cpu index>" if cuda else ""
    )
    return ["%d GiB of free disk space (%.1f are free here).%s" % (need // GIB, free / GIB, smaller)]


def main(python: str, torch_index: str) -> int:
    missing = missing_python(python) + missing_tools() + missing_space(".", torch_index)
    if missing:
        print("Cannot set up yet. Missing:", file=sys.stderr)
        for what in missing:
            print("  - " + what, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] + ["", ""])[:2]))
