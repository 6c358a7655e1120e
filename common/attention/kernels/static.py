"""Launches as Triton's compiler wants them, so that kernels can be compiled for a GPU where there is none.

    source = specialised(example("forward", 128, torch.bfloat16, "sm_90"))
    triton.compile(ASTSource(source.kernel, source.signature, source.constexprs, source.attributes),
                   target=GPUTarget("cuda", 90, 32), options=source.options)

Needs kernels that are not interpreted.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from common.attention.cache import CacheShape, PagedCache, StaticCache
from common.attention.kernels import additive, configurations, decode_launch, launch, linear_launch
from common.attention.kernels.configurations import Configuration
from common.attention.kernels.rotary import turn
from common.attention.masks import Causal, Mask

TYPES = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64",
    torch.uint8: "u8", torch.int8: "i8", torch.int32: "i32", torch.int64: "i64", torch.bool: "i1",
}  # fmt: skip
ALIGNED = [["tt.divisibility", 16]]


class Source(NamedTuple):
    """What `triton.compiler.ASTSource` takes, in its order, and the options of the compilation."""

    kernel: Any
    signature: dict[str, Any]
    constexprs: dict[Any, Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, int]


def specialised(launched: launch.Launch) -> Source:
    """With the types, the ones and the multiples of 16 that a true launch would be compiled for."""
    kernel = launched.kernel
    source = Source(kernel, {}, {}, {}, launched.options)
    for place, parameter in enumerate(kernel.params):
        value = launched.arguments[parameter.name]
        if parameter.is_constexpr:
            source.signature[parameter.name] = "constexpr"
            source.constexprs[parameter.name] = value
        else:
            source.signature[parameter.name] = _signature(value, (place,), parameter.do_not_specialize, source)
    return source


def _signature(value: Any, path: tuple[int, ...], plain: bool, source: Source) -> Any:
    if isinstance(value, tuple):
        inner = (_signature(part, (*path, place), plain, source) for place, part in enumerate(value))
        return type(value)(*inner)  # type: ignore[misc]
    if isinstance(value, Tensor):
        if value.data_ptr() % 16 == 0:
            source.attributes[path] = ALIGNED
        return "*" + TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    if value == 1 and not plain:
        source.constexprs[path] = 1
        return "constexpr"
    if value % 16 == 0 and not plain:
        source.attributes[path] = ALIGNED
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"


def example(
    part: str,
    size: int,
    dtype: torch.dtype,
    target: str,
    *,
    configuration: Configuration | None = None,
    size_v: int | None = None,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    length: int = 512,
) -> launch.Launch:
    """A launch of a pass ("forward", "delta", "key_value", "query", "bias") as on "sm_80" or "sm_90", on the CPU.

    For head_dims size and size_v (as size unless given): 2 query heads on 1 key head, causal unless given; "bias" has one
    by distance, others what they are given. configuration: the table's first unless given.
    """
    listed, more = "query" if part == "delta" else part, part == "bias" or bias is not None or dropout_p > 0
    chosen = {listed: configuration or configurations.choose(listed, max(size, size_v or 0), dtype, more, target)}
    heads = {"q": 2, "k": 1, "v": 1, "o": 2}
    widths = {"q": size, "k": size, "v": size_v or size, "o": size_v or size}
    q, k, v, o = (torch.zeros(1, heads[name], length, widths[name], dtype=dtype) for name in heads)
    if part == "bias" and bias is None:
        bias = torch.zeros(2, 2 * length - 1)
    problem = launch.Problem(q, k, v, mask or Causal(), bias, size**-0.5, dropout_p, 12345, chosen)
    lse = torch.zeros(q.shape[:3], dtype=problem.wide)
    if part == "forward":
        return launch.forward(problem, o, lse)
    if part == "delta":
        return launch.delta(problem, o, o, lse)
    if part == "key_value":
        return launch.key_value(problem, o, lse, lse, k, v)
    if part == "query":
        return launch.query(problem, o, lse, lse, q, None)
    assert part == "bias", part
    return launch.bias_sums(problem, o, lse, lse)[0]


ADDITIVE = ("forward", "scores", "queries", "keys", "values")
"""Kernels of additive attention: its forward pass, and the gradients of these."""


def additive_example(
    part: str, steps: int, dtype: torch.dtype, *, source: int = 50, size: int = 1000, width: int = 2000
) -> launch.Launch:
    """A launch of one of ADDITIVE for `steps` queries a sentence, 1 for a decoder's step. Bahdanau et al.'s sizes, unless
    given: sentences of 50, 1000 hidden units in the score, annotations of 2000."""
    queries, outputs = torch.zeros(2, steps, size, dtype=dtype), torch.zeros(2, steps, width, dtype=dtype)
    keys, values = torch.zeros(2, source, size, dtype=dtype), torch.zeros(2, source, width, dtype=dtype)
    v, keep = torch.zeros(size, dtype=dtype), torch.ones(2, source, dtype=torch.bool)
    lse, de = torch.zeros(2, steps), torch.zeros(2, steps, source)
    weights = de.to(dtype)
    if part == "forward":
        return additive.forward(queries, keys, values, v, keep, outputs, lse)
    if part == "scores":
        return additive.score_gradients(queries, keys, values, v, keep, outputs, lse, outputs, weights, de)
    if part == "queries":
        return additive.side_gradient(queries, keys, v, keep, de, queries, None)
    if part == "keys":
        parts = torch.zeros(additive.parts_of(keys, queries), size)
        return additive.side_gradient(keys, queries, v, keep, de.transpose(1, 2), keys, parts)
    assert part == "values", part
    return additive.value_gradients(weights, outputs, values)


def linear_example(
    part: str, size: int, dtype: torch.dtype, target: str, *, causal: bool, log: bool, features: int = 256, length: int = 512
) -> launch.Launch:  # fmt: skip
    """A launch of one of LINEAR_PASSES for values of `size` in a dtype; logarithms are fp32, as `features.positive` gives
    them under autocast too."""
    of_features = torch.float32 if log else dtype
    q, k = (torch.zeros(2, 2, length, features, dtype=of_features) for _ in range(2))
    v = torch.zeros(2, 2, length, size, dtype=dtype)
    problem = linear_launch.Problem(q, k, v, None, causal, log, target)
    sums, norms = problem.empty_slots()
    logs, totals = norms if log else None, torch.zeros(2, 2, length)
    if part == "states":
        return linear_launch.states(problem, sums, norms, logs)
    if part == "outputs":
        return linear_launch.outputs(problem, sums, norms, logs, v, totals)
    if part == "d_states":
        return linear_launch.d_states(problem, v, totals, totals, logs, sums, norms)
    if part == "d_features":
        return linear_launch.d_features(problem, v, totals, totals, sums, norms, logs, sums, norms, q, k)
    assert part == "d_values", part
    return linear_launch.d_values(problem, v, totals, logs, sums, v)


DECODE = ("split", "merge")
"""Kernels of decoding."""


def decode_example(
    part: str, size: int, dtype: torch.dtype, target: str, *, heads: int = 8, stored: torch.dtype | None = None,
    page_size: int | None = None, length: int = 512,
) -> launch.Launch:  # fmt: skip
    """A launch of one of DECODE for a query of `heads` heads on one key head, 2 sequences. page_size: None: without pages."""
    shape = CacheShape(kv_heads=1, key_dim=size, value_dim=size, dtype=dtype, stored=stored)
    if page_size is None:
        cache = StaticCache(shape, sequences=2, capacity=length)
    else:
        cache = PagedCache(shape, sequences=2, pages=2 * length // page_size, page_size=page_size)
    cache.append(*(torch.zeros(2, 1, length, size, dtype=dtype) for _ in range(2)))
    problem = decode_launch.Problem(torch.zeros(2, heads, 1, size, dtype=dtype), cache, size**-0.5, target=target)
    bounds = problem.bounds()
    splits = problem.divided(bounds)
    sums = torch.zeros(2, heads, 1, splits.count, size)
    made, told = decode_launch.Parts(sums, sums[..., 0], sums[..., 0]), decode_launch.on_device(bounds, sums.device)
    if part == "split":
        return decode_launch.split(problem, told, splits, made)
    assert part == "merge", part
    return decode_launch.merge(problem, told, splits, made, problem.q)


def rotary_example(size: int, dtype: torch.dtype, length: int = 512) -> launch.Launch:
    """A launch for head_dim size, 2 heads, with the same angles for every sentence and head."""
    x = torch.zeros(2, 2, length, size, dtype=dtype)
    angle = torch.zeros(length, size // 2).expand(2, 2, -1, -1)
    return turn(x, angle, angle, x, False)
