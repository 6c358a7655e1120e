"""What Triton makes of a launch for a GPU, which need not be there: registers, spills, memory, matrix instructions.

    made = compiled(specialised(example("forward", 128, torch.bfloat16, "sm_90")), "sm_90")

On NVIDIA, registers and spills are what ptxas itself says (its -v) as it makes the very machine code that Triton would load;
on AMD, what the assembler's metadata say. Nothing is assumed where either can't be read: that raises Unreadable.
"""

import contextlib
import io
import re
from typing import Any, NamedTuple

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from common.attention.kernels.static import Source

GPUS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
MATRIX_UNITS = ("nvidia_mma", "amd_mfma")
"""Layouts of products that matrix units (NVIDIA's tensor cores) make; all else is multiplied a number at a time."""


class Unreadable(RuntimeError):
    """A compiler failed, or said nothing that could be understood."""


class Compiled(NamedTuple):
    """registers: of a thread (on AMD vector registers, accumulators included). stack: bytes of a thread in local memory.
    spill_stores, spill_loads: bytes of the instructions that put registers there and fetch them; on AMD the first has 4
    for each spilled register, and the second is None. shared: bytes a block.

    products: tl.dots in the code as it is pipelined, in_units: those that go to matrix units. wgmma, mma, mfma: such
    instructions; tf32: those among them that round fp32 to 10 bits of mantissa. notes: what the compiler warns of.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int | None
    shared: int
    warps: int
    stages: int
    products: int
    in_units: int
    wgmma: int
    mma: int
    mfma: int
    tf32: int
    notes: tuple[str, ...] = ()


def compiled(source: Source, target: str) -> Compiled:
    """For "sm_80", "sm_90" or "gfx942". Raises Unreadable."""
    made, log = _compile(source, GPUS[target])
    read: dict[str, Any] = {name: getattr(made.metadata, f"num_{name}") for name in ("warps", "stages")}
    read |= {"shared": made.metadata.shared, **products(made.asm["ttir"], made.asm["ttgir"])}
    read |= assembly(made.asm["amdgcn"]) if target == "gfx942" else {**ptx(made.asm["ptx"]), **ptxas(log)}
    return Compiled(**read)


def ptxas(log: str) -> dict[str, Any]:
    """From the output of `ptxas -v` for one kernel. Raises Unreadable."""
    place = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    spills, registers = re.findall(place, log), re.findall(r"Used (\d+) registers", log)
    if len(spills) != 1 or len(registers) != 1 or registers == ["0"]:
        raise Unreadable(f"ptxas -v: got {_start(log)!r}, expected one line of spills and one of registers")
    stack, stores, loads = map(int, spills[0])
    lines = (re.sub(r"^ptxas\s+\S+\s*:\s*", "", line.strip()) for line in log.splitlines())
    notes = tuple(line for line in lines if re.search(r"warning|performance loss", line, re.IGNORECASE))
    return {
        "registers": int(registers[0]),
        "stack": stack,
        "spill_stores": stores,
        "spill_loads": loads,
        "notes": notes,
    }


def ptx(text: str) -> dict[str, int]:
    """Matrix instructions."""
    wgmma, mma = (re.findall(rf"\b{name}[.\w:]*", text) for name in (r"wgmma\.mma_async", r"mma\.sync"))
    return {"wgmma": len(wgmma), "mma": len(mma), "mfma": 0, "tf32": sum(".tf32" in each for each in wgmma + mma)}


def assembly(text: str) -> dict[str, Any]:
    """From AMD's assembly, with the metadata at its end. Raises Unreadable."""
    names = ("vgpr_count", "agpr_count", "private_segment_fixed_size", "vgpr_spill_count", "sgpr_spill_count")
    found = {name: re.findall(rf"^\s+(?:- )?\.{name}:\s+(\d+)$", text, re.MULTILINE) for name in names}
    if wrong := [name for name, values in found.items() if len(values) != 1]:
        raise Unreadable(f"metadata of AMD's assembly: no single value of {', '.join(wrong)}")
    registers, _, stack, spilled, scalars = (int(values[0]) for values in found.values())
    mfma = re.findall(r"\bv_s?mfmac?_\w+", text)
    return {
        "registers": registers, "stack": stack, "spill_stores": 4 * spilled, "spill_loads": None, "wgmma": 0, "mma": 0,
        "mfma": len(mfma), "tf32": sum("xf32" in each for each in mfma),
        "notes": (f"{scalars} scalar registers spilled",) if scalars else (),
    }  # fmt: skip


def products(ttir: str, ttgir: str) -> dict[str, int]:
    """Of Triton's two intermediate codes: before layouts and pipelining, and after. Raises Unreadable."""
    written = len(re.findall(r" = tt\.dot ", ttir))
    lines = re.findall(r" = (?:tt\.dot|ttng\.warp_group_dot) .*", ttgir)
    layouts = [layout for line in lines for layout in re.findall(r"-> tensor<\w+, (#\w+)>", line)]
    kinds = dict(re.findall(r"^(#\w+) = #ttg\.(\w+)<", ttgir, re.MULTILINE))
    if len(layouts) != len(lines) or len(lines) < written or not kinds.keys() >= set(layouts):
        raise Unreadable(f"Triton's code: {written} products become {len(lines)}, {len(layouts)} of them with a layout")
    return {"products": len(lines), "in_units": sum(kinds[layout] in MATRIX_UNITS for layout in layouts)}


def _compile(source: Source, gpu: GPUTarget) -> tuple[Any, str]:
    """And what ptxas said."""
    whole = ASTSource(source.kernel, source.signature, source.constexprs, source.attributes)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), knobs.compilation.scope(), knobs.nvidia.scope():
        knobs.compilation.always_compile = True  # what comes out of a cache says nothing
        knobs.nvidia.dump_ptxas_log = True
        try:
            return triton.compile(whole, target=gpu, options=source.options), said.getvalue()
        except Exception as error:  # Triton's own classes of them move between its versions
            raise Unreadable(f"{type(error).__name__}: {_start(str(error))}") from error


def _start(text: str) -> str:
    """The first lines, in one."""
    return " / ".join(line.strip() for line in text.strip().splitlines()[:4])[:300]
