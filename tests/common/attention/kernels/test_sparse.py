"""The layers of long texts on the flash kernels in Triton's interpreter, in blocks of 16, against the reference backend."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from common.attention.kernels import configurations
from common.attention.kernels.configurations import Configuration
from common.nn.sparse import BigBird, Full, Local, Windowed
from tests.common.nn.sparse.spec import made, texts


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "choose", lambda *_: Configuration(16, 16, 4, 1))


LAYERS: dict[str, Any] = {
    "windows": lambda backend: Windowed(backend=backend, window=4, dilation=3, dilated_heads=1),
    "causal windows, relative": lambda backend: Windowed(backend=backend, window=5, causal=True, relative=True),
    "global": lambda backend: Windowed(backend=backend, window=4, global_attention="separate"),
    "itc": lambda backend: BigBird(backend=backend, block=4, global_blocks=1, random_blocks=1, max_length=40),
    "etc": lambda backend: BigBird(backend=backend, block=4, global_tokens=3),
    "local": lambda backend: Local(backend=backend, block=7),
    "full": lambda backend: Full(backend=backend),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_outputs_and_gradients(kind: str) -> None:
    x, real = texts([33, 12])
    x.requires_grad_()
    chosen = torch.tensor([[0, 20], [0, 0]])
    is_global = torch.zeros_like(real).scatter(1, chosen, True) if kind == "global" else None
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)[real]

    def run(backend: str) -> list[Tensor]:
        layer = made(LAYERS[kind](backend))
        out = layer(x, real=real, is_global=is_global)[real]
        return [out, *torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()])]

    for got, expected in zip(run("triton"), run("reference"), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-8)
