"""Launches as the compiler sees them, compiled in a process of their own: here kernels are interpreted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

PROGRAM = """
import json, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from common.attention.kernels import static

found = []
for part, size, dtype, target, options in (
    ("forward", 64, torch.float16, "sm_80", {}),
    ("query", 80, torch.bfloat16, "sm_90", {"bias": torch.zeros(1, 2, 1, 500), "dropout_p": 0.1, "length": 500}),
):
    source = static.specialised(static.example(part, size, dtype, target, **options))
    made = triton.compile(
        ASTSource(source.kernel, source.signature, source.constexprs, source.attributes),
        target=GPUTarget("cuda", int(target[3:]), 32), options=source.options,
    )
    found.append({
        "signature": source.signature, "constexprs": {str(k): str(v) for k, v in source.constexprs.items()},
        "attributes": [list(path) for path in source.attributes], "wgmma": "wgmma.mma_async" in made.asm["ptx"],
        "mma": "mma.sync" in made.asm["ptx"], "warps": made.metadata.num_warps,
    })
print(json.dumps(found))
"""


MASKS = """
import json, torch
from common.attention import Blocks, Causal, Dilated, Full, Global, Padding, Random, Window
from common.attention.kernels import static

masks = [
    Causal(), Full(), Window(128, 128), Window(255, 0), Dilated(64, 64, 3), Window(64, 64) | Global([0, 300]),
    Blocks(torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) < 0.4, 64), Window(64, 64) | Random(2, 64, 0),
    Window(64, 64) & Padding.lengths(torch.tensor([400]), 512),
]
print(json.dumps({
    part: [str(static.specialised(static.example(part, 64, torch.bfloat16, "sm_90", mask=mask))[1:]) for mask in masks]
    for part in ("forward", "query", "key_value")
}))
"""


def in_a_process(program: str, cache: Path) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(cache)
    run = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_mask_changes_no_binary(tmp_path: Path) -> None:
    """What is compiled for a causal mask serves windows and sparse blocks: masks are lists that kernels read."""
    for part, sources in in_a_process(MASKS, tmp_path).items():
        assert len(sources) == 9 and len(set(sources)) == 1, part


def test_examples_compile_to_tensor_core_products(tmp_path: Path) -> None:
    """Arguments typed, ones made constants and multiples of 16 marked, as a launch would; what must not matter does not."""
    forward, query = in_a_process(PROGRAM, tmp_path)
    assert forward["mma"] and not forward["wgmma"] and query["wgmma"]
    assert (forward["warps"], query["warps"]) == (4, 4)

    names = list(forward["signature"])
    assert forward["signature"]["q"] == ["*fp16", "i32", "i32", "i32"] and forward["signature"]["lse"] == "*fp32"
    assert forward["signature"]["BLOCK_Q"] == "constexpr" and forward["constexprs"]["D"] == "64"
    assert {type(forward["signature"][name]) for name in ("lq", "lk", "heads", "group", "seed")} == {str}
    marked = {(names[path[0]], *path[1:]) for path in forward["attributes"]}
    assert {("q", 0), ("q", 1), ("q", 2), ("q", 3), ("lse",)} <= marked
    assert not {("lq",), ("lk",), ("heads",)} & marked  # 512 and 2, but one kernel is for all

    bias = list(query["signature"]).index("bias")
    assert query["signature"]["bias"] == ["*fp32", "i32", "i32", "i32", "constexpr"]  # keys lie next to each other
    assert query["constexprs"][f"({bias}, 4)"] == "1"
    assert [bias, 1] in query["attributes"] and [bias, 2] not in query["attributes"]  # strides 0 and 500
