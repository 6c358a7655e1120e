"""What is kept while decoding: what it costs, and that nothing is lost in it."""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from common.attention import Causal, Full, Padding, attention
from common.attention.cache import Cache, CacheShape, GrowingCache, PagedCache, Plan, StaticCache
from common.bench import count_flops
from common.nn.multihead import MultiHead
from reproductions.field_guide.exact.scores import DEEP, EXACT, drawn
from reproductions.field_guide.exact.structure import layer, refused, transformer
from reproductions.field_guide.exact.value import Value, about, at_most, same, true

GIB = 2**30


def shape(kv_heads: int, head_dim: int = 128, dtype: torch.dtype = torch.float16) -> CacheShape:
    return CacheShape(kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim, dtype=dtype)


def per_head(draw: Generator) -> Iterator[Value]:
    """B12: multi-head attention keeps 2 L h d numbers a layer."""
    for heads, length in ((1, 3), (8, 16), (32, 5)):
        made = StaticCache(shape(heads, 16), sequences=1, capacity=length)
        yield about(f"bytes of {heads} heads, {length} tokens", made.bytes, 2 * length * heads * 16 * 2)


def hand_worked(draw: Generator) -> Iterator[Value]:
    """B15: with 4,096 dimensions and 32 heads 8192 S numbers a layer, with 8 groups 2048 S, 75 % less."""
    plans = {groups: Plan(1, shape(groups)) for groups in (32, 8)}
    for tokens in (1, 4096):
        for groups, printed in ((32, 8192), (8, 2048)):
            yield about(f"numbers of {groups} heads, S = {tokens}", plans[groups].bytes(tokens) / 2, printed * tokens)
    yield about("percent saved", 100 * (1 - plans[8].bytes_per_token / plans[32].bytes_per_token), 75.0)
    for groups, gib in ((32, 2.0), (8, 0.5)):
        yield about(
            f"GiB of 32 layers in fp16, 4,096 tokens, {groups} heads", Plan(32, shape(groups)).bytes(4096) / GIB, gib
        )


def slip(draw: Generator) -> Iterator[Value]:
    """B15 as first written down, 8 (4096 / 8) for 8 groups: the heads of a group, not their size, cut the numbers."""
    yield about("numbers of 8 groups a token", Plan(1, shape(8)).bytes_per_token / 2, 2 * 8 * (4096 / 8))


def reuse(draw: Generator) -> Iterator[Value]:
    """B55: at each step keys and values of those before are read again, none is computed twice."""
    made, x = layer(), drawn(draw, 2, 6, 8)
    whole = made(x, mask=Causal())
    held, calls = made.nothing_yet(2, x, None), [0]
    made.w_k.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    for t in range(6):
        out, held = made.extend(x[:, t], held)
        yield same(f"step {t + 1}", out, whole[:, t], EXACT)
        yield about(f"keys computed after step {t + 1}", calls[0], t + 1)


def recompute(draw: Generator) -> Iterator[Value]:
    """A44: a decoder that keeps keys and values gives what recomputing gives, at a cost that grows by what it reads alone."""
    model = transformer()
    source, real = torch.tensor([[3, 4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool)
    words = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    with torch.no_grad():
        whole = model(source, real, words, torch.ones_like(words, dtype=torch.bool)).log_softmax(-1)
        memory, state = model.begin(source, real)
        for t in range(words.shape[1]):
            found, state, _ = model.step(memory, state, words[:, t : t + 1])
            yield same(f"step {t + 1}", found[0, 0].double(), whole[t], 1e-6)
        cost = [step_cost(t) for t in (64, 128, 256)]
    yield about(
        "FLOPs of 64 more keys over those of 64 more before", (cost[2] - cost[1]) / (cost[1] - cost[0]), 2.0, 1e-9
    )


def step_cost(seen: int) -> int:
    """FLOPs of one step of a layer that remembers so many."""
    torch.manual_seed(0)
    made = MultiHead(8, 2, backend="reference")
    held = made.nothing_yet(1, torch.empty(0), None)
    x = torch.zeros(1, 8)
    for _ in range(seen):
        _, held = made.extend(x, held)
    return count_flops(lambda: made.extend(x, held))


def lifetimes(draw: Generator) -> Iterator[Value]:
    """B56: whatever is appended, forked, reordered, rolled back, evicted, padded left or right, what is read is what plain
    lists of tokens hold; reading another place gives another output."""
    for name, cache in (
        ("growing", GrowingCache(shape(2, 4, DEEP), sequences=2)),
        ("static", StaticCache(shape(2, 4, DEEP), sequences=2, capacity=200)),
        ("paged", PagedCache(shape(2, 4, DEEP), sequences=2, pages=400, page_size=3)),
    ):
        worst, moves = fuzz(cache, draw)
        yield at_most(f"difference, {name}", worst, EXACT)
        yield true(f"all operations, {name}", moves == {"append", "fork", "reorder", "roll_back", "evict", "forget"})
    keys, values = drawn(draw, 1, 1, 4, 4), drawn(draw, 1, 1, 4, 4)
    q = drawn(draw, 1, 1, 1, 4)
    right = attention(q, keys, values, mask=Full(), backend="reference")
    wrong = attention(q, keys, values.roll(1, 2), mask=Full(), backend="reference")
    yield true("a wrong index shows", bool((right - wrong).abs().max() > 1e-3))


Token = tuple[Tensor, Tensor]


def fuzz(cache: Cache, draw: Generator, steps: int = 60) -> tuple[float, set[str]]:
    """The largest difference of attention over the cache and over lists of (key, value), after each of drawn operations."""
    lists: list[list[Token]] = [[], []]
    worst, moves = 0.0, set()

    def up_to(most: int) -> int:
        return int(torch.randint(most + 1, (), generator=draw))

    for _ in range(steps):
        move = ("append", "append", "append", "fork", "reorder", "roll_back", "evict", "forget")[up_to(7)]
        if move == "append":
            append(cache, lists, draw, up_to(2) + 1)
        elif move == "fork" and len(lists) <= 2:
            cache.fork(2)
            lists = [list(tokens) for tokens in lists for _ in range(2)]
        elif move == "reorder":
            index = [up_to(len(lists) - 1) for _ in range(up_to(2) + 1)]
            cache.reorder(index)
            lists = [list(lists[n]) for n in index]
        elif move == "roll_back":
            count = min(up_to(2), *map(len, lists)) if len(lists) > 1 else min(up_to(2), len(lists[0]))
            if any(held.length != held.seen for held in cache.held):
                continue  # what was evicted cannot be counted back over
            cache.roll_back(count)
            lists = [tokens[: len(tokens) - count] for tokens in lists]
        elif move == "evict":
            chosen = up_to(len(lists) - 1)
            numbers = cache.held[chosen].numbers().tolist()
            dropped = [number for number in numbers if up_to(3) == 0]
            cache.evict(chosen, dropped)
            lists[chosen] = [
                token for number, token in zip(numbers, lists[chosen], strict=True) if number not in dropped
            ]
        elif move == "forget":
            chosen = up_to(len(lists) - 1)
            cache.evict(chosen)
            lists[chosen] = []
        else:
            continue
        moves.add(move)
        worst = max(worst, apart(cache, lists, draw))
    return worst, moves


def append(cache: Cache, lists: list[list[Token]], draw: Generator, time: int) -> None:
    """Tokens for every list, some of them padding on the left or the right."""
    keys, values = (drawn(draw, len(lists), 2, time, 4) for _ in range(2))
    real = torch.rand(len(lists), time, generator=draw) < 0.7
    cache.append(keys, values, real=real)
    for n, tokens in enumerate(lists):
        tokens += [(keys[n, :, t], values[n, :, t]) for t in range(time) if real[n, t]]


def apart(cache: Cache, lists: list[list[Token]], draw: Generator) -> float:
    """Of one query of each head."""
    assert cache.lengths == [len(tokens) for tokens in lists]
    q, held, worst = drawn(draw, len(lists), 2, 1, 4), cache.read(), 0.0
    if not held.keys.shape[2]:
        return 0.0
    found = attention(q, held.keys, held.values, mask=Padding(held.real), backend="reference")
    for n, tokens in enumerate(lists):
        if not tokens:
            continue
        keys, values = (torch.stack(parts, 1) for parts in zip(*tokens, strict=True))
        weights = ((keys @ q[n].mT)[..., 0] / 2).softmax(-1)
        worst = max(worst, float((found[n, :, 0] - (weights[..., None] * values).sum(1)).abs().max()))
    return worst


def capped(draw: Generator) -> Iterator[Value]:
    """B57: the cache grows with the length, so that memory caps the length; beyond it is refused, and nothing is lost."""
    plan = Plan(32, shape(32))
    for tokens in (1, 7, 4096):
        yield about(f"bytes of {tokens} tokens over those of one", plan.bytes(tokens) / plan.bytes(1), tokens)
    longest = plan.longest(8 * GIB)
    yield about("tokens that 8 GiB hold", longest, 8 * GIB // (32 * 2 * 32 * 128 * 2))
    yield true("one more is refused", refused(lambda: plan.check(longest + 1, 8 * GIB)))
    cache = StaticCache(shape(1, 4, DEEP), sequences=1, capacity=2)
    kept = drawn(draw, 1, 1, 2, 4)
    cache.append(kept, kept)
    yield true("a token past the capacity is refused", refused(lambda: cache.append(kept[:, :, :1], kept[:, :, :1])))
    yield same("what was there stays", cache.keys_values()[0], kept, 0.0)
