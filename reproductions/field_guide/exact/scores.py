"""Scores, scale, softmax: the four steps of attention and the score functions that it had before."""

from collections.abc import Iterator
from itertools import pairwise
from math import exp, log, sqrt

import torch
from torch import Generator, Tensor, autograd, nn

from common.attention import BACKENDS, Attended, Full, Mask, additive_attention, attention, unsupported
from common.attention.request import Request
from common.attention.scores import (
    additive_score,
    concat_score,
    dot_score,
    general_score,
    location_score,
    masked_softmax,
    scaled_dot_score,
)
from common.nn.multihead import MultiHead
from reproductions.bahdanau.model import RNNSearch
from reproductions.field_guide.exact.value import Value, about, at_least, at_most, same, true
from reproductions.luong.model import Luong

EXACT = 1e-12
ROUNDING = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
DEEP = torch.float64
FULL = Full()


def drawn(draw: Generator, *shape: int, dtype: torch.dtype = DEEP) -> Tensor:
    return torch.randn(shape, generator=draw, dtype=DEEP).to(dtype)


def usable(q: Tensor, k: Tensor, v: Tensor, mask: Mask = FULL) -> list[str]:
    """The backends that compute this attention here, without the one that compiles for each shape."""
    return [name for name in able(q, k, v, mask) if name != "flex"]


def able(q: Tensor, k: Tensor, v: Tensor, mask: Mask = FULL) -> list[str]:
    request = Request(q, k, v, mask, None, q.shape[-1] ** -0.5, 0.0, 0, False, False)
    return [name for name in BACKENDS if unsupported(request, name) is None]


def four_steps(draw: Generator) -> Iterator[Value]:
    """A07: score, scale, normalise over the keys, mix; written out, and by every backend."""
    q, k, v = drawn(draw, 2, 3, 5, 8), drawn(draw, 2, 3, 7, 8), drawn(draw, 2, 3, 7, 4)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / sqrt(8)
    raised = scores.exp()
    weights = raised / raised.sum(-1, keepdim=True)
    mixed = torch.einsum("bhij,bhjd->bhid", weights, v)
    found = attention(q, k, v, mask=Full(), backend="reference", return_weights=True)
    assert isinstance(found, Attended) and found.weights is not None
    yield same("weights", found.weights, weights, EXACT)
    yield same("sums of rows", found.weights.sum(-1), torch.ones(2, 3, 5, dtype=DEEP), 1e-6)
    for dtype, within in ROUNDING.items():
        cast = q.to(dtype), k.to(dtype), v.to(dtype)
        for backend in usable(*cast):
            out = attention(*cast, mask=Full(), backend=backend)
            yield same(f"{backend} {dtype}", out.double(), mixed, 5 * within)


def shapes(draw: Generator) -> Iterator[Value]:
    """A08: n queries, m keys, any sizes; a query that sees nothing gives zeros."""
    for n, m, d, dv in ((1, 1, 1, 1), (5, 7, 8, 3), (7, 5, 3, 8), (1, 9, 4, 4), (9, 1, 4, 2)):
        q, k, v = drawn(draw, 1, 2, n, d), drawn(draw, 1, 2, m, d), drawn(draw, 1, 2, m, dv)
        for backend in usable(q, k, v):
            out = attention(q, k, v, mask=Full(), backend=backend)
            yield true(f"{backend} {n}x{d} {m}x{d} {m}x{dv}", out.shape == (1, 2, n, dv) and bool(out.isfinite().all()))
    weights = masked_softmax(drawn(draw, 4, 6), torch.zeros(4, 6, dtype=torch.bool))
    yield at_most("weights of a query that sees nothing", weights.abs().max(), 0.0)


def hand_worked(draw: Generator) -> Iterator[Value]:
    """A09: scores 4, 1, 0 with d_k = 4 give weights 0.7361, 0.1643, 0.0996, on every backend and in every dtype."""
    for name, found, printed in zip(
        ("4", "1", "0"), (exp(2.0), exp(0.5), exp(0.0)), (7.389, 1.649, 1.000), strict=True
    ):
        yield about(f"exp of score {name}", found, printed, 5e-4)
    yield about("sum", exp(2.0) + exp(0.5) + 1, 10.038, 5e-4)
    out = attention(*the_three(DEEP), mask=Full(), backend="reference")[0, 0, 0]
    for place, printed in enumerate((0.7361, 0.1643, 0.0996)):
        yield about(f"weight {place + 1}", out[place], printed, 5e-5)
    for dtype, within in ROUNDING.items():
        q, k, v = the_three(dtype)
        for backend in able(q, k, v):
            out = attention(q, k, v, mask=Full(), backend=backend)[0, 0, 0]
            for place, printed in enumerate((0.7361, 0.1643, 0.0996)):
                yield about(f"weight {place + 1}, {backend} {dtype}", out[place], printed, 5e-5 + within)


def the_three(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """One query and three keys with products 4, 1 and 0, and one-hot values: the output is the weights."""
    q = torch.tensor([2.0, 0.0, 0.0, 0.0], dtype=dtype)
    k = torch.tensor([[2.0, 0, 0, 0], [0.5, 0, 0, 0], [0.0, 0, 0, 0]], dtype=dtype)
    return q.view(1, 1, 1, 4), k.view(1, 1, 3, 4), torch.eye(3, 4, dtype=dtype).view(1, 1, 3, 4)


def share_of_the_cat(draw: Generator) -> Iterator[Value]:
    """A10: how much of the output is the first value: 73.6 %."""
    q, k, v = the_three(DEEP)
    whole = attention(q, k, v, mask=Full(), backend="reference")
    without = v.clone()
    without[..., 0, :] = 0
    rest = attention(q, k, without, mask=Full(), backend="reference")
    yield about("percent of the output", 100 * (whole - rest).sum() / whole.sum(), 73.6, 0.05)


def variance(draw: Generator) -> Iterator[Value]:
    """A11: the variance of a product of independent unit parts is d_k, and 1 when divided by its root."""
    for d in (4, 16, 64, 128, 512):
        products = (drawn(draw, 40_000, d) * drawn(draw, 40_000, d)).sum(-1)
        yield about(f"variance over d_k, d_k = {d}", products.var() / d, 1.0, 0.05)
        yield about(f"variance when scaled, d_k = {d}", (products * d**-0.5).var(), 1.0, 0.05)


WIDTHS = (4, 16, 64, 128, 512)


def saturation(draw: Generator) -> Iterator[Value]:
    """A12: unscaled, the softmax over 32 keys comes close to a choice as d_k grows, and its gradient vanishes."""
    raw = {d: softness(draw, d, 1.0) for d in WIDTHS}
    scaled = {d: softness(draw, d, d**-0.5) for d in WIDTHS}
    for before, after in pairwise(WIDTHS):
        yield at_most(f"entropy at {after} over that at {before}", raw[after][0] / raw[before][0], 1.0)
    for before, after in pairwise(WIDTHS[1:]):
        yield at_most(f"gradient at {after} over that at {before}", raw[after][1] / raw[before][1], 1.0)
    yield at_most("entropy over log n, d_k = 512", raw[512][0], 0.1)
    yield at_most("gradient at 512 over the scaled one", raw[512][1] / scaled[512][1], 0.5)
    entropies = [entropy for entropy, _ in scaled.values()]
    yield at_most("spread of the scaled entropies", max(entropies) / min(entropies) - 1, 0.02)


def small_widths(draw: Generator) -> Iterator[Value]:
    """A12's limit: the gradient is smaller than the scaled one already at d_k = 4."""
    yield at_most("gradient over the scaled one, d_k = 4", softness(draw, 4, 1.0)[1] / softness(draw, 4, 0.5)[1], 1.0)


def softness(draw: Generator, d: int, scale: float, keys: int = 32, queries: int = 50_000) -> tuple[float, float]:
    """Mean entropy over log n, and mean Frobenius norm of the softmax's Jacobian diag(p) - p p^T.

    Given a query, its products with normal keys are normal themselves, of its length as standard deviation.
    """
    length = torch.randn(queries, d, generator=draw).norm(dim=1, keepdim=True).double()
    p = (length * drawn(draw, queries, keys) * scale).softmax(-1)
    entropy = torch.special.entr(p).sum(-1).mean() / log(keys)
    squares = p.square().sum(-1)
    norm = (squares - 2 * p.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt().mean()
    return float(entropy), float(norm)


def unscaled_example(draw: Generator) -> Iterator[Value]:
    """A13: the same scores unscaled: 0.936, 0.047, 0.017."""
    q, k, v = the_three(DEEP)
    out = attention(q, k, v, mask=Full(), backend="reference", scale=1.0)[0, 0, 0]
    for place, printed in enumerate((0.936, 0.047, 0.017)):
        yield about(f"weight {place + 1}", out[place], printed, 5e-4)


def additive(draw: Generator) -> Iterator[Value]:
    """A18: e_ij = v^T tanh(W_1 s_(i-1) + W_2 h_j), of the state before, W_2 h_j computed once."""
    model = RNNSearch(11, 12, attention=True, embedding=5, hidden=4, alignment=3, maxout=6, init_std=0.5).double()
    nn.init.normal_(model.v_a, generator=draw)
    nn.init.normal_(model.w_a, generator=draw)
    calls: list[int] = []
    model.u_a.register_forward_hook(lambda *_: calls.append(1))
    source, real = torch.tensor([[3, 5, 7, 4]]), torch.ones(1, 4, dtype=torch.bool)
    with torch.no_grad():
        memory, state = model.begin(source, real)
        for step, word in enumerate((1, 6, 8)):
            before = state["s"][0, 0]
            _, state, weights = model.step(memory, state, torch.tensor([[word]]))
            assert weights is not None
            expected, current = (by_hand(model, memory["annotations"][0], s) for s in (before, state["s"][0, 0]))
            yield same(f"weights of step {step + 1}", weights[0, 0], expected, EXACT)
            yield at_least(
                f"difference to those of the state after, step {step + 1}", (current - expected).abs().max(), 1e-6
            )
    yield about("products W_2 h", len(calls), 1)
    yield true("shapes", model.w_a.shape == (4, 3) and model.u_a.weight.shape == (3, 8) and model.v_a.shape == (3,))


def by_hand(model: RNNSearch, annotations: Tensor, state: Tensor) -> Tensor:
    """The weights of one state, in loops."""
    scores = []
    for h in annotations:
        hidden = [
            sum(state[i] * model.w_a[i, a] for i in range(4))
            + sum(model.u_a.weight[a, j] * h[j] for j in range(8))
            + model.u_a.bias[a]
            for a in range(3)
        ]
        scores.append(sum(model.v_a[a] * torch.tanh(hidden[a]) for a in range(3)))
    raised = torch.stack([torch.as_tensor(score).exp() for score in scores])
    return raised / raised.sum()


def same_interface(draw: Generator) -> Iterator[Value]:
    """A19: softmax and weighted sum are those of dot attention: only the score differs."""
    query, keys, v = drawn(draw, 2, 6), drawn(draw, 2, 5, 6), drawn(draw, 6)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    for name, scores in (("additive", additive_score(query, keys, v)), ("scaled dot", scaled_dot_score(query, keys))):
        weights = masked_softmax(scores, real)
        context = (weights.unsqueeze(-2) @ keys).squeeze(-2)
        expected = torch.stack([(scores[n, :m].softmax(-1)[:, None] * keys[n, :m]).sum(0) for n, m in ((0, 5), (1, 3))])
        yield same(f"context, {name}", context, expected, EXACT)
    of_all = additive_attention(query[:, None], keys, keys, v, mask=real, backend="reference")[:, 0]
    at_a_time = (masked_softmax(additive_score(query, keys, v), real).unsqueeze(-2) @ keys).squeeze(-2)
    yield same("all queries at once", of_all, at_a_time, EXACT)


def multiplicative(draw: Generator) -> Iterator[Value]:
    """A22: dot, general, concat and location, against loops."""
    s, h, w, v = drawn(draw, 3), drawn(draw, 5, 3), drawn(draw, 3, 3), drawn(draw, 4)
    both, places = drawn(draw, 6, 4), drawn(draw, 3, 9)
    dot = torch.stack([sum((s[i] * key[i] for i in range(3)), s.new_zeros(())) for key in h])
    general = torch.stack(
        [sum((s[i] * w[i, j] * key[j] for i in range(3) for j in range(3)), s.new_zeros(())) for key in h]
    )
    concat = torch.stack([(torch.tanh(torch.cat((s, key)) @ both) * v).sum() for key in h])
    yield same("dot", dot_score(s, h), dot, EXACT)
    yield same("general", general_score(s, h, w), general, EXACT)
    yield same("concat", concat_score(s, h, both, v), concat, EXACT)
    yield same("location", location_score(s, places, 5), torch.stack([s @ places[:, j] for j in range(5)]), EXACT)


def parameters(draw: Generator) -> Iterator[Value]:
    """A23: dot has no parameter, general d^2, additive 2 d^2 + d."""
    d = 8

    def count(attention: str) -> int:
        model = Luong(11, 12, layers=1, hidden=d, embedding=d, attention=attention)
        return sum(parameter.numel() for parameter in model.parameters())

    plain = count("dot")
    yield about("general", count("general") - plain, d * d)
    yield about("additive", count("concat") - plain, 2 * d * d + d)
    without = count("none") + 2 * d * d  # W_c, that every attention has
    yield about("dot", plain - without, 0)


def scaled_is_dot(draw: Generator) -> Iterator[Value]:
    """A26: scaled dot products are dot products over sqrt(d), to the last bit where that is a power of two."""
    s, h = drawn(draw, 4, 64), drawn(draw, 4, 9, 64)
    yield same("d = 64", scaled_dot_score(s, h), dot_score(s, h) / 8, 0.0)
    s, h = drawn(draw, 4, 48), drawn(draw, 4, 9, 48)
    yield same("d = 48", scaled_dot_score(s, h), dot_score(s, h) / sqrt(48), EXACT)


def soft_lookup(draw: Generator) -> Iterator[Value]:
    """A01: with temperature 1 the softmax mix, with temperature towards 0 the value of the best key; differentiable."""
    q, k, v = (drawn(draw, 1, 1, n, 8).requires_grad_() for n in (3, 6, 6))
    scores = q @ k.mT
    hard = v[0, 0, scores[0, 0].argmax(-1)]
    cold = attention(q, k, v, mask=Full(), backend="reference", scale=1e4)
    yield at_most("distance from the best value at temperature 1e-4", (cold[0, 0] - hard).abs().sum(), 1e-6)
    mixed = attention(q, k, v, mask=Full(), backend="reference", scale=1.0)
    yield same("mix at temperature 1", mixed, scores.softmax(-1) @ v, EXACT)
    for name, gradient in zip("qkv", autograd.grad(mixed.square().sum(), (q, k, v)), strict=True):
        yield true(f"gradient of {name}", bool(gradient.isfinite().all()) and bool((gradient != 0).any()))


def three_maps(draw: Generator) -> Iterator[Value]:
    """A02: queries, keys and values have maps of their own: without one of the first two all weights are equal, without
    the third there is no output."""
    x = drawn(draw, 1, 5, 8)

    def layer(without: str = "") -> MultiHead:
        torch.manual_seed(0)
        made = MultiHead(8, 2, backend="reference", linear_bias=False).double()
        if without:
            nn.init.zeros_(getattr(made, without).weight)
        return made

    with torch.no_grad():
        for name in ("w_q", "w_k"):
            weights = layer(name).weights(x, mask=Full())
            yield same(f"weights without {name}", weights, torch.full_like(weights, 0.2), EXACT)
            yield at_least(
                f"change of the output without {name}",
                _apart(layer()(x, mask=Full()), layer(name)(x, mask=Full())),
                1e-3,
            )
        yield at_most("output without w_v", layer("w_v")(x, mask=Full()).abs().max(), 0.0)
        yield at_least("output with all", layer()(x, mask=Full()).abs().max(), 1e-3)
        yield same("weights without w_v", layer("w_v").weights(x, mask=Full()), layer().weights(x, mask=Full()), 0.0)


def _apart(first: Tensor, second: Tensor) -> Tensor:
    return (first - second).abs().max()


def sharpened(draw: Generator) -> Iterator[Value]:
    """A06: addressing by content in the Neural Turing Machine (Graves et al. 2014, section 3.3.1), with key strength beta
    over cosines, is attention over unit keys with temperature 1 / beta."""
    q, memory = drawn(draw, 1, 1, 3, 8), drawn(draw, 1, 1, 6, 8)
    for beta in (0.5, 1.0, 4.0):
        cosines = torch.cosine_similarity(q[0, 0, :, None], memory[0, 0, None], dim=-1)
        read = (beta * cosines).softmax(-1) @ memory[0, 0]
        one, all_of_them = (t / t.norm(dim=-1, keepdim=True) for t in (q, memory))
        out = attention(one, all_of_them, memory, mask=Full(), backend="reference", scale=beta)[0, 0]
        yield same(f"beta = {beta:g}", out, read, EXACT)
