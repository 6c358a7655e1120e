"""Classifiers: pooling, pairs, the network at the end, and that padding plays no part."""

from typing import Any

import pytest
import torch
from torch import Tensor

from common.nn.classifier import Classifier
from common.nn.sparse import Windowed
from tests.common.nn.test_long import ENCODERS, SIZES, large, tokens


def classifier(kind: str = "full", **options: Any) -> Classifier:
    given = {"classes": 5, "positions": "learned", "max_length": 20} | options
    return large(Classifier(*SIZES, attention=ENCODERS[kind], **given))  # type: ignore[arg-type]


def lengths() -> Tensor:
    return torch.arange(13) < torch.tensor([13, 6, 2])[:, None]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_neither_padding_nor_neighbours_matter(kind: str, pooling: str) -> None:
    model, ids, real = classifier(kind, pooling=pooling, pairs=True), tokens(3), lengths()
    together = model(torch.where(real, ids, 3), real, torch.where(real, ids.flip(0), 3), real)
    assert together.shape == (3, 5)
    for b, length in enumerate((13, 6, 2)):
        alone = model(ids[b : b + 1, :length], None, ids.flip(0)[b : b + 1, :length])
        torch.testing.assert_close(together[b], alone[0])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooling_and_head_written_out(pooling: str) -> None:
    model, ids, real, hidden = classifier(pooling=pooling), tokens(3), lengths(), list[Any]()
    model.trunk.register_forward_hook(lambda module, args, out: hidden.append(out))
    logits = model(ids, real)
    for b, length in enumerate((13, 6, 2)):
        vector = hidden[0][b, 0] if pooling == "cls" else hidden[0][b, :length].mean(0)
        inner = (model.inner.weight @ vector + model.inner.bias).clamp(min=0)
        torch.testing.assert_close(logits[b], model.outer.weight @ inner + model.outer.bias)


def test_pairs_written_out() -> None:
    """MLP([X1, X2, X1 * X2, X1 - X2]) (Tay et al. 2021, section 2.2.3), of documents of different lengths."""
    model, ids = classifier(pairs=True, head_size=7), tokens(3)
    one, two = model.vectors(ids, None), model.vectors(ids[:, :4], None)
    inner = torch.cat((one, two, one * two, one - two), 1) @ model.inner.weight.T + model.inner.bias
    expected = inner.clamp(min=0) @ model.outer.weight.T + model.outer.bias
    torch.testing.assert_close(model(ids, None, ids[:, :4]), expected)
    assert model.inner.weight.shape == (7, 48)


def test_the_first_token_is_global_where_there_are_such() -> None:
    """It sees the last token, beyond the window of its two layers."""
    ids = tokens(1)
    other = ids.clone()
    other[0, -1] = (other[0, -1] - 3) % 7 + 4
    model = classifier("windowed")
    assert not torch.equal(model(ids), model(other))
    gradients = torch.autograd.grad(model(ids).sum(), list(model.parameters()), allow_unused=True)
    assert all(g is not None for g in gradients), "every weight is used, as training in several processes asks"
    off = large(Classifier(*SIZES, classes=5, attention=Windowed(backend="chunked", window=2)))  # type: ignore[arg-type]
    assert torch.equal(off(ids), off(other))


def test_parameters_of_a_classifier() -> None:
    """LRA's text classifier as released: 256, 4 heads, 4 layers, 1024, bytes and four other symbols, 1000 positions."""
    model = Classifier(
        260, 4, 256, 4, 1024, classes=2, attention=ENCODERS["full"], positions="learned", max_length=1000
    )
    layer = 4 * (256**2 + 256) + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
    head = 256 * 1024 + 1024 + 1024 * 2 + 2
    assert sum(p.numel() for p in model.parameters()) == 4 * layer + (260 + 1000) * 256 + 2 * 256 + head


def test_dropout_only_in_training() -> None:
    model, ids = classifier(dropout=0.5), tokens()
    assert torch.equal(model(ids), classifier()(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="pooling: got 'max', expected cls or mean"):
        classifier(pooling="max")
    with pytest.raises(ValueError, match=r"documents: got single documents, expected pairs \(pairs=True\)"):
        classifier(pairs=True)(tokens())
    with pytest.raises(ValueError, match=r"documents: got pairs, expected single documents \(pairs=False\)"):
        classifier()(tokens(), None, tokens())
    with pytest.raises(ValueError, match="attention of an encoder: got causal=True"):
        Classifier(*SIZES, classes=2, attention=Windowed(backend="chunked", window=2, causal=True))  # type: ignore[arg-type]
