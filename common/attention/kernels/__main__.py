"""python -m common.attention.kernels [key=value ...]: what each kernel becomes for a GPU, which need not be there.

    python -m common.attention.kernels target=sm_90 kernel=forward,query size=128 dtype=bf16

Compiles every kernel with every configuration, or those that the words leave, and prints what each needs of a GPU. Exit
status 1 for a fault (`page.faults`), 2 where nothing can be compiled: with TRITON_INTERPRET=1, or for words without meaning.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import triton
from triton import knobs

from common.attention.kernels import INTERPRETED
from common.attention.kernels.catalogue import Row, rows
from common.attention.kernels.page import ABOUT, page, results

KEYS = ("target", "kernel", "size", "dtype")


def chosen(words: Sequence[str]) -> list[Row]:
    """The rows that key=value[,value] words leave. Raises ValueError for words that mean nothing and for none left."""
    kept = list(rows())
    for word in words:
        key, equals, values = word.partition("=")
        if not equals or key not in KEYS:
            raise ValueError(f"got {word!r}, expected key=value with a key of {', '.join(KEYS)}")
        known = {str(getattr(row, key)) for row in rows()}
        if unknown := [value for value in values.split(",") if value not in known]:
            raise ValueError(f"{key}: got {', '.join(unknown)!r}, expected of {', '.join(sorted(known))}")
        kept = [row for row in kept if str(getattr(row, key)) in values.split(",")]
    if not kept:
        raise ValueError(f"{' '.join(words)}: no kernel is compiled for all of these at once")
    return kept


def main(words: Sequence[str]) -> int:
    if INTERPRETED:
        print("kernels that Triton interprets can't be compiled: unset TRITON_INTERPRET", file=sys.stderr)
        return 2
    try:
        listed = chosen(words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    ptxas = knobs.nvidia.ptxas  # its own, unless TRITON_PTXAS_PATH names another
    bundled = Path(ptxas.path).is_relative_to(Path(triton.__file__).parent)
    print(f"Triton {triton.__version__}, ptxas {ptxas.version} ({'bundled' if bundled else ptxas.path})")
    print(ABOUT, end="", flush=True)
    wrong: list[str] = []
    for section in page(results(listed), wrong):
        print(section, flush=True)
    headline = sum(row.headline for row in listed)
    print(f"\n{len(listed)} kernels, {headline} of them headline: {len(wrong) or 'no'} fault{'s' * (len(wrong) != 1)}")
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
