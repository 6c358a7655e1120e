"""The kernels of decoding under Triton's interpreter, against a list of tokens for each sequence in fp64."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from common.attention.cache import PagedCache
from common.attention.cache.positions import Positions
from common.attention.decoding import decode_attention
from common.attention.kernels import configurations, decode_launch
from common.attention.kernels.configurations import DecodeTile
from common.attention.kernels.decode_launch import Problem, Splits, divide, seen_by
from tests.common.attention.plain_decoding import Case, append, assert_within_gate, filled, poison, queries, run

HALF, BRAIN, INT8 = torch.float16, torch.bfloat16, torch.int8
TABLE = configurations.DECODE


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 keys at a time: the longest sequence of most cases is two of these and a part of a third."""
    monkeypatch.setattr(configurations, "DECODE", dict.fromkeys(TABLE, DecodeTile(16, 4, 1)))


CASES = [
    Case(heads=2, splits=1),
    Case(queries=3, splits=2),
    Case("growing", heads=3, kv_heads=1, queries=3, dims=(20, 33), splits=7),
    Case(heads=6, lengths=(16, 32, 33, 15), splits=2),
    Case("paged", page=16, lengths=(16, 33), splits=2),
    Case("paged", queries=3, splits=7),
    Case("paged", heads=3, kv_heads=1, page=32, lengths=(40, 3), queries=3),
    Case(queries=3, dtype=HALF, dims=(80, 40), lengths=(40, 1), splits=1),
    Case("paged", heads=6, dtype=BRAIN, dims=(1, 96), lengths=(0, 40)),
    Case(queries=3, stored=INT8, splits=2),
    Case("paged", queries=3, dtype=BRAIN, stored=INT8, dims=(16, 24)),
    Case(heads=2, dtype=HALF, stored=INT8, dims=(24, 40), splits=2),
    Case("growing", dtype=HALF, stored=BRAIN, lengths=(40, 17)),
    Case(queries=3, window=5, splits=2),
    Case(queries=3, window=18, splits=2, lengths=(40, 17, 2)),
    Case(queries=3, window=5, lengths=(17, 40)),
    Case("paged", queries=3, window=1, splits=7),
    Case("paged", window=17, stored=INT8),
    Case("sliding", window=23),
    Case("sliding", window=16, stored=INT8, lengths=(40, 3)),
    Case(heads=24, kv_heads=1, queries=3, lengths=(20,)),  # 72 rows, of which a tile has 64
    Case(queries=3, lengths=(0, 0)),
    Case("paged", lengths=(0,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs(case: Case) -> None:
    assert_within_gate(case, queries(case), *filled(case))


@pytest.mark.parametrize("case", CASES[1:6:2], ids=str)
def test_as_the_reference_has_it(case: Case) -> None:
    cache, _ = filled(case)
    q = queries(case).transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(run(case, q, cache), run(case, q, cache, "reference"), atol=1e-6, rtol=1e-5)
    features_first = q.mT.contiguous().mT
    assert torch.equal(run(case, features_first, cache), run(case, q, cache))


@pytest.mark.parametrize("stored", [None, INT8])
def test_with_the_tiles_of_the_table(stored: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "DECODE", TABLE)
    case = Case("paged", heads=4, lengths=(300, 77), dims=(128, 128), dtype=BRAIN, stored=stored, page=16)
    assert_within_gate(case, queries(case), *filled(case))


def test_splits_change_next_to_nothing() -> None:
    """Scores of some hundreds, so that nearly all weight is on one key, which one of the splits has."""
    case = Case(queries=3, lengths=(60, 33))
    cache, known = filled(case)
    q = 100 * queries(case)
    one, *others = (run(replace(case, splits=splits), q, cache) for splits in (1, 2, 4, 7))
    for other in others:
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)
    assert_within_gate(replace(case, splits=4), q, cache, known)


def test_more_splits_than_the_merge_takes_at_a_time() -> None:
    """32, of which those after the first 16 have the largest score of about half of all queries."""
    case = Case(heads=12, lengths=(500, 20), splits=32)
    assert_within_gate(case, queries(case), *filled(case))


@pytest.mark.parametrize("stored", [None, INT8])
def test_what_no_query_sees_may_be_anything(stored: torch.dtype | None) -> None:
    """The first of three queries sees tokens from number 33 on, in the middle of a block."""
    case = Case(queries=3, window=5, lengths=(40,), stored=stored)
    cache, _ = filled(case)
    before = run(case, queries(case), cache)
    for plane in cache.planes:
        plane[:, :, :33] = torch.nan if plane.is_floating_point() else 127
    assert torch.equal(run(case, queries(case), cache), before)


def test_small_values_keep_their_digits_in_int8() -> None:
    """Of 1e-5: scales of 1e-7, which times a weight are nothing in fp16. One sequence has a token of zeros alone."""
    case = Case(heads=2, dtype=HALF, stored=INT8, lengths=(20, 1))
    shape, draw = (2, 2, 20, 16), torch.Generator().manual_seed(0)
    cache = case.empty()
    values = 1e-5 * torch.randn(shape, generator=draw)
    values[1] = 0
    keys = torch.randn(shape, generator=draw).half()
    cache.append(keys, values.half(), real=torch.arange(20) < torch.tensor([20, 1])[:, None])
    got = run(case, queries(case), cache)
    right = run(case, queries(case), cache, "reference")
    torch.testing.assert_close(got[0], right[0], atol=1.2e-7, rtol=0.01)  # fp16 itself has steps of 6e-8 there
    assert right[0].abs().max() > 1e-6 and not got[1].any()


def test_shared_pages_and_another_order() -> None:
    """Beams: what a sentence's two have in common stands in the same pages, and each goes on by itself."""
    case = Case("paged", lengths=(9, 20), page=4, queries=2, splits=2)
    cache, known = filled(replace(case, lengths=(9, 20)))
    assert isinstance(cache, PagedCache)
    cache.fork(2)
    known.reorder([0, 0, 1, 1])
    assert cache.pages.tables[0] == cache.pages.tables[1]
    append(case, cache, known, (1, 2, 1, 0), seed=9)
    poison(cache)
    assert_within_gate(case, queries(case, 4), cache, known)
    for each in (cache, known):
        each.reorder([3, 1, 1])
    poison(cache)
    assert_within_gate(case, queries(case, 3), cache, known)
    for each in (cache, known):
        each.roll_back([5, 0, 1])
    poison(cache)
    assert_within_gate(case, queries(case, 3), cache, known)


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_evicted_positions_count_in_a_window(kind: str) -> None:
    case = Case(kind, queries=2, lengths=(40, 3), window=20, splits=2)
    cache, known = filled(case)
    for each in (cache, known):
        each.evict(0, [2, 25, 26, 37])
    poison(cache)
    assert_within_gate(case, queries(case), cache, known)


@pytest.mark.parametrize("kind", ["static", "paged"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_32_bits(axis: int, kind: str) -> None:
    """2^31 elements between the first and the last entry of one axis: 4 GiB of addresses, few of them touched."""
    case = Case(kind, kv_heads=3, heads=3, queries=3, lengths=(3, 2, 3), dims=(3, 3), dtype=HALF, page=3)
    cache, _ = filled(case)
    q = queries(case)
    near = run(case, q, cache)
    strides = [1 << 30 if n == axis else 9 * 3 ** (2 - n) for n in range(3)] + [1]
    q, *cache.planes = (
        torch.empty_strided((3, 3, 3, 3), strides, dtype=HALF).copy_(x[:3, :, :3]) for x in (q, *cache.planes)
    )
    if isinstance(cache, PagedCache):
        assert {page for table in cache.pages.tables for page in table} == {0, 1, 2}
    assert torch.equal(run(case, q, cache), near)


def test_who_sees_what() -> None:
    five = Positions(5, (range(5),))
    assert seen_by(five, 1, None) == [(0, 5)]
    assert seen_by(five, 3, None) == [(0, 3), (0, 4), (0, 5)]
    assert seen_by(five, 3, 2) == [(1, 3), (2, 4), (3, 5)]
    assert seen_by(five, 2, 9) == [(0, 4), (0, 5)]
    assert seen_by(Positions(), 2, 3) == [(0, 0), (0, 0)]
    assert seen_by(Positions(1, (range(1),)), 3, 1) == [(0, 0), (0, 0), (0, 1)]
    gaps = Positions(9, (range(1, 3), range(5, 9)))  # 1 2 5 6 7 8
    assert seen_by(gaps, 2, 3) == [(2, 5), (3, 6)]
    assert seen_by(gaps, 2, 6) == [(1, 5), (2, 6)]


def test_how_many_splits() -> None:
    """264 programs are held at once: two of each of 132 processors."""
    assert divide(1, 1, 8, 264) == Splits(1, 1)
    assert divide(0, 0, 8, 264) == Splits(1, 1)
    assert divide(512, 512, 8, 264) == Splits(31, 17)  # 248 programs; 32 of 16 blocks would be all but as soon
    assert divide(512, 16 * 512, 8, 264) == Splits(2, 256)  # a third one would have to wait
    assert divide(512, 64 * 512, 8, 264) == Splits(1, 512)  # there are enough sequences
    assert divide(512, 512 + 63, 8, 264).count > 20  # 63 short ones hardly count
    many = divide(1 << 14, 1 << 14, 1, 264)
    assert 200 < many.count <= decode_launch.MOST_SPLITS and many.count * many.span >= 1 << 14


def test_launches_follow_the_lengths() -> None:
    case = Case(heads=8, kv_heads=2, lengths=(100, 0))
    cache, _ = filled(case)
    problem = Problem(queries(case), cache, 1.0)
    assert problem.divided(problem.bounds()) == divide(7, 7, 2, decode_launch.HELD * decode_launch.PROCESSORS)
    assert replace(problem, splits=7).divided(problem.bounds()) == Splits(7, 1)
    assert replace(problem, splits=2, window=20).divided([[(80, 100)], [(0, 0)]]) == Splits(2, 1)
    assert (problem.rows, problem.block_rows) == (4, 16)


def test_no_tensor_of_scores_and_no_copy_of_the_cache() -> None:
    from tests.common.attention.kernels.largest import Largest

    case = Case("paged", heads=8, kv_heads=2, lengths=(200,), dims=(32, 32), dtype=HALF, page=8, splits=2)
    cache, _ = filled(case)
    q = queries(case)
    with Largest() as seen:
        run(case, q, cache)
    # The interpreter copies what a kernel is given, in bytes; nothing is larger than that.
    assert 0 < seen.size <= max(plane.numel() * 2 for plane in cache.planes)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(dims=(4, 4), lengths=(5,))

    def refused(reason: str, case: Case = case, q: Tensor | None = None) -> None:
        with pytest.raises(ValueError, match=reason):
            decode_attention(queries(case) if q is None else q, filled(case)[0], backend="triton")

    refused("backend 'triton' takes fp16, bf16 and fp32, not torch.float64; these can: reference",
            replace(case, dtype=torch.float64))  # fmt: skip
    refused("takes head_dims up to 256, not 257", replace(case, dims=(4, 257)))
    sliding = Case("sliding", window=4, lengths=(6, 2))
    cache, _ = filled(sliding)
    cache.evict(1, [0])
    with pytest.raises(ValueError, match="takes a SlidingCache without gaps, and tokens of sequence 1 were evicted"):
        decode_attention(queries(sliding), cache, backend="triton")
    monkeypatch.setattr("common.attention.kernels.INTERPRETED", False)
    refused("backend 'triton' runs on a GPU, not on cpu .*; these can: reference")
