"""Decoding by the reference, against a list of tokens, and what is refused."""

import pytest
import torch

from common.attention.cache import CacheShape, GrowingCache, SlidingCache
from common.attention.decoding import decode_attention
from tests.common.attention import plain_decoding
from tests.common.attention.plain_decoding import Case, assert_within_gate, filled, poison, queries

HALF, BRAIN, INT8 = torch.float16, torch.bfloat16, torch.int8

CASES = [
    Case("growing", heads=2),
    Case("static", queries=3, window=5),
    Case("paged", heads=6, queries=3, dims=(7, 5), stored=INT8),
    Case("paged", heads=2, kv_heads=1, dtype=BRAIN, window=17),
    Case("sliding", window=9),
    Case("static", queries=3, lengths=(0, 0)),
    Case("growing", dtype=torch.float64, queries=2),
    Case("static", dtype=HALF, stored=BRAIN),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs(case: Case) -> None:
    assert_within_gate(case, queries(case), *filled(case), backend="reference")


@pytest.mark.parametrize("kind", ["static", "paged", "growing"])
def test_evicted_positions_count_in_a_window(kind: str) -> None:
    """Of the window of 6 that the last of 12 sees, two are gone; the one before it sees another one."""
    case = Case(kind, queries=2, lengths=(12, 3), window=6)
    cache, known = filled(case)
    for each in (cache, known):
        each.evict(0, [2, 7, 8])
    poison(cache)
    assert_within_gate(case, queries(case), cache, known, backend="reference")


def test_by_hand() -> None:
    """Keys of 0, so that each query takes the mean of the values it sees."""
    cache = GrowingCache(CacheShape(kv_heads=1, key_dim=1, value_dim=1, dtype=torch.float32), sequences=1)
    cache.append(torch.zeros(1, 1, 4, 1), torch.tensor([1.0, 3, 8, 20]).view(1, 1, 4, 1))
    q = torch.ones(1, 2, 2, 1, requires_grad=True)
    out = decode_attention(q, cache, backend="reference")
    assert out[0, :, :, 0].tolist() == [[4.0, 8.0]] * 2 and not out.requires_grad
    out = decode_attention(q, cache, window=2, backend="reference")
    assert out[0, :, :, 0].tolist() == [[5.5, 14.0]] * 2


def test_autocast_changes_nothing() -> None:
    case = Case("growing")
    cache, _ = filled(case)
    plain = decode_attention(queries(case), cache, backend="reference")
    with torch.autocast("cpu", dtype=BRAIN):
        assert torch.equal(decode_attention(queries(case), cache, backend="reference"), plain)


def test_refusals() -> None:
    case = Case("growing", heads=4, kv_heads=2, lengths=(5, 3), dims=(4, 4))
    (cache, _), q = filled(case), queries(case)
    for wrong, reason in (
        (q[0], r"q: got torch.float32 \(4, 1, 4\) on cpu, expected torch.float32 \(batch, heads, time, head_dim\)"),
        (q.half(), "q: got torch.float16 .*, expected torch.float32"),
        (q.to("meta"), "on meta, expected torch.float32 .* on cpu"),
        (q[:1], r"q: got \(1, 4, 1, 4\), expected \(2, 4, 1, 4\)"),
        (q[..., :3], r"q: got \(2, 4, 1, 3\), expected \(2, 4, 1, 4\)"),
        (q[:, :, :0], r"q: got \(2, 4, 0, 4\), expected \(2, 4, 1, 4\)"),
        (q[:, :3], "heads: got 3 of q and 2 of the cache, expected these to divide those"),
        (q[:, :0], "heads: got 0 of q"),
    ):
        with pytest.raises(ValueError, match=reason):
            decode_attention(wrong, cache, backend="reference")
    with pytest.raises(ValueError, match="window: got 0, expected 1 or more positions, or None for all"):
        decode_attention(q, cache, window=0, backend="reference")
    with pytest.raises(ValueError, match="scale: got nan, expected a finite number, 0 or more"):
        decode_attention(q, cache, scale=float("nan"), backend="reference")
    with pytest.raises(ValueError, match="backend: got 'sdpa', expected one of reference, triton"):
        decode_attention(q, cache, backend="sdpa")


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_a_sliding_cache_has_what_one_query_sees(backend: str) -> None:
    case = Case("sliding", lengths=(9, 4), window=5)
    cache, _ = filled(case)
    assert isinstance(cache, SlidingCache)
    with pytest.raises(
        ValueError, match="q: got 2 queries, expected 1 to a SlidingCache: what the earlier of them see"
    ):
        decode_attention(plain_decoding.normal(2, 4, 2, 16, seed=0), cache, backend=backend)
    with pytest.raises(ValueError, match="window: got 4, expected None or at least 5, as the SlidingCache's"):
        decode_attention(queries(case), cache, window=4, backend=backend)
