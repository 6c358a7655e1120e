"""Where things stand: positions, reach, and what the parts around attention are there for."""

from collections.abc import Callable, Iterator
from math import log2
from typing import Any

import torch
from torch import Generator, Tensor, autograd, nn

from common.attention import Blocks, Causal, Full, Global, Mask, RotaryScaling, attention
from common.bench import count_flops
from common.nn import positioned, sparse, vision
from common.nn.embedding import Embedding
from common.nn.multihead import MultiHead
from reproductions.field_guide.exact.scores import DEEP, EXACT, drawn
from reproductions.field_guide.exact.structure import layer
from reproductions.field_guide.exact.value import Value, about, at_least, at_most, same, true

PLAIN: dict[str, Any] = {"backend": "reference"}
ADDED = ("sinusoidal", "learned")
KINDS: dict[str, Callable[[], Any]] = {
    "Shaw": lambda: positioned.Shaw(**PLAIN),
    "T5": lambda: positioned.Biased(**PLAIN, kind="t5"),
    "DeBERTa": lambda: positioned.Disentangled(**PLAIN, clip=8),
    "ALiBi": lambda: positioned.Biased(**PLAIN, kind="alibi"),
    "rotary": lambda: sparse.Full(**PLAIN, rotary=True),
    "rotary, interpolated": lambda: sparse.Full(
        **PLAIN, rotary=True, rotary_scaling=RotaryScaling("interpolation", 2.0)
    ),
    "rotary, NTK": lambda: sparse.Full(**PLAIN, rotary=True, rotary_scaling=RotaryScaling("ntk", 2.0)),
}


def order(draw: Generator) -> Iterator[Value]:
    """A41: order comes from outside: each kind of positions tells permuted words from others, none does not. Those of
    distances give the same wherever a text begins."""
    words, turn = drawn(draw, 1, 7, 16), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    plain = large(sparse.Full(**PLAIN)(16, 2, 0, 1))
    yield at_most("none", moved(plain, words, turn), EXACT)
    for name in ADDED:
        torch.manual_seed(0)
        embedding = Embedding(9, 16, positions=name, max_length=7 if name == "learned" else None).double()
        tokens = torch.arange(7)[None]
        apart = plain(embedding(tokens[:, turn])) - plain(embedding(tokens))[:, turn]
        yield at_least(name, apart.abs().max(), 1e-3)
    for name, kind in KINDS.items():
        made = large(kind()(16, 4, 0, 1))
        yield at_least(name, moved(made, words, turn), 1e-3)
        late = torch.cat((torch.zeros(1, 5, 16, dtype=DEEP), words), 1)
        real = torch.arange(12)[None] >= 5
        yield same(f"{name}, five places later", made(late, real=real)[:, 5:], made(words), 1e-10)


def moved(made: nn.Module, words: Tensor, turn: Tensor) -> Tensor:
    """By how much permuted words give something else than permuted outputs."""
    return (made(words[:, turn]) - made(words)[:, turn]).abs().max()


def large(made: nn.Module) -> nn.Module:
    """Its weights drawn so that every score counts."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3)
    return made.double().eval()


def reach(draw: Generator) -> Iterator[Value]:
    """A29: one layer takes any position to any other: no derivative of an output by an input is 0."""
    for length in (4, 64):
        x = drawn(draw, 1, length, 8).requires_grad_()
        y = layer()(x, mask=Full())
        reached = [autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().amax(-1) > 0 for i in range(length)]
        yield about(f"pairs of {length} positions that are reached", int(torch.stack(reached).sum()), length**2)


def switched_off(draw: Generator) -> Iterator[Value]:
    """A31: what recurrence had built in, attention gets from outside: order from positions, direction from the mask, and a
    cost that grows with the length from sparsity. Each is gone where that part is."""
    x, turn = drawn(draw, 1, 8, 16), torch.randperm(8, generator=draw)
    made, turned = layer(d=16), layer(d=16, rotary=True)
    for name, model, low, high in (("without positions", made, 0.0, EXACT), ("with them", turned, 1e-3, torch.inf)):
        apart = (model(x[:, turn], mask=Full()) - model(x, mask=Full())[:, turn]).abs().max()
        yield Value(f"order, {name}", float(apart.detach()), low, high)
    later = x.clone().requires_grad_()
    masks: tuple[tuple[str, Mask, float, float], ...] = (
        ("without the mask", Full(), 1e-6, torch.inf), ("with it", Causal(), 0.0, 0.0)
    )  # fmt: skip
    for name, mask, low, high in masks:
        leak = autograd.grad(made(later, mask=mask)[0, 2].sum(), later)[0][0, 3:].abs().max()
        yield Value(f"what the future changes, {name}", float(leak), low, high)
    for name, kind, expected in (
        ("dense", sparse.Full(**PLAIN), 2.0),
        ("windows", sparse.Windowed(backend="chunked", window=8), 1.0),
    ):
        yield about(f"power of the length, {name}", growth(kind), expected, 0.05)


def growth(kind: Any, short: int = 512, long: int = 1024) -> float:
    """The power of the length that scores and sums grow with; the projections, which are linear, are left out."""
    torch.manual_seed(0)
    made = kind(16, 2, 0, 1)
    flops = [count_flops(lambda n=n: made(torch.zeros(1, n, 16))) - 4 * 2 * n * 16 * 16 for n in (short, long)]
    return log2(flops[1] / flops[0]) / log2(long / short)


def kinds_of_data(draw: Generator) -> Iterator[Value]:
    """B37: images by windows that are shifted, or along rows and columns; video by frames and a few tokens that join them.
    Each is dense attention with a mask, number for number."""
    side, wide = 8, 4
    image = drawn(draw, 1, side, side, 16)
    for name, factory in (("windows", vision.Swin(**PLAIN, window=wide)), ("axial", vision.Axial(**PLAIN))):
        for n in (0, 1):
            made = large(factory(16, 2, n))
            shift = wide // 2 if name == "windows" and n else 0
            seen = windows(side, wide, shift) if name == "windows" else lines(side, n)
            bias = by_place(made, side, seen) if name == "windows" else None
            yield same(f"{name}, layer {n}", made(image).flatten(1, 2), dense(made, image, seen, bias), 1e-10)
    frames, tokens = 4, 6
    length = frames * tokens
    own = torch.eye(frames, dtype=torch.bool)[None, None]
    mask = Blocks(own, tokens) | Global(tuple(range(0, length, tokens)))
    frame = torch.arange(length) // tokens
    first = torch.arange(length) % tokens == 0
    seen = (frame[:, None] == frame) | first | first[:, None]
    yield true("frames and the first token of each", torch.equal(mask.dense(length, length).expand_as(seen), seen))
    q, k, v = (drawn(draw, 1, 1, length, 8) for _ in range(3))
    by_hand = ((q @ k.mT) / 8**0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v
    found = attention(q, k, v, mask=mask, backend="chunked")
    assert isinstance(found, Tensor)
    yield same("frames, in chunks", found, by_hand, EXACT)


def places(side: int) -> tuple[Tensor, Tensor]:
    """Row and column of each pixel."""
    at = torch.arange(side**2)
    return at // side, at % side


def windows(side: int, wide: int, shift: int) -> Tensor:
    """Which pixels are in one window, the first of which begin `shift` pixels in, the cut-off ones at the border alone."""
    y, x = ((p - shift) // wide for p in places(side))
    return (y[:, None] == y) & (x[:, None] == x)


def lines(side: int, layer: int) -> Tensor:
    """Which pixels are in one row, in layers of even number; in one column, in the others."""
    along = places(side)[layer % 2]
    return along[:, None] == along


def by_place(made: Any, side: int, seen: Tensor) -> Tensor:
    """Swin's bias, looked up pixel by pixel: table[y_i - y_j + M - 1, x_i - x_j + M - 1] (Liu et al. 2021, section 3.2)."""
    y, x = places(side)
    wide = made.window
    dy, dx = (y[:, None] - y).clamp(1 - wide, wide - 1), (x[:, None] - x).clamp(1 - wide, wide - 1)
    return made.table[:, dy + wide - 1, dx + wide - 1].masked_fill(~seen, 0.0)


def dense(made: Any, image: Tensor, seen: Tensor, bias: Tensor | None) -> Tensor:
    """All pixels by all, masked."""
    multihead: MultiHead = made.multihead
    q, k, v = multihead.queries_keys_values(image.flatten(1, 2), None, None)
    scores = q @ k.mT * multihead.scale
    if bias is not None:
        scores = scores + bias
    heads = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    return multihead.w_o(heads.transpose(1, 2).flatten(-2))
