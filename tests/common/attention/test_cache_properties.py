"""Whatever is done to a cache, in whatever order: it holds what a list of tokens would."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from torch import Tensor

from common.attention import Padding, attention
from common.attention.cache import Cache, CacheShape, GrowingCache, PagedCache, SlidingCache, StaticCache
from tests.common.attention.plain import plain
from tests.common.attention.plain_cache import PlainCache, as_stored

HEADS, KV_HEADS, KEY_DIM, VALUE_DIM = 4, 2, 3, 5
MOST = 5
"""Sequences."""
CAPACITY, WINDOW, PAGES, PAGE_SIZE = 14, 5, 16, 3

KINDS: dict[str, Callable[[CacheShape, int], Cache]] = {
    "growing": lambda shape, n: GrowingCache(shape, sequences=n),
    "static": lambda shape, n: StaticCache(shape, sequences=n, capacity=CAPACITY),
    "sliding": lambda shape, n: SlidingCache(shape, sequences=n, window=WINDOW),
    "paged": lambda shape, n: PagedCache(shape, sequences=n, pages=PAGES, page_size=PAGE_SIZE),
}

SETTINGS = settings(
    max_examples=100,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),  # twenty steps are read faster than a shorter way to the same is found
    suppress_health_check=(HealthCheck.too_slow,),
)


class Machine(RuleBasedStateMachine):
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    @initialize(data=st.data(), sequences=st.integers(1, 3), stored=st.sampled_from([None, torch.bfloat16, torch.int8]))
    def begin(self, data: st.DataObject, sequences: int, stored: torch.dtype | None) -> None:
        shape = CacheShape(kv_heads=KV_HEADS, key_dim=KEY_DIM, value_dim=VALUE_DIM, dtype=torch.float32, stored=stored)
        self.cache = KINDS[self.kind](shape, sequences)
        self.plain = PlainCache(sequences, KV_HEADS, (KEY_DIM, VALUE_DIM), WINDOW if self.kind == "sliding" else None)
        self.append(data, data.draw(st.integers(4, CAPACITY)), padded=sequences > 1)

    @property
    def sequences(self) -> int:
        return len(self.plain.seen)

    def numbers(self, time: int, width: int) -> Tensor:
        """Some tokens are small, some are zero."""
        size = self.sequences, KV_HEADS, time
        x = torch.randn(*size, width, generator=self.generator)
        return x * torch.tensor([0.0, 0.1, 1.0, 1.0])[torch.randint(4, (*size, 1), generator=self.generator)]

    @rule(data=st.data())
    def append_one(self, data: st.DataObject) -> None:
        self.append(data, 1, padded=False)

    @rule(data=st.data(), time=st.sampled_from([0, 2, 3, 5, 8]), padded=st.booleans())
    def append_many(self, data: st.DataObject, time: int, padded: bool) -> None:
        self.append(data, time, padded)

    def append(self, data: st.DataObject, time: int, padded: bool) -> None:
        real = torch.ones(self.sequences, time, dtype=torch.bool)
        for row in real if padded else ():
            left = data.draw(st.integers(0, time))
            row[:left] = False
            row[time - data.draw(st.integers(0, time - left)) :] = False
        keys, values = self.numbers(time, KEY_DIM), self.numbers(time, VALUE_DIM)
        for x in keys, values:
            x.masked_fill_(~real[:, None, :, None], torch.nan)
        following = self.cache.following(time, real if padded else None)
        fits = self.fits(real.sum(1).tolist())
        try:
            self.cache.append(keys, values, real=real if padded else None)
        except ValueError:
            assert not fits
            return
        assert fits or self.kind == "paged", "accepted what it has no room for"
        self.plain.append(keys, values, real)
        for n, tokens in enumerate(self.plain.tokens):
            new = tokens[len(tokens) - int(real[n].sum()) :]
            assert following[n, real[n]].tolist() == [token.position for token in new]
        assert following.shape == real.shape and (following >= 0).all()

    def fits(self, counts: list[int]) -> bool:
        """Of a paged cache: whatever is shared, sequences that share nothing would."""
        lengths = [len(self.plain.held(n)) + count for n, count in enumerate(counts)]
        if self.kind == "paged":
            return sum(-(-length // PAGE_SIZE) for length in lengths) <= PAGES
        return self.kind != "static" or max(lengths) <= CAPACITY

    @rule(copies=st.integers(1, 3))
    def fork(self, copies: int) -> None:
        if self.sequences * copies <= MOST:
            self.cache.fork(copies)
            self.plain.reorder([n for n in range(self.sequences) for _ in range(copies)])

    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        index = data.draw(st.lists(st.integers(0, self.sequences - 1), min_size=1, max_size=MOST))
        self.cache.reorder(torch.tensor(index))
        self.plain.reorder(index)

    @rule(data=st.data(), same=st.booleans())
    def roll_back(self, data: st.DataObject, same: bool) -> None:
        if same:
            counts = [data.draw(st.integers(0, min(4, *self.plain.seen, 4)))] * self.sequences
        else:
            counts = [data.draw(st.integers(0, min(4, seen))) for seen in self.plain.seen]
        lost = self.kind == "sliding" and any(
            count and seen > WINDOW for count, seen in zip(counts, self.plain.seen, strict=True)
        )
        try:
            self.cache.roll_back(counts[0] if same else counts)
        except ValueError:
            assert lost
            return
        assert not lost, "rolled back to what is no longer there"
        self.plain.roll_back(counts)

    @rule(data=st.data(), most=st.sampled_from([0, 1, 2, 3, None]), each=st.booleans())
    def evict(self, data: st.DataObject, most: int | None, each: bool) -> None:
        """None: all of a sequence."""
        for n in range(self.sequences) if each else [data.draw(st.integers(0, self.sequences - 1))]:
            if most is not None:
                self.evict_some(data, n, most)
            elif not each:
                self.cache.evict(n)
                self.plain.evict(n, None)

    def evict_some(self, data: st.DataObject, n: int, most: int) -> None:
        held = [token.position for token in self.plain.held(n)]
        positions = data.draw(st.permutations(held))[:most]
        fits = self.fits([-len(positions) * (m == n) for m in range(self.sequences)])
        try:
            self.cache.evict(n, positions)
        except ValueError:
            assert self.kind == "paged" and not fits
            return
        self.plain.evict(n, positions)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """After each the invariant looks whether all is as before."""
        good, n = self.numbers(1, KEY_DIM), self.sequences
        missing = self.plain.seen[0] + 1
        wrong: list[Callable[[], Any]] = [
            lambda: self.cache.append(good, good),
            lambda: self.cache.append(good, self.numbers(2, VALUE_DIM)),
            lambda: self.cache.append(good.double(), self.numbers(1, VALUE_DIM)),
            lambda: self.cache.append(good, self.numbers(1, VALUE_DIM), real=torch.ones(n, 2, dtype=torch.bool)),
            lambda: self.cache.append(good, self.numbers(1, VALUE_DIM), real=torch.ones(n, 1)),
            lambda: self.cache.fork(0),
            lambda: self.cache.reorder([n]),
            lambda: self.cache.reorder([-1]),
            lambda: self.cache.reorder([]),
            lambda: self.cache.roll_back(max(self.plain.seen) + 1),
            lambda: self.cache.roll_back([0] * (n + 1)),
            lambda: self.cache.roll_back(-1),
            lambda: self.cache.evict(n),
            lambda: self.cache.evict(0, [missing]),
        ]
        with pytest.raises(ValueError, match=r"got .*expected"):
            data.draw(st.sampled_from(wrong))()

    @invariant()
    def holds_what_a_list_would(self) -> None:
        cached, stored = self.cache.read(), self.cache.shape.stored
        assert self.cache.lengths == cached.real.sum(1).tolist()
        assert (cached.positions[~cached.real] == 0).all()
        for n in range(self.sequences):
            tokens, real = self.plain.held(n), cached.real[n]
            order = cached.positions[n, real].argsort()
            assert self.kind == "sliding" or order.tolist() == list(range(len(order)))
            assert cached.positions[n, real][order].tolist() == [token.position for token in tokens]
            for given, all_of_it in zip(self.plain.given(n), cached[:2], strict=True):
                got = all_of_it[n][:, real][:, order]
                if stored == torch.int8:
                    assert ((got - given).abs() <= given.abs().amax(-1, keepdim=True) / 254 + 1e-6).all()
                assert torch.allclose(got, as_stored(given, stored), rtol=0, atol=1e-6 if stored == torch.int8 else 0)

    @invariant()
    def pages_are_free_or_in_use(self) -> None:
        if isinstance(self.cache, PagedCache):
            pages = self.cache.pages
            used = [page for table in pages.tables for page in table]
            assert [used.count(page) for page in range(PAGES)] == pages.users
            assert sorted({*used, *pages.free}) == list(range(PAGES)) and len({*used}) + len(pages.free) == PAGES
            assert [len(table) for table in pages.tables] == [-(-n // PAGE_SIZE) for n in self.cache.lengths]

    @rule()
    def attend(self) -> None:
        """What isn't held may be anything."""
        cached, stored = self.cache.read(), self.cache.shape.stored
        if not cached.keys.shape[2]:
            return
        keys, values = (x.masked_fill(~cached.real[:, None, :, None], torch.nan) for x in cached[:2])
        q = torch.randn(self.sequences, HEADS, 1, KEY_DIM, generator=self.generator)
        out = attention(q, keys, values, mask=Padding(cached.real), backend="reference")
        for n in range(self.sequences):
            keys, values = (as_stored(x, stored)[None] for x in self.plain.given(n))
            allowed = torch.ones(1, keys.shape[2], dtype=torch.bool)
            expected = plain(q[n : n + 1], keys, values, allowed, scale=KEY_DIM**-0.5)
            assert torch.allclose(out[n : n + 1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_holds_what_a_list_of_tokens_would(kind: str) -> None:
    run_state_machine_as_test(type(kind, (Machine,), {"kind": kind}), settings=SETTINGS)
