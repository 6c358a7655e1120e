"""How different heads are: by hand, in closed form, and of heads that were made copies."""

from collections.abc import Callable
from math import log, log2, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.nn import diversity
from common.nn.conditional import GatedHeads
from common.nn.diversity import (
    cka,
    copies,
    cosines,
    disagreement,
    divergences,
    entropies,
    off_diagonal,
    overlaps,
    penalty,
    watched,
)
from common.nn.hybrid import Hybrid, Sliding
from common.nn.linear import Elu
from common.nn.long import LanguageModel, MaskedModel
from common.nn.positioned import Biased
from common.nn.selective import Selective
from common.nn.sparse import Factory, Full, Windowed


def heads(*of: Any) -> Tensor:
    """One text; of: each head's rows."""
    return torch.tensor(of, dtype=torch.float64)[None]


VECTORS = heads([[3.0, 0], [0, 2]], [[5.0, 0], [1, 0]])
"""Cosines of the two heads: 1 at the first position, 0 at the second."""

MAPS = heads([[1.0, 0], [0.5, 0.5]], [[0.0, 1], [0.5, 0.5]])
"""Two heads that look at different keys first, then at both alike."""


def test_disagreement_by_hand() -> None:
    """Means over four pairs: of cosines (1 + 1 / 2 + 1 / 2 + 1) / 4. Overlaps of the maps: with itself (1 + 1 / 2) / 2, with
    the other (0 + 1 / 2) / 2."""
    assert cosines(VECTORS).tolist() == [[1.0, 0.5], [0.5, 1.0]]
    assert disagreement("subspaces", VECTORS).item() == disagreement("outputs", VECTORS).item() == -3 / 4
    assert overlaps(MAPS).tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert disagreement("positions", MAPS).item() == -1 / 2
    opposed = heads([[1.0, 2]], [[-2.0, -4]], [[1.0, 2]])
    assert disagreement("outputs", opposed).item() == pytest.approx(-(5 - 4) / 9)


def test_divergence_by_hand() -> None:
    """(1, 0) and (0, 1) are 1 bit apart, equal ones 0. (1, 0) and (1/2, 1/2): H(3/4, 1/4) - H(1/2, 1/2) / 2 =
    2 - 3/4 log 3 - 1/2."""
    assert divergences(MAPS).tolist() == [[0.0, 0.5], [0.5, 0.0]]
    apart = divergences(heads([[1.0, 0]], [[0.5, 0.5]], [[1.0, 0]]))
    assert apart[0, 1].item() == apart[1, 2].item() == pytest.approx(1.5 - 0.75 * log2(3)) and apart[0, 2] == 0
    assert off_diagonal(apart).item() == pytest.approx(2 / 3 * (1.5 - 0.75 * log2(3)))


def test_entropies_by_hand() -> None:
    """(1/2, 1/4, 1/4) has 1.5 bits of log 3; a query that sees one key says nothing."""
    whole = heads([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    assert entropies(whole).tolist() == pytest.approx([(0 + 1) / 2, (1.5 + 1) / 2 / log2(3)])
    causal = heads([[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], [[1.0, 0, 0], [1.0, 0, 0], [0, 0.5, 0.5]])
    seen = torch.ones(3, 3, dtype=torch.bool).tril()
    assert entropies(causal, seen).tolist() == pytest.approx([1.0, (0 + 1 / log2(3)) / 2])
    real = torch.tensor([[True, True, False]])
    assert entropies(causal, seen, real).tolist() == pytest.approx([1.0, 0.0])
    assert entropies(causal[:, :, :1], seen[:1]).tolist() == [0.0, 0.0]


def by_gram_matrices(x: np.ndarray, y: np.ndarray) -> float:
    """Kornblith et al. 2019, equations 3 and 4: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of linear kernels."""
    centre = np.eye(len(x)) - 1 / len(x)
    k, m = (centre @ z @ z.T @ centre for z in (x, y))
    return float((k * m).sum() / sqrt((k * k).sum() * (m * m).sum()))


def test_cka_by_hand_and_by_its_other_form() -> None:
    """Of columns (1, -1, 0) and (1, 1, -2), orthogonal, and of their sum (2, 0, -2) with the first: (4 / (sqrt 2 sqrt 8))^2 / 2
    .. that is cos^2 = 2^2 / (2 * 8)."""
    found = cka(heads([[1.0], [-1], [0]], [[1.0], [1], [-2]], [[2.0], [0], [-2]]))
    assert found[0, 1].item() == pytest.approx(0.0) and found[0, 2].item() == pytest.approx(4 / 16)
    torch.manual_seed(0)
    x = torch.randn(2, 3, 20, 4).double() + 2.0
    rows = [x[:, h].flatten(0, 1).numpy() for h in range(3)]
    expected = [[by_gram_matrices(one, other) for other in rows] for one in rows]
    np.testing.assert_allclose(cka(x).numpy(), expected, atol=1e-12)
    assert cka(torch.ones(1, 2, 5, 3)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_cka_does_not_know_how_a_head_is_turned_scaled_or_moved() -> None:
    """But each dimension scaled otherwise it does, and cosines know all of it."""
    torch.manual_seed(0)
    one = torch.randn(1, 1, 30, 4).double()
    turn = torch.linalg.qr(torch.randn(4, 4).double())[0]
    turned, stretched = -7 * one @ turn + 3.0, one * torch.tensor([1.0, 5, 1, 1])
    found = cka(torch.cat((one, turned, stretched), 1))
    assert found[0, 1].item() == pytest.approx(1.0) and found[0, 2] < 0.9
    assert cosines(torch.cat((one, turned), 1))[0, 1] < 0.9


def weights(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(*shape).double().softmax(-1)


def test_equal_heads_and_heads_with_nothing_in_common() -> None:
    """Similarity 1 and divergence 0; 0 and 1."""
    torch.manual_seed(0)
    maps, x = weights(2, 1, 5, 6).expand(2, 3, 5, 6), torch.randn(2, 1, 9, 4).double().expand(2, 3, 9, 4)
    ones, zeros = torch.ones(3, 3).double(), torch.zeros(3, 3).double()
    for found, expected in ((cosines(maps), ones), (cosines(x), ones), (cka(x), ones), (divergences(maps), zeros)):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert off_diagonal(found).item() == pytest.approx(expected[0, 1].item(), abs=1e-12)
    assert disagreement("subspaces", x).item() == pytest.approx(-1.0)
    apart = torch.eye(3).double()[None, :, None].expand(2, 3, 5, 3)
    assert off_diagonal(cosines(apart)) == off_diagonal(overlaps(apart)) == 0 and off_diagonal(divergences(apart)) == 1
    assert disagreement("positions", apart).item() == pytest.approx(-1 / 3)
    assert off_diagonal(cosines(x[:, :1])) == 0, "a single head"


@pytest.mark.parametrize("measure", [cosines, overlaps, divergences, cka], ids=lambda f: f.__name__)
def test_matrices_are_symmetric_within_bounds_and_mean_over_texts(measure: Callable[..., Tensor]) -> None:
    x = weights(3, 4, 7, 7)
    found = measure(x)
    torch.testing.assert_close(found, found.mT)
    assert found.min() >= 0 and found.max() <= 1 + 1e-12
    if measure is not cka:
        torch.testing.assert_close(found, torch.stack([measure(text[None]) for text in x]).mean(0))


@pytest.mark.parametrize("measure", [cosines, overlaps, divergences, cka], ids=lambda f: f.__name__)
def test_padding_takes_no_part(measure: Callable[..., Tensor]) -> None:
    x = weights(2, 3, 6, 5)
    real = torch.arange(6) < torch.tensor([6, 2])[:, None]
    whole = torch.cat((x[:1], x[1:, :, :2].repeat(1, 1, 3, 1)), 0)  # of which two rows in six are counted once
    expected = measure(torch.cat((x[0], x[1, :, :2]), 1)[None])
    torch.testing.assert_close(measure(whole.masked_fill(~real[:, None, :, None], torch.nan), real), expected)
    with pytest.raises(ValueError, match=r"x, real: got \(2, 3, 6, 5\), \(torch.bool, \(2, 5\)\), expected"):
        measure(x, real[:, :5])


@pytest.mark.parametrize("what", ["subspaces", "positions", "outputs"])
def test_gradients_of_what_is_trained(what: Any) -> None:
    x = weights(2, 3, 4, 5).requires_grad_()
    real = torch.arange(4) < torch.tensor([4, 2])[:, None]
    assert torch.autograd.gradcheck(lambda y: disagreement(what, y, real), x)
    (grad,) = torch.autograd.grad(disagreement(what, x), x)
    assert disagreement(what, x + 0.01 * grad) > disagreement(what, x)


def test_a_head_of_zeros_is_like_none_and_gets_no_endless_gradient() -> None:
    x = torch.cat((torch.zeros(1, 1, 3, 2), torch.ones(1, 2, 3, 2)), 1).requires_grad_()
    found = cosines(x)
    assert found[0].tolist() == [0.0] * 3 and found[1, 2].item() == pytest.approx(1.0)
    found.sum().backward()
    assert x.grad is not None and x.grad.abs().max() < 10


def test_in_16_bits_it_is_computed_in_fp32() -> None:
    """Norms whose squares fp16 has not, and sums over thousands of positions."""
    x = torch.full((1, 2, 5000, 8), 300.0, dtype=torch.float16)
    for found in (cosines(x), overlaps(x / 2400), divergences(x / 2400), cka(x)):
        assert found.dtype == torch.float32 and found.isfinite().all()
    assert cosines(x)[0, 1].item() == pytest.approx(1.0, abs=1e-4)


def language_model(attention: Factory, heads: int = 4) -> Any:
    torch.manual_seed(0)
    return LanguageModel(11, 2, 16, heads, 16, attention=attention, std=0.5).eval()


CAUSAL = Full(backend="reference", causal=True)
TOKENS = torch.randint(11, (4, 24), generator=torch.Generator().manual_seed(1))


def state(model: Any) -> dict[str, list[Tensor]]:
    """Matrices of its layers, cosines and the like, by name."""
    found = {}
    for what in ("positions", "outputs"):
        with watched(model, what) as layers, torch.no_grad():
            model(TOKENS)
        found |= {f"{what}, {f.__name__}": [f(of.heads) for of in layers] for f in (cosines, divergences, cka)}
    return found


def test_heads_that_were_made_copies_are_found() -> None:
    """Head 2 of the second layer becomes head 0; then its values are turned, which only CKA sees through."""
    model = language_model(CAUSAL)
    before = state(model)
    assert not any(
        copies(m) for name in ("positions, cosines", "outputs, cosines", "outputs, cka") for m in before[name]
    )
    layer = model.trunk.blocks[1].attention
    for w in (layer.w_q, layer.w_k, layer.w_v):
        w.weight.data[8:12] = w.weight.data[:4]
    after = state(model)
    for name in ("positions, cosines", "outputs, cosines", "outputs, cka"):
        assert [copies(m) for m in after[name]] == [[], [(0, 2)]]
        assert after[name][1][0, 2].item() == pytest.approx(1.0, abs=1e-4)
        assert off_diagonal(after[name][1]) > off_diagonal(before[name][1])
    assert after["positions, divergences"][1][0, 2].item() == pytest.approx(0.0, abs=1e-5)
    assert before["positions, divergences"][1][0, 2] > 0.01
    layer.w_v.weight.data[8:12] = torch.linalg.qr(torch.randn(4, 4))[0] @ layer.w_v.weight.data[:4]
    turned = state(model)
    assert [copies(m) for m in turned["outputs, cka"]] == [[], [(0, 2)]] and not copies(turned["outputs, cosines"][1])
    assert copies(torch.tensor([[1.0, 0.9], [0.9, 1.0]]), above=0.8) == [(0, 1)]


WATCHED: dict[str, Factory] = {
    "full": CAUSAL,
    "chunked": Full(backend="chunked", causal=True, rotary=True),
    "one key head": Full(backend="sdpa", causal=True, kv_heads=1),
    "sliding": Sliding(backend="reference", window=3),
    "windowed": Windowed(backend="reference", causal=True, window=3),
    "linear": Elu(causal=True),
    "gated": GatedHeads(backend="reference", causal=True, budget=2),
}


@pytest.mark.parametrize("kind", WATCHED)
def test_what_is_watched_is_what_the_layers_compute(kind: str) -> None:
    """Values from what the first block normed, outputs by what they add to x, in their order; and nothing is changed or
    left behind."""
    model = language_model(WATCHED[kind])
    plain = model(TOKENS)
    normed, added = [], []
    for block in model.trunk.blocks:
        block.norm_1.register_forward_hook(lambda _, __, out: normed.append(out))
        block.attention.register_forward_hook(lambda _, __, out: added.append(out))
    for what in ("subspaces", "outputs"):
        with watched(model, what) as found:
            assert torch.equal(model(TOKENS), plain)
        assert len(found) == 2 and all(of.real is None for of in found)
        for block, of, x, out in zip(model.trunk.blocks, found, normed, added, strict=False):
            layer = block.attention
            values = layer.w_v(x).view(4, 24, layer.kv_heads, 4).transpose(1, 2)
            if what == "subspaces":
                torch.testing.assert_close(of.heads, values)
            else:
                torch.testing.assert_close(layer.w_o(of.heads.transpose(1, 2).reshape(4, 24, 16)), out)
        model(TOKENS)
        assert len(found) == 2 and not any(part._forward_pre_hooks for part in model.modules())
        normed.clear()
        added.clear()


@pytest.mark.parametrize("kind", ["full", "chunked", "one key head", "sliding"])
def test_weights_make_the_outputs(kind: str) -> None:
    """Rows that add up to 1, of nothing that follows; weights times values are what the heads read, of real positions."""
    model = language_model(WATCHED[kind])
    found = {}
    for what in ("positions", "subspaces", "outputs"):
        with watched(model, what) as found[what]:
            model(TOKENS)
    for of, values, out in zip(*(found[what] for what in ("positions", "subspaces", "outputs")), strict=True):
        torch.testing.assert_close(of.heads.sum(-1), torch.ones(4, 4, 24))
        assert torch.equal(of.heads, of.heads.tril())
        shared = values.heads.repeat_interleave(4 // values.heads.shape[1], 1)
        torch.testing.assert_close(of.heads @ shared, out.heads, atol=1e-4, rtol=1e-4)


def test_padding_goes_along() -> None:
    torch.manual_seed(0)
    model = MaskedModel(11, 2, 16, 4, 16, attention=Full(backend="reference"), std=0.5).eval()
    real = torch.arange(24) < torch.tensor([24, 9, 24, 3])[:, None]
    for what in ("subspaces", "positions", "outputs"):
        alone = []
        with watched(model, what) as found:
            model(TOKENS, real)
            together = penalty(what, found)
            for b, length in enumerate([24, 9, 24, 3]):
                found.clear()
                model(TOKENS[b : b + 1, :length])
                alone.append(float(penalty(what, found).detach()))
        counted = np.average(alone, weights=[24, 9, 24, 3])
        assert float(together.detach()) == pytest.approx(counted, rel=1e-4) and all(value > 0 for value in alone)


def test_the_penalty_is_minus_the_mean_over_layers() -> None:
    found = [diversity.Watched(VECTORS, None), diversity.Watched(VECTORS[:, :, :1], None)]
    assert penalty("outputs", found).item() == pytest.approx((3 / 4 + 1) / 2)


@pytest.mark.parametrize(("what", "by"), [("subspaces", 0.05), ("positions", 0.01), ("outputs", 0.05)])
def test_a_penalty_makes_heads_differ(what: Any, by: float) -> None:
    """Trained on both from the same weights, the heads are less alike than those trained on the likelihood alone. Overlaps of
    positions can't fall far: 24 queries that see all before them alike have (1 + 1 / 2 + .. + 1 / 24) / 24 = 0.157."""
    alike = []
    for weight in (0.0, 1.0):
        model = language_model(CAUSAL).train()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(20):
            with watched(model, what) as found:
                logits = model(TOKENS)
            nll = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
            optimizer.zero_grad()
            (nll + weight * penalty(what, found)).backward()
            optimizer.step()
        assert nll < log(11)
        alike.append(float(penalty(what, found).detach()))
    assert alike[1] < alike[0] - by


def test_layers_without_heads_are_passed_over() -> None:
    """State-space layers among others; alone there is nothing to watch."""
    model = language_model(Hybrid(kinds=[Selective(state=3), Sliding(backend="reference", window=3)]))
    for what in ("subspaces", "positions", "outputs"):
        with watched(model, what) as found:
            model(TOKENS)
        assert len(found) == 1
    with watched(model, "subspaces") as found:
        model.step(TOKENS[:, 0])
    assert len(found) == 1 and found[0].heads.shape == (4, 4, 1, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: disagreement("values", VECTORS), "what: got 'values', expected one of subspaces, positions, outputs"),  # type: ignore[arg-type]
        (lambda: cosines(VECTORS[0]), r"x, real: got \(2, 2, 2\), None, expected \(B, H, L, D\), bool"),
        (lambda: penalty("outputs", []), "found: got no layers, expected those of a call within"),
        (lambda: watched(nn.Linear(2, 2), "outputs").__enter__(), "model: got no layer that shows its outputs"),
        (lambda: watched(language_model(Selective()), "subspaces").__enter__(), "got no layer that shows its subspaces"),
        (
            lambda: watched(language_model(Biased(backend="reference", causal=True, kind="alibi")), "positions").__enter__(),
            "model: got no layer that shows its positions",
        ),
        (lambda: watched(language_model(CAUSAL), "keys").__enter__(), "what: got 'keys', expected one of subspaces"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
