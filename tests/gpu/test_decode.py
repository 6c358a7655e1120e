"""The kernels of decoding compiled, with the tiles of the table: what tests/common/attention/kernels asks for, on a GPU."""

import statistics
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from common.attention.cache import CacheShape, PagedCache, StaticCache
from common.attention.decoding import decode_attention
from common.attention.kernels.decode_launch import Problem, launches
from common.bench.timing import interleaved, seconds_of
from tests.common.attention.plain_decoding import Case, append, assert_within_gate, filled, poison, queries, run

HALF, BRAIN, SINGLE, INT8 = torch.float16, torch.bfloat16, torch.float32, torch.int8
LENGTHS = (1000, 0, 1, 64, 65, 2111)
HEADS = [(8, 8), (8, 2), (32, 1), (70, 1)]
RUNS = 20


@pytest.mark.parametrize("dtype", [SINGLE, HALF, BRAIN], ids=str)
@pytest.mark.parametrize("stored", [None, INT8], ids=str)
@pytest.mark.parametrize("kind", ["static", "paged"])
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (80, 96), (33, 200)], ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_outputs(count: int, dims: tuple[int, int], kind: str, stored: torch.dtype | None, dtype: torch.dtype) -> None:
    case = Case(kind, 8, 2, count, LENGTHS, dims, dtype, stored, page=16)
    assert_within_gate(case, queries(case), *filled(case, "cuda"))


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("splits", [None, 1, 7, 100])
def test_heads_and_splits(splits: int | None, heads: tuple[int, int]) -> None:
    case = Case("paged", *heads, 1, LENGTHS, (128, 128), BRAIN, splits=splits, page=7)
    assert_within_gate(case, queries(case), *filled(case, "cuda"))


@pytest.mark.parametrize("window", [1, 100, 1500])
@pytest.mark.parametrize("kind", ["growing", "paged", "sliding"])
def test_windows(kind: str, window: int) -> None:
    case = Case(kind, 8, 2, 1 if kind == "sliding" else 3, LENGTHS, (64, 64), HALF, window=window, page=32)
    assert_within_gate(case, queries(case), *filled(case, "cuda"))


def test_shared_pages_and_another_order() -> None:
    case = Case("paged", lengths=(300, 200), page=16, dims=(64, 64), dtype=BRAIN)
    cache, known = filled(case, "cuda")
    cache.fork(2)
    known.reorder([0, 0, 1, 1])
    append(case, cache, known, (1, 2, 1, 0), seed=9)
    for each in (cache, known):
        each.reorder([3, 1, 1])
    poison(cache)
    assert_within_gate(case, queries(case, 3), cache, known)


def test_the_same_bits_each_time() -> None:
    case = Case("paged", 32, 8, 1, (5000, 333), (128, 128), BRAIN, INT8, page=16)
    cache, _ = filled(case, "cuda")
    q = queries(case).cuda()
    first = run(case, q, cache)
    assert all(torch.equal(run(case, q, cache), first) for _ in range(20))


@pytest.mark.parametrize("kind", ["static", "paged"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int, kind: str) -> None:
    """Strides of 2^30 elements, 4 GiB a plane."""
    case = Case(kind, kv_heads=3, heads=3, queries=3, lengths=(3, 2, 3), dims=(16, 16), dtype=HALF, page=3)
    cache, _ = filled(case, "cuda")
    q = queries(case).cuda()
    near = run(case, q, cache)
    strides = [1 << 30 if n == axis else 16 * 3 ** (2 - n) for n in range(3)] + [1]
    q, *cache.planes = (
        torch.empty_strided((3, 3, 3, 16), strides, dtype=HALF, device="cuda").copy_(x[:3, :, :3])
        for x in (q, *cache.planes)
    )
    assert torch.equal(run(case, q, cache), near)


@pytest.mark.parametrize("stored", [None, INT8], ids=str)
@pytest.mark.parametrize("page", [None, 16, 64])
@pytest.mark.parametrize("size", [(1, 131072, 8), (32, 8192, 8), (16, 32768, 1)], ids=str)
def test_bandwidth_is_shown(size: tuple[int, int, int], page: int | None, stored: torch.dtype | None) -> None:
    """Bytes of the cache a second, beside those that a copy reads and writes: 80 % of these are aimed at, and nothing is
    asserted. With -s it is printed. Sequences, tokens of each, and heads of keys and values for 32 of queries.

    Kernels are started RUNS times at a time, so that starting one hides behind another; a whole call, which also tells the GPU
    lengths and pages and waits for it, is timed too.
    """
    sequences, length, kv_heads = size
    shape = CacheShape(kv_heads=kv_heads, key_dim=128, value_dim=128, dtype=BRAIN, stored=stored)
    if page is None:
        cache = StaticCache(shape, sequences=sequences, capacity=length, device="cuda")
    else:
        cache = PagedCache(shape, sequences=sequences, pages=sequences * length // page, page_size=page, device="cuda")
    for _ in range(length // 8192):
        cache.append(*(torch.randn(sequences, kv_heads, 8192, 128, device="cuda", dtype=BRAIN) for _ in range(2)))
    q = torch.randn(sequences, 32, 1, 128, device="cuda", dtype=BRAIN)
    source = torch.zeros(cache.bytes // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    split, merge, output = launches(Problem(q, cache, 128**-0.5))

    def kernels() -> None:
        split.run()
        merge.run()

    works = {"kernels": kernels, "copy": lambda: target.copy_(source)}
    timers: dict[str, Callable[[], float]] = {
        name: lambda work=work: seconds_of(lambda: [work() for _ in range(RUNS)]) / RUNS for name, work in works.items()
    }
    timers["call"] = lambda: seconds_of(lambda: decode_attention(q, cache, backend="triton"))
    seconds = {name: statistics.median(each) for name, each in interleaved(timers, repeats=15, warmup=3).items()}
    rates = {name: cache.bytes / each / 1e12 for name, each in seconds.items()}
    print(
        f"\n{sequences} x {length} tokens, {kv_heads} heads, {stored or BRAIN}, page {page}: {cache.bytes / 1e9:.2f} GB at "
        f"{rates['kernels']:.2f} TB/s, {rates['kernels'] / rates['copy']:.0%} of a copy's {rates['copy']:.2f}; "
        f"a whole call {seconds['call'] * 1e6:.0f} us, kernels {seconds['kernels'] * 1e6:.0f}"
    )
    assert torch.equal(output, decode_attention(q, cache, backend="triton"))
