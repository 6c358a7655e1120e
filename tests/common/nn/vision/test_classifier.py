"""The classifier of images: patches, positions, pooling, blocks of every kind, sizes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.nn.vision import Axial, Full, Swin, VisionClassifier
from tests.common.nn.vision.spec import picture

KINDS: dict[str, Any] = {
    "full": Full(backend="reference"),
    "axial": Axial(backend="reference"),
    "swin": Swin(backend="reference", window=2),
}


def classifier(kind: str, **options: Any) -> Any:
    """Of images of 8 x 12 and patches of 2 x 2; in fp64, not training."""
    torch.manual_seed(0)
    given = {"size": (8, 12), "patch": 2, "colours": 3} | options
    model = VisionClassifier(5, 2, 6, 2, 10, attention=KINDS[kind], **given).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def norm(x: Tensor, of: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + of.eps).sqrt() * of.weight + of.bias


@pytest.mark.parametrize("kind", KINDS)
def test_written_out(kind: str) -> None:
    """Patches by a loop, z + MSA(LN(z)) and z + MLP(LN(z)) (Liu et al. 2021, equation 3), the mean after one more norm."""
    model, images = classifier(kind), picture(2, 3, 8, 12)
    for b, image in enumerate(images):
        x = torch.empty(4, 6, 6, dtype=torch.float64)
        for y in range(4):
            for column in range(6):
                values = [image[c, 2 * y + u, 2 * column + v] for c in range(3) for u in (0, 1) for v in (0, 1)]
                embedded = model.embedding.weight @ torch.stack(values) + model.embedding.bias
                x[y, column] = embedded + model.rows[y] + model.columns[column]
        for block in model.blocks:
            x = x + block.attention(norm(x, block.norm_1)[None])[0]
            inner = norm(x, block.norm_2) @ block.feedforward.w_1.weight.T + block.feedforward.w_1.bias
            gelu = inner * (1 + torch.erf(inner / 2**0.5)) / 2
            x = x + gelu @ block.feedforward.w_2.weight.T + block.feedforward.w_2.bias
        pooled = norm(x, model.last).reshape(24, 6).mean(0)
        torch.testing.assert_close(model(images)[b], model.outer.weight @ pooled + model.outer.bias)


def test_layers_alternate() -> None:
    def attention(kind: str) -> Any:
        return [block.attention for block in classifier(kind).blocks]

    assert [layer.axis for layer in attention("axial")] == ["rows", "columns"]
    assert [layer.shift for layer in attention("swin")] == [0, 1]


@pytest.mark.parametrize(("positions", "matter"), [("none", False), ("factorised", True)])
def test_positions(positions: Any, matter: bool) -> None:
    """Without them full attention and the mean know no order of pixels."""
    model, images = classifier("full", patch=1, positions=positions), picture(1, 3, 8, 12)
    assert torch.allclose(model(images.flip(2)), model(images)) != matter
    assert torch.allclose(model(images.flip(3)), model(images)) != matter


def test_swin_knows_positions_by_itself() -> None:
    model, images = classifier("swin", positions="none"), picture(1, 3, 8, 12)
    assert not torch.allclose(model(images.flip(3)), model(images))


def test_sizes() -> None:
    """Full and axial layers have as many weights; windows of 2 x 2 have 2 * 3 * 3 more a layer."""
    block = 4 * (6 * 6 + 6) + 2 * 6 * 10 + 10 + 6 + 4 * 6
    whole = (3 * 4 * 6 + 6) + (4 + 6) * 6 + 2 * block + 2 * 6 + (6 * 5 + 5)
    sizes = {kind: sum(p.numel() for p in classifier(kind).parameters()) for kind in KINDS}
    assert sizes == {"full": whole, "axial": whole, "swin": whole + 2 * 18}


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_used(kind: str) -> None:
    model = classifier(kind, dropout=0.1).train()
    logits = model(picture(3, 3, 8, 12))
    assert logits.shape == (3, 5)
    gradients = torch.autograd.grad((logits * picture(3, 5)).sum(), list(model.parameters()))
    assert all(bool(gradient.any()) for gradient in gradients)


def test_dropout_only_in_training() -> None:
    model, images = classifier("axial", dropout=0.5), picture(1, 3, 8, 12)
    assert torch.equal(model(images), classifier("axial")(images))
    model.train()
    assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize("kind", KINDS)
def test_learns_where_something_stands(kind: str) -> None:
    """A bright pixel in one of four places: the class can only be told by positions."""
    torch.manual_seed(0)
    options = {"attention": KINDS[kind], "size": (4, 4)}
    model = VisionClassifier(4, 2, 16, 2, 32, **options)  # type: ignore[arg-type]
    images, labels = torch.zeros(4, 1, 4, 4), torch.arange(4)
    for label, (y, x) in enumerate(((0, 0), (0, 3), (3, 1), (2, 2))):
        images[label, 0, y, x] = 1.0
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    assert torch.equal(model.eval()(images).argmax(1), labels)


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (0, 3, 8):
        with pytest.raises(ValueError, match=f"patch: got {wrong}, expected a divisor of the image's 8 x 12 pixels"):
            classifier("full", patch=wrong)
    with pytest.raises(ValueError, match="positions: got 'learned', expected one of factorised, none"):
        classifier("full", positions="learned")
    with pytest.raises(ValueError, match=r"images: got \(12, 8\) pixels, expected \(8, 12\)"):
        classifier("full")(picture(1, 3, 12, 8))
    with pytest.raises(ValueError, match=r"expected floating point \(batch, 3, height, width\)"):
        classifier("full")(picture(1, 1, 8, 12))
    with pytest.raises(ValueError, match="x: got 4 x 3 pixels, expected multiples of the window 2"):
        classifier("swin", size=(8, 6))(picture(1, 3, 8, 6))
