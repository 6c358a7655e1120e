"""What the processor can do."""

import re
from pathlib import Path

INFO = Path("/proc/cpuinfo")
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Flags of x86 and ARM: products of bfloat16 in hardware. Without, they are made of fp32 ones and take ten times as long."""


def training_precision(info: Path = INFO) -> str:
    """Lightning's name of the fastest precision that training is stable in; fp32 where the system tells nothing."""
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return "bf16-mixed" if found and BFLOAT16 & set(found[1].split()) else "32-true"
