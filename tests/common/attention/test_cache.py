"""Caches of keys and values, worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from common.attention import Causal, Padding, attention
from common.attention.cache import Cache, CacheShape, GrowingCache, PagedCache, SlidingCache, StaticCache
from common.attention.cache.storage import quantise

ONE = CacheShape(kv_heads=1, key_dim=1, value_dim=1, dtype=torch.float32)
INT8 = CacheShape(kv_heads=2, key_dim=64, value_dim=64, dtype=torch.float32, stored=torch.int8)
BOUNDED: dict[str, Callable[[CacheShape, int], Cache]] = {
    "static": lambda shape, n: StaticCache(shape, sequences=n, capacity=8),
    "paged": lambda shape, n: PagedCache(shape, sequences=n, pages=4 * n, page_size=2),
}
ALL = BOUNDED | {
    "growing": lambda shape, n: GrowingCache(shape, sequences=n),
    "sliding": lambda shape, n: SlidingCache(shape, sequences=n, window=8),
}


def tokens(*rows: list[float]) -> Tensor:
    """A number each: (B, 1, T, 1)."""
    return torch.tensor(rows)[:, None, :, None]


def append(cache: Cache, *rows: list[float], real: Tensor | None = None) -> None:
    """Values are ten times the keys."""
    cache.append(tokens(*rows), 10 * tokens(*rows), real=real)


def numbers(cache: Cache) -> list[list[float]]:
    """The keys that are held."""
    cached = cache.read()
    assert torch.equal(cached.values[:, 0, :, 0] * cached.real, 10 * cached.keys[:, 0, :, 0] * cached.real)
    return [keys[real].tolist() for keys, real in zip(cached.keys[:, 0, :, 0], cached.real, strict=True)]


def positions(cache: Cache) -> list[list[int]]:
    cached = cache.read()
    return [at[real].tolist() for at, real in zip(cached.positions, cached.real, strict=True)]


@pytest.mark.parametrize("kind", BOUNDED)
def test_full_to_the_brim_and_not_a_token_more(kind: str) -> None:
    cache = BOUNDED[kind](ONE, 1)
    append(cache, [0.0, 1, 2, 3, 4, 5])
    append(cache, [6.0, 7])
    assert numbers(cache) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    cache = BOUNDED[kind](ONE, 1)
    append(cache, [0.0, 1, 2, 3, 4, 5])
    before = [plane.clone() for plane in cache.planes]
    with pytest.raises(ValueError, match="append: got .*expected at most"):
        append(cache, [6.0, 7, 8])
    assert all(map(torch.equal, cache.planes, before))
    assert numbers(cache) == [[0, 1, 2, 3, 4, 5]]
    append(cache, [6.0, 7])
    assert numbers(cache) == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_if_one_sequence_has_no_room_none_is_written() -> None:
    cache = StaticCache(ONE, sequences=2, capacity=3)
    append(cache, [1.0, 2], [1, 2], real=torch.tensor([[True, True], [True, False]]))
    with pytest.raises(ValueError, match="got 2 tokens on top of 2 of sequence 0, expected at most 3 in all"):
        append(cache, [3.0, 4], [3, 4])
    assert numbers(cache) == [[1, 2], [1]]


@pytest.mark.parametrize("kind", ALL)
def test_int8_is_within_half_a_step_of_each_token_and_head(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 2, 3, 64, generator=generator) * 2 - 1
    x = x / x.abs().amax(-1, keepdim=True) * torch.tensor([[0.4, 4.0, 0.0], [4.0, 0.0, 0.4]])[None, ..., None]
    cache = ALL[kind](INT8, 1)
    cache.append(x, x.flip(2))
    cached = cache.read()
    for given, got in ((x, cached.keys), (x.flip(2), cached.values)):
        assert ((got - given).abs() <= given.abs().amax(-1, keepdim=True) / 254 + 1e-6).all()
        assert not got[given == 0].any()


def test_int8_by_hand() -> None:
    steps, scale = quantise(torch.tensor([[127.0, -126.6, 0.4], [-0.127, 0.0, 0.001]]))
    assert steps.tolist() == [[127, -127, 0], [-127, 0, 1]]
    torch.testing.assert_close(scale, torch.tensor([[1.0], [0.001]]))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_int8_does_not_make_numbers_of_what_is_none(bad: float) -> None:
    cache = GrowingCache(INT8, sequences=1)
    x = torch.ones(1, 2, 2, 64)
    x[0, 0, 0, 5] = bad
    cache.append(x, x)
    assert torch.isfinite(cache.read().keys).all(-1).tolist() == [[[False, True], [True, True]]]


def test_numbers_in_int8_are_moved_as_they_are() -> None:
    """To quantise again what was read would add to its error."""
    x = torch.randn(1, 2, 7, 64, generator=torch.Generator().manual_seed(0))
    for make in ALL.values():
        cache = make(INT8, 1)
        cache.append(x, x)
        whole = cache.read().keys
        cache.fork(2)
        cache.reorder([1])
        cache.evict(0, [2])
        cached = cache.read()
        assert torch.equal(cached.keys[:, :, cached.real[0]], whole[:, :, [0, 1, 3, 4, 5, 6]])


@pytest.mark.parametrize("kind", ALL)
def test_positions_count_real_tokens_alone(kind: str) -> None:
    """Two prompts of three and six, padded on the left, then one on the right."""
    cache = ALL[kind](ONE, 2)
    real = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    following = cache.following(6, real)
    assert following[0, 3:].tolist() == [0, 1, 2] and following[1].tolist() == [0, 1, 2, 3, 4, 5]
    assert (following >= 0).all()
    append(cache, [torch.nan, torch.nan, torch.nan, 3, 4, 5], [0, 1, 2, 3, 4, 5], real=real)
    assert numbers(cache) == [[3, 4, 5], [0, 1, 2, 3, 4, 5]]
    assert positions(cache) == [[0, 1, 2], [0, 1, 2, 3, 4, 5]]
    real = torch.tensor([[1, 1], [1, 0]]).bool()
    assert cache.following(2, real).tolist() == [[3, 4], [6, 6]] and cache.following(1).tolist() == [[3], [6]]
    append(cache, [6, 7], [6, torch.nan], real=real)
    assert numbers(cache) == [[3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("kind", ALL)
def test_a_padded_batch_is_decoded_as_each_sequence_alone(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = CacheShape(kv_heads=2, key_dim=4, value_dim=3, dtype=torch.float32)
    q, k, v = (torch.randn(2, heads, 8, d, generator=generator) for heads, d in ((4, 4), (2, 4), (2, 3)))
    real = torch.ones(2, 7, dtype=torch.bool)
    real[0, :3] = False
    cache = ALL[kind](shape, 2)
    cache.append(k[:, :, :7], v[:, :, :7], real=real)
    cache.append(k[:, :, 7:], v[:, :, 7:])
    held = cache.read()
    out = attention(q[:, :, 7:], held.keys, held.values, mask=Padding(held.real), backend="reference")
    for n, first in ((0, 3), (1, 0)):
        alone = (x[n : n + 1, :, first:] for x in (q, k, v))
        whole = attention(*alone, mask=Causal(), backend="reference")
        torch.testing.assert_close(out[n : n + 1], whole[:, :, -1:])


@pytest.mark.parametrize("kind", ALL)
def test_rejected_tokens_leave_no_trace(kind: str) -> None:
    cache = ALL[kind](ONE, 2)
    append(cache, [0.0, 1, 2, 3], [0, 1, 2, 3])
    cache.roll_back(torch.tensor([3, 1]))
    append(cache, [7.0], [8])
    assert numbers(cache) == [[0, 7], [0, 1, 2, 8]] and positions(cache) == [[0, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize("kind", ALL)
def test_what_is_evicted_keeps_its_number(kind: str) -> None:
    cache = ALL[kind](ONE, 2)
    append(cache, [0.0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    cache.evict(0, [1, 4])
    append(cache, [5.0], [5])
    assert numbers(cache) == [[0, 2, 3, 5], [0, 1, 2, 3, 4, 5]]
    assert positions(cache) == [[0, 2, 3, 5], [0, 1, 2, 3, 4, 5]]
    cache.roll_back([2, 0])  # tokens 5 and 4, which is gone already
    assert positions(cache) == [[0, 2, 3], [0, 1, 2, 3, 4, 5]] and cache.following(1).tolist() == [[4], [6]]
    cache.evict(1)
    append(cache, [8.0], [9])
    assert numbers(cache) == [[0, 2, 3, 8], [9]] and positions(cache) == [[0, 2, 3, 4], [0]]


@pytest.mark.parametrize("kind", ALL)
def test_beams_go_their_own_ways(kind: str) -> None:
    cache = ALL[kind](ONE, 2)
    append(cache, [1.0], [2])
    cache.fork(2)
    append(cache, [3.0], [4], [5], [6])
    assert numbers(cache) == [[1, 3], [1, 4], [2, 5], [2, 6]]
    cache.reorder([1, 1, 3, 2])
    append(cache, [7.0], [8], [9], [0])
    assert numbers(cache) == [[1, 4, 7], [1, 4, 8], [2, 6, 9], [2, 5, 0]]
    cache.reorder([2])
    assert numbers(cache) == [[2, 6, 9]]


def test_growing_doubles_and_views_stay() -> None:
    cache = GrowingCache(ONE, sequences=1)
    seen, views = [], []
    for n in range(70):
        append(cache, [float(n)])
        seen.append(cache.capacity)
        views.append(cache.read().keys)
    assert seen == [16] * 16 + [32] * 16 + [64] * 32 + [128] * 6
    assert len({view.untyped_storage().data_ptr() for view in views}) == 4
    assert all(view.flatten().tolist() == list(range(n + 1)) for n, view in enumerate(views))


def test_the_window_is_a_ring() -> None:
    cache = SlidingCache(ONE, sequences=1, window=3)
    append(cache, [0.0, 1])
    append(cache, [2.0])
    cache.roll_back(1)
    append(cache, [2.0, 3, 4])
    assert numbers(cache) == [[3, 4, 2]] and positions(cache) == [[3, 4, 2]]
    with pytest.raises(ValueError, match=r"roll_back: got \[1\], expected from 0 to \[0\] tokens"):
        cache.roll_back(1)
    append(cache, [5.0, 6, 7, 8, 9, 10, 11])
    assert numbers(cache) == [[9, 10, 11]]


def test_forks_share_pages_until_they_write() -> None:
    cache = PagedCache(ONE, sequences=1, pages=4, page_size=2)
    append(cache, [0.0, 1, 2])
    before = [plane.clone() for plane in cache.planes]
    cache.fork(3)
    assert all(map(torch.equal, cache.planes, before)) and cache.pages.free == [3, 2]
    assert cache.table().tolist() == [[0, 1], [0, 1], [0, 1]]
    append(cache, [3.0], [4], [5])  # two of three get copies of the half-full page
    assert cache.table().tolist() == [[0, 2], [0, 3], [0, 1]]
    assert numbers(cache) == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 5]]
    with pytest.raises(
        ValueError, match="got tokens for 3 more pages of 2, expected at most 0, as many as are free of 4"
    ):
        append(cache, [6.0], [7], [8])
    cache.reorder([2, 0])
    assert cache.pages.free == [3]
    cache.roll_back([1, 2])
    assert cache.pages.free == [3, 2] and cache.table().tolist() == [[0, 1], [0, 0]]
    cache.evict(0)
    assert cache.pages.free == [3, 2, 1] and cache.lengths == [0, 2]


def test_evicting_from_shared_pages_leaves_the_others_alone() -> None:
    cache = PagedCache(ONE, sequences=1, pages=4, page_size=2)
    append(cache, [0.0, 1, 2, 3, 4])
    cache.fork(2)
    with pytest.raises(ValueError, match="evict: got tokens to move to 2 more pages, expected at most 1, as are free"):
        cache.evict(1, [1])
    assert numbers(cache) == [[0, 1, 2, 3, 4]] * 2
    cache.evict(1, [2])
    assert numbers(cache) == [[0, 1, 2, 3, 4], [0, 1, 3, 4]] and cache.table().tolist() == [[0, 1, 2], [0, 3, 0]]


def test_pages_of_a_sequence_that_is_over_serve_the_next() -> None:
    cache = PagedCache(ONE, sequences=2, pages=3, page_size=2)
    append(cache, [0.0, 1, 2], [0, 1, 2], real=torch.tensor([[True] * 3, [True, False, False]]))
    with pytest.raises(ValueError, match="append"):
        append(cache, [3.0, 4], [3, 4])
    cache.evict(0)
    append(cache, [5.0, 6], [3, 4], real=torch.tensor([[False, False], [True, True]]))
    append(cache, [5.0, 6], [0, 0], real=torch.tensor([[True, True], [False, False]]))
    assert numbers(cache) == [[5, 6], [0, 3, 4]]


def test_no_gradient_flows_through() -> None:
    cache = GrowingCache(ONE, sequences=1)
    x = tokens([1.0]).requires_grad_()
    cache.append(x, x)
    assert not cache.read().keys.requires_grad


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: GrowingCache(ONE, sequences=0), "sequences: got 0, expected 1 or more"),
        (lambda: StaticCache(ONE, sequences=1, capacity=0), "capacity: got 0, expected 1 or more tokens"),
        (lambda: SlidingCache(ONE, sequences=1, window=0), "window: got 0, expected 1 or more positions"),
        (lambda: PagedCache(ONE, sequences=1, pages=0, page_size=2), "got 0 and 2, expected 1 or more of each"),
        (lambda: PagedCache(ONE, sequences=1, pages=2, page_size=0), "got 2 and 0, expected 1 or more of each"),
        (lambda: CacheShape(kv_heads=0, key_dim=1, value_dim=1, dtype=torch.float32), "kv_heads: got 0"),
        (lambda: CacheShape(kv_heads=1, key_dim=1, value_dim=0, dtype=torch.float32), "value_dim: got 0"),
        (lambda: CacheShape(kv_heads=1, key_dim=1, value_dim=1, dtype=torch.int8), "expected floating point"),
        (
            lambda: CacheShape(kv_heads=1, key_dim=1, value_dim=1, dtype=torch.float32, stored=torch.int16),
            "stored: got torch.int16, expected None",
        ),
    ],
)
def test_what_cannot_be_made_says_so(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()
