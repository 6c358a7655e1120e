"""Soft and hard choices, and what becomes of a soft one among many keys."""

from collections.abc import Iterator
from math import exp

import torch
from torch import Generator, Tensor, autograd

from common.attention import Full, attention
from common.attention.scores import dot_score, masked_softmax, truncated_gaussian, window
from common.nn.sparse import Full as FullKind
from common.nn.sparse.full import FullAttention
from reproductions.field_guide.exact.scores import DEEP, EXACT, drawn
from reproductions.field_guide.exact.value import Value, about, at_least, at_most, same, true
from reproductions.field_guide.layers import Weighted


def hard_choice(draw: Generator) -> Iterator[Value]:
    """A05: product, softmax and sum have a derivative, which is right to every digit; a hard choice passes none back to the
    scores that it was made by."""
    q, k, v = (drawn(draw, 1, 1, 4, 3).requires_grad_() for _ in range(3))

    def soft(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attention(q, k, v, mask=Full(), backend="reference")
        assert isinstance(out, Tensor)
        return out

    yield true("gradients of soft attention are those of differences", autograd.gradcheck(soft, (q, k, v)))
    torch.manual_seed(0)
    hard = Weighted(backend="reference", weights="hard")(8, 2, 0, 1).double()
    like = FullKind(backend="reference")(8, 2, 0, 1).double()
    like.load_state_dict(hard.state_dict())
    x = drawn(draw, 1, 6, 8)
    for name, layer in (("soft", like), ("hard", hard)):
        assert isinstance(layer, FullAttention)
        layer(x).square().sum().backward()
        for part, w in (("queries", layer.w_q), ("keys", layer.w_k), ("values", layer.w_v)):
            size = 0.0 if w.weight.grad is None else w.weight.grad.abs().max()
            if name == "soft" or part == "values":
                yield at_least(f"{name}, gradient of {part}", size, 1e-6)
            else:
                yield at_most(f"{name}, gradient of {part}", size, 0.0)


def dilution(draw: Generator) -> Iterator[Value]:
    """B06's limit: however many others there are, the right key keeps its weight. With a score that is m above the others',
    it is e^m / (e^m + L - 1)."""
    margin = 5.0
    for length in (32, 1024, 32768):
        scores = torch.zeros(1, 1, 1, length, dtype=DEEP)
        scores[..., 7] = margin
        q, k = torch.ones(1, 1, 1, 1, dtype=DEEP), scores.mT
        v = torch.nn.functional.one_hot(torch.tensor([7]), length).to(DEEP).mT[None, None]
        found = attention(q, k, v, mask=Full(), backend="reference", scale=1.0)
        assert isinstance(found, Tensor)
        yield about(f"closed form, {length:,} keys", found, exp(margin) / (exp(margin) + length - 1), EXACT)
        yield at_least(f"weight of the right key among {length:,}", found, 0.5)


def window_without_end(draw: Generator) -> Iterator[Value]:
    """A45: Luong's local attention with a window wider than the sentence is his global attention, and a narrow one weights
    what is near its centre."""
    query, source = drawn(draw, 8), drawn(draw, 9, 8)
    scores, real = dot_score(query, source), torch.ones(9, dtype=torch.bool)
    everywhere = masked_softmax(scores, real)
    centre = torch.tensor(3.2, dtype=DEEP)
    wide = 10**9
    yield same("local-m", masked_softmax(scores, real & window(centre, wide, 9)), everywhere, EXACT)
    of_wide = everywhere * truncated_gaussian(centre, wide, 9)
    yield same("local-p", of_wide, everywhere, 1e-12)
    near = window(centre, 2, 9)
    yield about("places in a window of 2 around 3.2", int(near.sum()), 4)  # 2, 3, 4, 5
    narrow = masked_softmax(scores, near) * truncated_gaussian(centre, 2, 9)
    expected = torch.zeros(9, dtype=DEEP)
    total = sum(exp(float(scores[s])) for s in (2, 3, 4, 5))
    for s in (2, 3, 4, 5):
        expected[s] = exp(float(scores[s])) / total * exp(-((s - 3.2) ** 2) / 2)
    yield same("local-p, by hand", narrow, expected, EXACT)
