"""What kernels become for a GPU: how it is read and judged here, and the whole of it in processes that may compile."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from common.attention.kernels import configurations
from common.attention.kernels.__main__ import chosen
from common.attention.kernels.catalogue import DECODE, MORE_HEADS, Row, rows
from common.attention.kernels.compiled import Compiled, Unreadable, assembly, products, ptx, ptxas
from common.attention.kernels.configurations import CONFIGURATIONS, LINEAR_PASSES, Configuration
from common.attention.kernels.occupancy import occupancy
from common.attention.kernels.page import Result, faults, page

PLANTED = """
import os, sys
import torch, triton, triton.language as tl
from common.attention.kernels.catalogue import Row
from common.attention.kernels.configurations import Configuration
from common.attention.kernels.launch import Launch
from common.attention.kernels.page import page, results

@triton.jit
def trap(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(c + at, tl.sum(x[:, :, None] * y[None], 1))

class Trap(Row):
    def launch(self):
        x = torch.zeros(32, 32)
        return Launch(trap, 1, {"a": x, "b": x, "c": x, "N": 32}, {"num_warps": 4})

class Dying(Row):
    def launch(self):
        os._exit(3)

ROWS = (
    Row("planted", "key_value", "sm_90", "bf16", 128, Configuration(64, 64, 4, 2), "", True),
    Row("planted", "forward", "sm_90", "fp32", 64, Configuration(32, 32, 8, 1), "", True),
    Row("planted", "forward", "sm_90", "bf16", 128, Configuration(128, 128, 8, 3)),
    Trap("planted", "trap", "sm_80", "fp32", 32),
    Dying("planted", "dying", "sm_80", "fp32", 32),
    *[Row("planted", "delta", "sm_80", "bf16", 64, Configuration(64, 64, 4, 2), "", True)] * 2,
)

def main():
    wrong = []
    print(*page(results(ROWS, 1), wrong), sep="\\n")
    print(*wrong, sep="\\n", file=sys.stderr)
"""


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")} | variables
    return subprocess.run([sys.executable, *command], check=False, capture_output=True, text=True, env=environment)


def kernels(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "common.attention.kernels", *words, **variables)


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "expected"),
    [
        # 168 registers are 5376 a warp: 3 warps in each quarter of 16384
        ("sm_90", 168, 1000, 4, (3, 12, "registers")),
        ("sm_80", 168, 1000, 8, (1, 8, "registers")),
        # 169 take 5408, given as 5632: 2 a quarter
        ("sm_80", 169, 1000, 4, (2, 8, "registers")),
        ("sm_90", 32, 98304, 8, (2, 16, "shared")),  # 228 KiB hold two of 96 + 1
        ("sm_80", 32, 98304, 8, (1, 8, "shared")),  # 164 do not
        ("sm_80", 32, 81 * 1024, 8, (2, 16, "shared")),
        ("sm_80", 32, 82 * 1024, 8, (1, 8, "shared")),
        ("sm_80", 32, 163 * 1024, 4, (1, 4, "shared")),
        ("sm_80", 32, 163 * 1024 + 1, 4, (0, 0, "shared")),
        ("sm_90", 32, 227 * 1024, 4, (1, 4, "shared")),
        ("sm_90", 32, 227 * 1024 + 1, 4, (0, 0, "shared")),
        ("sm_90", 24, 0, 8, (8, 64, "warps")),
        ("sm_90", 16, 0, 1, (32, 32, "registers")),  # warps come in fours
        ("sm_90", 8, 0, 1, (32, 32, "blocks")),
        ("sm_90", 255, 0, 12, (0, 0, "registers")),
        # 158 are 160 of 512 a lane: 3 waves a SIMD, as LLVM has it for the forward pass at 64
        ("gfx942", 158, 0, 4, (3, 12, "registers")),
        ("gfx942", 158, 40960, 4, (1, 4, "shared")),
        ("gfx942", 24, 32769, 4, (1, 4, "shared")),
        ("gfx942", 64, 0, 8, (4, 32, "registers")),
        ("gfx942", 24, 65537, 4, (0, 0, "shared")),
    ],
)
def test_occupancy_by_hand(
    target: str, registers: int, shared: int, warps: int, expected: tuple[int, int, str]
) -> None:
    assert occupancy(target, registers, shared, warps) == expected


LOG = """ptxas info    : 11 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'query_kernel' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for query_kernel
    24 bytes stack frame, 36 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 584 bytes cmem[0]
"""


def test_ptxas_is_read_and_never_guessed() -> None:
    read = ptxas(LOG)
    assert (read["registers"], read["stack"], read["spill_stores"], read["spill_loads"]) == (255, 24, 36, 20)
    assert read["notes"] == ("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",)
    for wrong in ("", LOG.replace("Used 255 registers", ""), LOG.replace("spill loads", "spills"), LOG + LOG,
                  LOG.replace("255", "0")):  # fmt: skip
        with pytest.raises(Unreadable, match="ptxas -v"):
            ptxas(wrong)


def test_instructions_are_counted_by_kind() -> None:
    text = """
    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r1};
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1};
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r1};
    wgmma.fence.sync.aligned; fma.rn.f32 %f1;"""
    assert ptx(text) == {"wgmma": 1, "mma": 2, "mfma": 0, "tf32": 1}


def test_amd_metadata() -> None:
    text = """
    v_mfma_f32_32x32x8_bf16_1k a[0:15], v[4:5]
    v_mfma_f32_16x16x8_xf32 a[0:3], v[4:5]
    v_fma_f32 v4, v5
  - .agpr_count:     16
    .private_segment_fixed_size: 40
    .sgpr_count:     55
    .sgpr_spill_count: 2
    .vgpr_count:     158
    .vgpr_spill_count: 3
"""
    read = assembly(text)
    assert (read["registers"], read["stack"], read["spill_stores"], read["spill_loads"]) == (158, 40, 12, None)
    assert (read["mfma"], read["tf32"], read["notes"]) == (2, 1, ("2 scalar registers spilled",))
    with pytest.raises(Unreadable, match="vgpr_spill_count"):
        assembly(text.replace(".vgpr_spill_count", ".spills"))


def test_products_by_where_they_are_made() -> None:
    before = "%1 = tt.dot %a, %b : x\n%2 = tt.dot %a, %b : x\n%3 = tt.dot %a, %b, inputPrecision = tf32 : x\n"
    after = """#blocked = #ttg.blocked<{order = [1, 0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3}>
%1 = ttng.warp_group_dot %a, %b : memdesc<64x64xbf16, #shared> * x -> tensor<64x64xf32, #mma> loc(#loc1)
%2 = ttng.warp_group_dot_wait %1 : tensor<64x64xf32, #mma>
%3 = tt.dot %a, %b : tensor<64x16xf32, #ttg.dot_op<{parent = #blocked}>> * x -> tensor<64x16xf32, #blocked> loc(#loc2)
%4 = tt.dot %a, %b : x * x -> tensor<64x16xf32, #mma> loc(#loc2)
"""
    assert products(before, after) == {"products": 3, "in_units": 2}
    for wrong in (after.replace("#blocked = ", "#other = "), after.replace("%4 = tt.dot", "%4 = tt.times"),
                  after.replace("-> tensor<64x64xf32, #mma>", "-> tensor<64x64xf32>")):  # fmt: skip
        with pytest.raises(Unreadable, match="products"):
            products(before, wrong)


GOOD = Compiled(200, 0, 0, 0, 90000, 8, 2, 4, 4, 32, 0, 0, 0)
HEADLINE = Row("", "forward", "sm_90", "bf16", 128, Configuration(128, 128, 8, 2), headline=True)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"spill_stores": 4}, "spills"), ({"spill_loads": 4}, "spills"), ({"stack": 8}, "spills"),
        ({"in_units": 3}, "1 of 4 products"), ({"wgmma": 0}, "no tensor-core instruction"),
        ({"products": 0, "in_units": 0}, "for 0 products"), ({"shared": 227 * 1024 + 1}, "232448 are to be had"),
        ({"warps": 16}, "more registers"),
    ],
)  # fmt: skip
def test_each_fault_of_a_headline_kernel(changed: dict[str, int], reason: str) -> None:
    assert faults(HEADLINE, GOOD) == [] and faults(HEADLINE, GOOD._replace(wgmma=0, mma=1)) == []
    [found] = faults(HEADLINE, GOOD._replace(**changed))
    assert reason in found


def test_what_is_a_fault_elsewhere() -> None:
    other = replace(HEADLINE, dtype="fp32", headline=False)
    spilt = GOOD._replace(spill_stores=4, in_units=0, wgmma=0)
    assert faults(other, spilt) == []
    assert faults(replace(other, dtype="bf16"), spilt._replace(tf32=1)) == []
    assert faults(other, spilt._replace(tf32=1)) == ["1 matrix instructions round fp32 to tf32"]
    large = GOOD._replace(shared=99 * 1024 + 1)  # of sm_86
    assert "101376 are to be had" in faults(replace(other, target="sm_80"), large)[0]
    assert faults(replace(other, target="gfx942"), large) == []
    for kernel in ("delta", "decode merge"):
        assert faults(replace(HEADLINE, kernel=kernel), GOOD._replace(products=0, in_units=0, wgmma=0)) == []


def test_what_did_not_compile_is_a_fault_and_shows_no_number() -> None:
    wrong: list[str] = []
    [section] = page([Result(HEADLINE, "`ptxas` failed", "128x128")], wrong)
    assert wrong == ["forward 128 bf16 sm_90 128x128: `ptxas` failed"]
    line = section.splitlines()[-1]
    assert line.split("  ")[-1] == "FAILED: `ptxas` failed" and "0" not in line.split("?", 1)[1]


def test_all_configurations_are_listed_and_the_headline_is_what_it_says() -> None:
    listed = list(rows())
    assert len(set(listed)) == len(listed)
    found = {(row.kernel, row.size, row.target, row.configuration, row.dtype == "fp32") for row in listed}
    for key, several in CONFIGURATIONS.items():
        for one in several:
            assert (key.part, key.size, key.target, one, key.kind == "32 bit") in found
    linear = {row for row in listed if row.headline and row.kernel.startswith("linear ")}
    assert {(row.kernel, row.size, row.target, row.dtype, row.extra) for row in linear} == {
        (f"linear {part}", size, target, "bf16", extra)
        for part in LINEAR_PASSES for size in (64, 128) for target in ("sm_80", "sm_90") for extra in ("", "log")
    }  # fmt: skip
    decode = {row for row in listed if row.headline and row.kernel.startswith("decode ")}
    assert {(row.kernel, row.size, row.target, row.dtype, row.extra) for row in decode} == {
        (f"decode {part}", size, target, "bf16", extra)
        for size in (64, 128) for target in ("sm_80", "sm_90")
        for part, extra in (("merge", ""), *(("split", extra) for extra in (*DECODE, *MORE_HEADS)))
    }  # fmt: skip
    headline = {row for row in listed if row.headline} - linear - decode
    assert {(row.kernel, row.size, row.target, row.dtype, row.extra) for row in headline} == {
        (kernel, size, target, "bf16", "")
        for kernel in ("forward", "delta", "key_value", "query") for size in (64, 128) for target in ("sm_80", "sm_90")
    }  # fmt: skip
    several = [row for row in headline if (row.kernel, row.size, row.target) == ("forward", 64, "sm_90")]
    assert [row.in_use for row in several].count(True) == 1 and len(several) == 3
    assert {row.target for row in listed} == {"sm_80", "sm_90", "gfx942"}


def test_words_choose_rows() -> None:
    some = chosen(["kernel=forward,query", "size=128", "target=sm_90", "dtype=fp16"])
    assert [row.kernel for row in some] == ["forward", "query"]
    for word, reason in (("size", "expected key=value"), ("warps=8", "expected key=value"), ("size=65", "got '65'")):
        with pytest.raises(ValueError, match=reason):
            chosen([word])
    with pytest.raises(ValueError, match="at once"):
        chosen(["kernel=rotary", "size=256"])


@pytest.mark.parametrize(
    ("capability", "hip", "expected"),
    [((9, 0), None, "sm_90"), ((10, 0), None, "sm_90"), ((8, 6), None, "sm_80"), ((12, 0), None, "sm_80"),
     ((9, 4), "7.0", "sm_80")],
)  # fmt: skip
def test_configurations_of_a_device(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], hip: Any, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert configurations.target_of(torch.device("cuda")) == expected


def test_command_prints_and_passes() -> None:
    done = kernels("kernel=rotary,additive values", "dtype=fp32", "target=sm_80")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Triton 3.") and "ptxas" in done.stdout
    shown = [line.split() for line in done.stdout.splitlines() if line.startswith(("rotary ", "additive values "))]
    assert [(line[0], line[-1]) for line in shown] == [*zip(["additive"] * 2 + ["rotary"] * 2, "0100", strict=True)]
    assert done.stdout.endswith("4 kernels, 0 of them headline: no faults\n")


def test_command_refuses() -> None:
    done = kernels(TRITON_INTERPRET="1")
    assert done.returncode == 2 and "unset TRITON_INTERPRET" in done.stderr and done.stdout == ""
    done = kernels("target=sm_75")
    assert done.returncode == 2 and "got 'sm_75', expected of gfx942, sm_80, sm_90" in done.stderr


@pytest.mark.parametrize(
    ("then", "reason"),
    [("echo out of luck >&2; exit 3", "`ptxas` failed with error code 3 / `ptxas` stderr: / out of luck"),
     ('"$REAL" "$@" 2>/dev/null', "ptxas -v: got '', expected one line of spills")],
)  # fmt: skip
def test_a_ptxas_that_fails_or_is_silent_fails_the_check(tmp_path: Path, then: str, reason: str) -> None:
    import triton

    real = str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas")
    tool = tmp_path / "ptxas"
    tool.write_text(f'#!/bin/sh\ncase "$1" in --version) exec "$REAL" --version;; esac\n{then}\n', encoding="utf-8")
    tool.chmod(0o755)
    done = kernels("kernel=rotary", "dtype=fp32", "target=sm_80", "size=64", TRITON_PTXAS_PATH=str(tool), REAL=real)
    assert done.returncode == 1, done.stdout + done.stderr
    assert str(tool) in done.stdout.splitlines()[0] and "1 kernels, 0 of them headline: 1 fault\n" in done.stdout
    assert reason in done.stdout.splitlines()[-1]


def test_planted_kernels_are_found(tmp_path: Path) -> None:
    """A spill; fp32 by the number where tensor cores are asked for; too large a block; a sum that Triton makes a product in
    tf32; a compiler that dies. The rows after it compile, the second one too, which a cache could answer without ptxas."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    done = run("-c", "import planted; planted.main()", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    spill, units, none, large, trap, dying = done.stderr.strip().splitlines()
    assert spill.startswith("key_value 128 bf16 sm_90 64x64: spills: ") and " 0 stored" not in spill
    assert units == "forward 64 fp32 sm_90 32x32: 4 of 4 products are not on tensor cores"
    assert none == "forward 64 fp32 sm_90 32x32: no tensor-core instruction for 4 products"
    assert large.startswith("forward 128 bf16 sm_90 128x128: takes ") and large.endswith("232448 are to be had")
    assert trap.startswith("trap 32 fp32 sm_80: ") and trap.endswith("round fp32 to tf32")
    assert dying == "dying 32 fp32 sm_80: the compiling process died"
    for line in done.stdout.splitlines()[-2:]:
        assert line.startswith("! delta ") and line.endswith(" 0 of 0")
