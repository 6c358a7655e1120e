"""How many blocks of a kernel a multiprocessor holds at once, by the published limits of its architecture.

NVIDIA: CUDA Programming Guide, appendix "Compute Capabilities", table of technical specifications (registers, shared memory,
warps and blocks of a multiprocessor). CUDA's occupancy calculator, whose rules cuda_occupancy.h in the toolkit spells out:
registers are given to a warp in units of 256, each quarter of a multiprocessor holds a quarter of them, shared memory comes
in units of 128 bytes. Ampere and Hopper tuning guides: the system keeps 1 KiB of shared memory a block for itself.

AMD: CDNA 3 instruction set manual (512 vector registers a lane of each of the four SIMDs, 64 KiB of LDS, 64 lanes), and the
LLVM user guide for AMDGPU with LLVM's AMDGPUBaseInfo.cpp (registers in units of 8 a lane, 8 waves a SIMD, LDS in units of
512 bytes, 16 groups of more than one wave). A multiprocessor is a compute unit, a warp a wave, shared memory LDS; scalar
registers are not counted.
"""

from typing import NamedTuple

KIB = 1024
QUARTERS = 4


class Limits(NamedTuple):
    """Of a multiprocessor. Shared memory in bytes, `kept` for the system a block; units are what is given out at least."""

    lanes: int
    registers: int
    register_unit: int
    shared: int
    shared_of_block: int
    shared_unit: int
    kept: int
    warps: int
    blocks: int


LIMITS = {
    "sm_80": Limits(32, 65536, 256, 164 * KIB, 163 * KIB, 128, KIB, 64, 32),
    "sm_90": Limits(32, 65536, 256, 228 * KIB, 227 * KIB, 128, KIB, 64, 32),
    "gfx942": Limits(64, 131072, 512, 64 * KIB, 64 * KIB, 512, 0, 32, 16),
}
SMALLEST_OF_SM_80 = 99 * KIB
"""Shared memory of a block on sm_86 and sm_89, which take the configurations of sm_80."""


class Occupancy(NamedTuple):
    """Blocks and warps of one multiprocessor, and what lets no more in: "registers", "shared", "warps" or "blocks"."""

    blocks: int
    warps: int
    limit: str


def occupancy(target: str, registers: int, shared: int, warps: int) -> Occupancy:
    """For registers a thread, bytes of shared memory and warps a block. No blocks where one does not fit."""
    limits = LIMITS[target]
    of_warp = _up(registers * limits.lanes, limits.register_unit)
    of_block = _up(shared + limits.kept, limits.shared_unit)
    allowed = {
        "registers": limits.registers // QUARTERS // of_warp * QUARTERS // _up(warps, QUARTERS),
        "shared": 0 if shared > limits.shared_of_block else limits.shared // max(of_block, 1),
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    if not shared + limits.kept:
        del allowed["shared"]
    limit = min(allowed, key=lambda name: allowed[name])
    return Occupancy(allowed[limit], allowed[limit] * warps, limit)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
