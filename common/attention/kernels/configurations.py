"""Blocks, warps and stages of the flash kernels, linear attention and decoding, by pass: tables, without search at run time.

Those for 16 bit without bias and dropout spill no register and multiply on tensor cores, at 64 and 128 on sm_80 and sm_90
(Triton 3.7); `python -m common.attention.kernels` compiles them all, and fails where that is not so. What made them so: on
sm_90 two groups of 4 warps need 128 rows of what a program holds, or both do the same work; the pass of keys and values
holds two sums, so that at 128 it can look at 32 queries at a time only; on sm_80 operands lie in registers, so that its
blocks are smaller. A bias is loaded ahead into shared memory as fp32, and the random numbers of dropout need registers: both
have rows of their own. All for sm_80 fit into the 99 KiB of shared memory of sm_86 and sm_89.
"""

from typing import NamedTuple

import torch

PASSES = ("forward", "key_value", "query", "bias")
TARGETS = ("sm_80", "sm_90")


class Configuration(NamedTuple):
    """Queries and keys a tile, warps a program, stages of the pipeline of loads."""

    block_q: int
    block_k: int
    warps: int
    stages: int


class Key(NamedTuple):
    """A pass; the largest head_dim (of keys or values) that it is for; "16 bit" (fp16, bf16), "16 bit +" with a bias or
    dropout, or "32 bit"; "sm_90" (and what came after it in data centres) or "sm_80" (all others).

    The pass "bias", the gradient of one by distance, has square tiles.
    """

    part: str
    size: int
    kind: str
    target: str


C = Configuration
CONFIGURATIONS: dict[Key, tuple[Configuration, ...]] = {
    Key("forward", 64, "16 bit", "sm_80"): (C(64, 64, 4, 3), C(128, 64, 8, 3)),
    Key("forward", 64, "16 bit", "sm_90"): (C(128, 64, 4, 3), C(128, 128, 8, 2), C(128, 64, 8, 3)),
    Key("forward", 128, "16 bit", "sm_80"): (C(128, 64, 8, 2), C(64, 32, 4, 3)),
    Key("forward", 128, "16 bit", "sm_90"): (C(128, 128, 8, 2), C(128, 64, 8, 3)),
    Key("forward", 256, "16 bit", "sm_80"): (C(64, 32, 8, 2),),
    Key("forward", 256, "16 bit", "sm_90"): (C(128, 64, 8, 2), C(128, 32, 8, 2)),
    Key("key_value", 64, "16 bit", "sm_80"): (C(32, 128, 8, 2), C(32, 64, 4, 3)),
    Key("key_value", 64, "16 bit", "sm_90"): (C(64, 128, 8, 2), C(64, 64, 4, 2)),
    Key("key_value", 128, "16 bit", "sm_80"): (C(64, 64, 8, 2), C(32, 64, 8, 2)),
    Key("key_value", 128, "16 bit", "sm_90"): (C(32, 128, 8, 2), C(32, 128, 8, 3)),
    Key("key_value", 256, "16 bit", "sm_80"): (C(32, 32, 8, 2),),
    Key("key_value", 256, "16 bit", "sm_90"): (C(16, 64, 8, 2), C(32, 32, 8, 2)),
    Key("query", 64, "16 bit", "sm_80"): (C(128, 64, 8, 3), C(64, 64, 4, 2)),
    Key("query", 64, "16 bit", "sm_90"): (C(128, 64, 8, 3), C(64, 64, 4, 2)),
    Key("query", 128, "16 bit", "sm_80"): (C(64, 64, 8, 2), C(64, 32, 4, 2)),
    Key("query", 128, "16 bit", "sm_90"): (C(128, 64, 8, 2), C(64, 64, 4, 2)),
    Key("query", 256, "16 bit", "sm_80"): (C(32, 32, 4, 2),),
    Key("query", 256, "16 bit", "sm_90"): (C(128, 32, 8, 2), C(64, 32, 8, 2)),
    Key("bias", 64, "16 bit +", "sm_80"): (C(32, 32, 4, 2),),
    Key("bias", 64, "16 bit +", "sm_90"): (C(64, 64, 8, 2),),
    Key("bias", 128, "16 bit +", "sm_80"): (C(32, 32, 4, 2),),
    Key("bias", 128, "16 bit +", "sm_90"): (C(64, 64, 8, 2),),
    Key("bias", 256, "16 bit +", "sm_80"): (C(16, 16, 4, 2),),
    Key("bias", 256, "16 bit +", "sm_90"): (C(64, 64, 8, 1),),
} | {
    Key(part, size, "16 bit +", target): (chosen,)
    for part, size, chosen in (
        ("forward", 64, C(128, 64, 8, 2)), ("forward", 128, C(64, 32, 4, 2)), ("forward", 256, C(32, 32, 4, 2)),
        ("key_value", 64, C(64, 32, 8, 2)), ("key_value", 128, C(64, 32, 8, 2)), ("key_value", 256, C(32, 32, 8, 2)),
        ("query", 64, C(128, 64, 8, 2)), ("query", 128, C(64, 32, 4, 2)), ("query", 256, C(32, 32, 8, 2)),
    )
    for target in TARGETS
} | {
    # Exact products in fp32 are no work for tensor cores and are unrolled: larger tiles take minutes to compile.
    Key(part, size, "32 bit", target): (C(block, block, 8, 1),)
    for part in PASSES
    for size, block in ((64, 32), (128, 16), (256, 16))
    for target in TARGETS
}  # fmt: skip
"""The first is used; the others are for a benchmark to try. fp64, for the interpreter alone, takes those of 32 bit."""


class Tile(NamedTuple):
    """Features and values that a program of linear attention holds, or takes one after another, its warps, and stages of the
    pipeline of loads."""

    features: int
    values: int
    warps: int
    stages: int


LINEAR_PASSES = ("states", "outputs", "d_states", "d_features", "d_values")
LINEAR_CHUNKS = {"16 bit": 64, "32 bit": 32}
"""Queries and keys a chunk, the same in all passes. With 128, sums at the seams would be half the traffic, and a
multiprocessor would hold one program of most passes rather than two or three."""

T = Tile
LINEAR: dict[tuple[str, str, str], Tile] = {
    (part, kind, target): tile
    for part, kind, *tiles in (
        ("states", "16 bit", T(64, 64, 4, 3), T(64, 64, 4, 3)),
        ("states", "16 bit log", T(64, 64, 4, 2), T(64, 64, 4, 3)),
        ("outputs", "16 bit", T(32, 64, 4, 2), T(64, 64, 4, 2)),
        ("outputs", "16 bit log", T(16, 64, 4, 2), T(32, 64, 4, 2)),
        ("d_states", "16 bit", T(64, 64, 4, 2), T(64, 64, 4, 3)),
        ("d_states", "16 bit log", T(64, 64, 4, 2), T(64, 64, 4, 3)),
        ("d_features", "16 bit", T(32, 32, 4, 2), T(64, 64, 4, 2)),
        ("d_features", "16 bit log", T(32, 32, 4, 2), T(32, 64, 4, 2)),
        ("d_values", "16 bit", T(32, 64, 4, 2), T(64, 64, 4, 2)),
        ("d_values", "16 bit log", T(32, 64, 4, 2), T(32, 64, 4, 2)),
    )
    for target, tile in zip(TARGETS, tiles, strict=True)
} | {
    (part, kind, target): T(32, 32, 8, 1)
    for part in LINEAR_PASSES
    for kind in ("32 bit", "32 bit log")
    for target in TARGETS
}
"""By pass, kind (of what is multiplied, and whether features are logarithms) and target, for any number of features and values.

Those of 16 bit spill no register and multiply on tensor cores, for bf16 and values of 64 and 128 (Triton 3.7).
"""


def linear(part: str, dtype: torch.dtype, log: bool, target: str) -> Tile:
    """For one of LINEAR_PASSES and the type of what is multiplied; fp64 takes that of 32 bit."""
    return LINEAR[part, _bits(dtype) + " log" * log, target]


def linear_chunk(dtype: torch.dtype) -> int:
    """Queries and keys a chunk, for the type of what is multiplied."""
    return LINEAR_CHUNKS[_bits(dtype)]


class DecodeTile(NamedTuple):
    """Keys that a program of decoding takes at a time, its warps, and stages of the pipeline of loads."""

    keys: int
    warps: int
    stages: int


FEW_ROWS = 32
"""Up to which a tile of decoding is one of few rows."""

D = DecodeTile
DECODE: dict[tuple[int, str, str], DecodeTile] = {
    (size, kind, target): tile
    for size, kind, *tiles in (
        (64, "16 bit", D(128, 4, 2), D(128, 4, 3)),
        (128, "16 bit", D(64, 4, 2), D(64, 4, 3)),
        (256, "16 bit", D(32, 4, 2), D(32, 4, 3)),
        (64, "16 bit, many rows", D(32, 4, 2), D(32, 4, 3)),
        (128, "16 bit, many rows", D(32, 4, 2), D(32, 4, 3)),
        (256, "16 bit, many rows", D(32, 8, 2), D(32, 8, 3)),
        (64, "32 bit", D(32, 8, 2), D(32, 8, 2)),
        (128, "32 bit", D(16, 8, 2), D(16, 8, 2)),
        (256, "32 bit", D(16, 8, 1), D(16, 8, 1)),
    )
    for target, tile in zip(TARGETS, tiles, strict=True)
}
"""By the largest head_dim (of keys or values), kind (the type of the queries, and how many rows) and target, however the cache
is stored. Decoding waits for memory: with few rows a stage has 32 KiB of keys and values on their way. Those of 16 bit spill no
register and multiply on tensor cores, for bf16 at 64 and 128 (Triton 3.7); many rows leave room for fewer keys.
"""


def decode(size: int, rows: int, dtype: torch.dtype, target: str) -> DecodeTile:
    """For the larger head_dim of keys and values, the rows of a tile, the type of the queries, and one of TARGETS."""
    kind = _bits(dtype)
    if kind == "16 bit" and rows > FEW_ROWS:
        kind += ", many rows"
    return DECODE[min(most for most, *rest in DECODE if rest == [kind, target] and size <= most), kind, target]


def _bits(dtype: torch.dtype) -> str:
    return "32 bit" if dtype.itemsize > 2 else "16 bit"


def choose(part: str, size: int, dtype: torch.dtype, more: bool, target: str) -> Configuration:
    """For a pass, the larger of the head_dims of keys and values, the type of the inputs, whether there is a bias or dropout,
    and one of TARGETS."""
    kind = "32 bit" if dtype.itemsize > 2 else "16 bit +" if more else "16 bit"
    sizes = [key.size for key in CONFIGURATIONS if (key.part, key.kind, key.target) == (part, kind, target)]
    return CONFIGURATIONS[Key(part, min(most for most in sizes if size <= most), kind, target)][0]


def target_of(device: torch.device) -> str:
    """The one of TARGETS whose configurations a device takes; "sm_80" for a CPU, where it makes no difference, and for AMD,
    whose numbers look like NVIDIA's (9.4) but whose 64 KiB of shared memory do not hold what sm_90's take."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    if nvidia and torch.cuda.get_device_capability(device)[0] in (9, 10):
        return "sm_90"
    return "sm_80"
