"""The residual classifier written out, where its gates sit, and its size with each of them."""

from functools import partial
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d

from common.nn.vision import CBAM, Bottleneck, ConvClassifier
from common.nn.vision.cbam import Use
from tests.common.nn.vision.spec import picture


def classifier(kind: Any = CBAM, use: Use = "both", **options: Any) -> Any:
    """In fp64, not training, with statistics and weights that all matter."""
    torch.manual_seed(0)
    name = "use" if kind is CBAM else "match"
    attention = partial(kind, reduction=2, kernel=3, **{name: use})
    model = ConvClassifier(5, 4, 3, attention=attention, **options).double().eval()
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            positive = "running_var" in key or "w_0" in key  # the latter, so that no gate's inner layer is all zeros
            value.copy_(torch.rand_like(value) + 0.5 if positive else torch.randn_like(value) * 0.4)
    return model


def normed(block: Any, x: Tensor, stride: int) -> Tensor:
    convolution, norm = block
    y = conv2d(x, convolution.weight, stride=stride, padding=convolution.weight.shape[-1] // 2)
    return batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias)


@pytest.mark.parametrize("kind", [CBAM, Bottleneck])
def test_written_out(kind: Any) -> None:
    """The gates act before the sum (Woo et al. 2018, figure 3)."""
    model, images = classifier(kind, colours=3), picture(2, 3, 8, 8)
    x = normed(model.first[0], images, 1).clamp(min=0)
    for n, stage in enumerate(model.stages):
        stride, (first, _, second, attention) = 1 if n == 0 else 2, stage.added
        assert isinstance(attention, kind)
        added = attention(normed(second, normed(first, x, stride).clamp(min=0), 1))
        x = ((x if n == 0 else normed(stage.shortcut, x, 2)) + added).clamp(min=0)
        assert x.shape == (2, 4 * 2**n, 8 // 2**n, 8 // 2**n)
    expected = torch.stack([image.flatten(1).mean(1) for image in x]) @ model.outer.weight.T + model.outer.bias
    torch.testing.assert_close(model(images), expected)


def test_what_it_is_made_of() -> None:
    shapes = {name: tuple(p.shape) for name, p in classifier().named_parameters() if p.ndim == 4}
    assert shapes == {
        "first.0.0.weight": (4, 1, 3, 3),
        "stages.0.added.0.0.weight": (4, 4, 3, 3),
        "stages.0.added.2.0.weight": (4, 4, 3, 3),
        "stages.0.added.3.spatial.convolution.weight": (1, 2, 3, 3),
        "stages.1.added.0.0.weight": (8, 4, 3, 3),
        "stages.1.added.2.0.weight": (8, 8, 3, 3),
        "stages.1.added.3.spatial.convolution.weight": (1, 2, 3, 3),
        "stages.1.shortcut.0.weight": (8, 4, 1, 1),
        "stages.2.added.0.0.weight": (16, 8, 3, 3),
        "stages.2.added.2.0.weight": (16, 16, 3, 3),
        "stages.2.added.3.spatial.convolution.weight": (1, 2, 3, 3),
        "stages.2.shortcut.0.weight": (16, 8, 1, 1),
    }


@pytest.mark.parametrize("use", get_args(Use))
@pytest.mark.parametrize("kind", [CBAM, Bottleneck])
def test_any_sides_and_every_weight_is_used(kind: Any, use: Use) -> None:
    model = classifier(kind, use).train()
    logits = model(picture(3, 1, 9, 7))
    assert logits.shape == (3, 5) and logits.isfinite().all()
    gradients = torch.autograd.grad((logits * picture(3, 5)).sum(), list(model.parameters()))
    assert all(bool(gradient.any()) for gradient in gradients)


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("use", get_args(Use))
def test_equal_sizes(use: Use) -> None:
    """Of stages with 16, 32 and 64 channels, reduction 4: exactly for channels, else to one in two hundred; and what the
    gates add to the model without."""
    gates, control = (
        ConvClassifier(10, 16, 3, attention=partial(kind, reduction=4, **{name: use}))
        for kind, name in ((CBAM, "use"), (Bottleneck, "match"))
    )
    plain = ConvClassifier(10, 16, 3, attention=lambda channels: nn.Identity())
    added = {"none": 0, "channel": 2688, "spatial": 294, "both": 2982}[use]
    assert size(gates) == size(plain) + added and 2688 == 2 * (16 * 4 + 32 * 8 + 64 * 16)
    assert abs(size(control) - size(gates)) <= (0 if use in ("none", "channel") else size(gates) / 200)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="stages: got 0, expected 1 or more"):
        ConvClassifier(2, 4, 0, attention=CBAM)
    for wrong in (torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4), torch.zeros(2, 1, 4, 4, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"images: got .*, expected floating point \(batch, 1, height, width\)"):
            classifier()(wrong)
