"""The rotary kernel."""

from tests.mutants.fault import Fault

FILE = "common/attention/kernels/rotary.py"
TESTS = "tests/common/attention/kernels/test_rotary.py::"
COMPLEX = (TESTS + "test_against_complex_numbers",)

FAULTS = (
    Fault(
        "rotary: turns the other way",
        FILE,
        "even * c - odd * s, even * s + odd * c",
        "even * c + odd * s, odd * c - even * s",
        COMPLEX,
    ),
    Fault(
        "rotary: the gradient turns forward again",
        FILE,
        "cos, sin, not ctx.inverse)",
        "cos, sin, ctx.inverse)",
        COMPLEX,
    ),
    Fault(
        "rotary: pairs one half with the other",
        FILE,
        "(BT, BD // 2, 2)))",
        "(BT, 2, BD // 2)).permute(0, 2, 1))",
        COMPLEX,
    ),
    Fault(
        "rotary: int32 offsets of positions",
        FILE,
        "tl.arange(0, BT)).to(tl.int64)[:, None]",
        "tl.arange(0, BT))[:, None]",
        (TESTS + "test_offsets_beyond_32_bits[2]",),
    ),
)
