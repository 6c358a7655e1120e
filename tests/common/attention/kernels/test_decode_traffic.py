"""What the kernels of decoding load and store, against closed forms and against counts by hand."""

from collections import Counter

import pytest
import torch

pytest.importorskip("triton")

from common.attention import traffic
from common.attention.cache import PagedCache
from common.attention.kernels import configurations
from common.attention.kernels.configurations import DecodeTile
from common.attention.kernels.decode_launch import Problem
from common.attention.kernels.ledger import Ledger, counting
from common.attention.traffic import DecodeShape
from tests.common.attention.kernels.test_linear_traffic import of
from tests.common.attention.plain_decoding import Case, filled, queries, run

BLOCK = 16


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "DECODE", dict.fromkeys(configurations.DECODE, DecodeTile(BLOCK, 4, 1)))


def counted(case: Case) -> tuple[Ledger, DecodeShape]:
    cache, _ = filled(case)
    q = queries(case)
    problem = Problem(q, cache, case.scale, case.window, case.splits)
    bounds = problem.bounds()
    splits = problem.divided(bounds)
    shape = DecodeShape(
        case.heads, case.kv_heads, case.queries, *case.dims, seen=tuple((each[0][0], each[-1][1]) for each in bounds),
        size=q.element_size(), stored=cache.planes[0].element_size(), scaled=len(cache.planes) > 2,
        paged=isinstance(cache, PagedCache), block=BLOCK, rows=problem.block_rows, splits=splits.count, span=splits.span,
    )  # fmt: skip
    with counting() as ledger:
        run(case, q, cache)
    return ledger, shape


@pytest.mark.parametrize(
    "case",
    [
        Case(splits=2, dims=(20, 24)),
        Case("paged", queries=3, splits=7, dtype=torch.float16, stored=torch.int8),
        Case("paged", queries=3, window=18, splits=2, page=16),
        Case(heads=70, kv_heads=1, lengths=(20,), dtype=torch.bfloat16),
    ],
    ids=str,
)
def test_every_byte_is_that_of_the_closed_form(case: Case) -> None:
    ledger, shape = counted(case)
    assert of(ledger, "split_kernel") == +traffic.decode_split(shape)
    assert of(ledger, "merge_kernel") == +traffic.decode_merge(shape)
    assert {name for name, _ in ledger.loads} == {"split_kernel", "merge_kernel"}


def test_by_hand() -> None:
    """Two sequences of 100 and 0 tokens; 8 query heads on 2 of 128 and 64 numbers in 16 bit; 7 blocks in two splits of 4 and
    3. Of the empty sequence bounds are read and zeros written."""
    shape = DecodeShape(8, 2, 1, 128, 64, ((0, 100), (0, 0)), 2, 2, False, False, BLOCK, 16, splits=2, span=4)
    assert +traffic.decode_split(shape) == {
        "q": 2 * 8 * 128 * 2, "k": 100 * 2 * 128 * 2, "v": 100 * 2 * 64 * 2, "bounds": 2 * 2 * 2 * 34 * 4,
        "sums": 2 * 8 * 64 * 4, "tops": 2 * 8 * 4, "totals": 2 * 8 * 4,
    }  # fmt: skip
    assert +traffic.decode_merge(shape) == {
        "sums": 2 * 8 * 64 * 4, "tops": 2 * 8 * 4, "totals": 2 * 8 * 4, "bounds": 2 * 8 * 2 * 4, "output": 2 * 8 * 64 * 2,
    }  # fmt: skip


@pytest.mark.parametrize("splits", [1, 3])
def test_each_cached_byte_is_read_once_and_of_one_head_an_eighth_of_eight(splits: int) -> None:
    """Shazeer 2019, section 3: what decoding reads falls with the heads of keys and values, whatever the queries."""
    read: dict[int, Counter[str]] = {}
    for kv_heads in (1, 8):
        case = Case(heads=8, kv_heads=kv_heads, lengths=(40, 17), splits=splits, stored=torch.int8)
        cache, _ = filled(case)
        read[kv_heads] = of(counted(case)[0], "split_kernel")
        for name in ("k", "v", "k_scales", "v_scales"):
            plane = cache.planes[("k", "v", "k_scales", "v_scales").index(name)]
            assert read[kv_heads][name] == 57 * kv_heads * plane.shape[3] * plane.element_size()
    assert all(read[8][name] == 8 * read[1][name] for name in ("k", "v", "k_scales", "v_scales"))
    assert all(read[8][name] == read[1][name] for name in ("q", "sums", "tops", "totals"))
