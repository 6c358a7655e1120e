"""Launches as the compiler sees them, compiled in a process of their own: here kernels are interpreted."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_examples_compile_to_tensor_core_products(tmp_path: Path) -> None:
    """Arguments typed, ones made constants and multiples of 16 marked, as a launch would; what must not matter does not."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    forward, query = json.loads(run.stdout)
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
