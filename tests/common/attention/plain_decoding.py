"""Decoding written out for tests: a list of tokens for each sequence, exact in fp64, and as one would write it in a low precision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.attention.cache import Cache, CacheShape, GrowingCache, PagedCache, SlidingCache, StaticCache
from common.attention.decoding import decode_attention
from tests.common.attention.kernels.cases import poisoned_memory
from tests.common.attention.plain import plain, relative_rms
from tests.common.attention.plain_cache import PlainCache, as_stored

SPARE = 21
"""Slots of a static cache, and about as many of a paged one, that no token stands in."""


@dataclass(frozen=True)
class Case:
    """lengths: of each sequence. dims: D_k, D_v. page: tokens of one, where kind is "paged". splits: None: chosen."""

    kind: str = "static"
    heads: int = 4
    kv_heads: int = 2
    queries: int = 1
    lengths: tuple[int, ...] = (40, 0, 1, 17)
    dims: tuple[int, int] = (16, 16)
    dtype: torch.dtype = torch.float32
    stored: torch.dtype | None = None
    window: int | None = None
    splits: int | None = None
    page: int = 7

    def __str__(self) -> str:
        types = [str(t).removeprefix("torch.") for t in (self.dtype, self.stored) if t]
        sizes = f"{self.heads}on{self.kv_heads}", f"T{self.queries}", "x".join(map(str, self.dims)), *types
        kind = self.kind + f"{self.page}" * (self.kind == "paged")
        more = f"window{self.window}" * bool(self.window), f"splits{self.splits}" * bool(self.splits)
        return "-".join((kind, *sizes, "_".join(map(str, self.lengths)), *filter(None, more)))

    @property
    def scale(self) -> float:
        return self.dims[0] ** -0.5

    def empty(self, device: str = "cpu") -> Cache:
        shape = CacheShape(
            kv_heads=self.kv_heads, key_dim=self.dims[0], value_dim=self.dims[1], dtype=self.dtype, stored=self.stored
        )
        count, longest = len(self.lengths), max(self.lengths)
        if self.kind == "growing":
            return GrowingCache(shape, sequences=count, device=device)
        if self.kind == "static":
            return StaticCache(shape, sequences=count, capacity=longest + SPARE, device=device)
        if self.kind == "sliding":
            assert self.window is not None
            return SlidingCache(shape, sequences=count, window=self.window, device=device)
        pages = sum(-(-length // self.page) for length in self.lengths) + -(-SPARE // self.page)
        return PagedCache(shape, sequences=count, pages=pages, page_size=self.page, device=device)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def queries(case: Case, count: int | None = None) -> Tensor:
    """(B, H, T, D_k), of as many sequences as the case has, unless given."""
    count = len(case.lengths) if count is None else count
    return normal(count, case.heads, case.queries, case.dims[0], seed=1).to(case.dtype)


def append(case: Case, cache: Cache, known: PlainCache, lengths: tuple[int, ...], seed: int) -> None:
    """So many random tokens to each sequence of both."""
    time = max(lengths)
    keys, values = (normal(len(lengths), case.kv_heads, time, n, seed=seed + at) for at, n in enumerate(case.dims))
    keys, values = 1.5 * keys.to(case.dtype), values.to(case.dtype)
    real = torch.arange(time) < torch.tensor(lengths)[:, None]
    cache.append(keys.to(cache.device), values.to(cache.device), real=real.to(cache.device))
    known.append(keys, values, real)


def filled(case: Case, device: str = "cpu") -> tuple[Cache, PlainCache]:
    """The cache, NaN in all slots that hold no token, and what it holds."""
    cache = case.empty(device)
    known = PlainCache(len(case.lengths), case.kv_heads, case.dims, case.window if case.kind == "sliding" else None)
    append(case, cache, known, case.lengths, seed=2)
    poison(cache)
    return cache, known


def poison(cache: Cache) -> None:
    for plane in cache.planes:
        other = torch.nan if plane.is_floating_point() else 127
        if isinstance(cache, PagedCache):
            unused = torch.ones(plane.shape[0], plane.shape[2], dtype=torch.bool, device=plane.device)
            for table, length in zip(cache.pages.tables, cache.lengths, strict=True):
                for n in range(length):
                    unused[table[n // cache.pages.size], n % cache.pages.size] = False
            plane.transpose(1, 2)[unused] = other
        else:
            for n, length in enumerate(cache.lengths):
                plane[n, :, length:] = other


def written_out(case: Case, q: Tensor, known: PlainCache, dtype: torch.dtype) -> Tensor:
    """(B, H, T, D_v), made in a dtype."""
    outputs = []
    for n in range(len(q)):
        keys, values = known.given(n)
        if case.stored is not None:
            keys, values = (as_stored(x.float(), case.stored) for x in (keys, values))
        positions = torch.tensor([token.position for token in known.held(n)], dtype=torch.int64)
        allowed = torch.zeros(case.queries, len(positions), dtype=torch.bool)
        for t in range(case.queries):
            own = len(positions) - case.queries + t
            if own >= 0:
                distance = positions[own] - positions
                allowed[t] = (distance >= 0) & (distance < (case.window or len(positions) + max(known.seen)))
        outputs.append(
            plain(q[n : n + 1].to(dtype), keys[None].to(dtype), values[None].to(dtype), allowed, scale=case.scale)
        )
    return torch.cat(outputs)


def run(case: Case, q: Tensor, cache: Cache, backend: str = "triton") -> Tensor:
    """With as many splits as the case says."""
    if case.splits is None or backend != "triton":
        return decode_attention(q, cache, window=case.window, backend=backend)
    from common.attention.kernels.decode_launch import Problem, decode

    return decode(Problem(q, cache, case.scale, case.window, case.splits))


def assert_within_gate(case: Case, q: Tensor, cache: Cache, known: PlainCache, backend: str = "triton") -> None:
    """Relative RMS against fp64 at most twice that of `plain` in the same precision, + 1e-5; zeros for what sees no token."""
    with poisoned_memory(str(cache.device)):
        got = run(case, q.to(cache.device), cache, backend).cpu()
    exact, ordinary = (written_out(case, q, known, dtype) for dtype in (torch.float64, case.dtype))
    assert got.shape == exact.shape and got.dtype == case.dtype and torch.isfinite(got).all()
    error, most = relative_rms(got, exact), 2 * relative_rms(ordinary, exact) + 1e-5
    assert error <= most, f"relative error {error:.2e}, at most {most:.2e}"
    for n in range(len(q)):
        missing = max(0, case.queries - len(known.held(n)))
        assert not got[n, :, :missing].any(), "of a position that isn't there"
