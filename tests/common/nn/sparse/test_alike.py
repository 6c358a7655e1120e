"""What holds for every layer: precision under autocast, any length, and that nothing of a call is kept."""

from typing import Any

import pytest
import torch

from common.nn.latent import Latent
from common.nn.linear import Elu, Favor
from common.nn.linformer import Linformer
from common.nn.positioned import Biased, Disentangled, Shaw
from common.nn.sparse import BigBird, Full, Local, Windowed
from tests.common.nn.sparse.spec import made, texts

LAYERS: dict[str, Any] = {
    "windowed": Windowed(backend="chunked", window=3, dilation=2, dilated_heads=1, global_attention="separate"),
    "relative": Windowed(backend="chunked", window=3, causal=True, relative=True),
    "loop": Windowed(backend="chunked", window=3, implementation="loop"),
    "itc": BigBird(backend="chunked", block=4, global_blocks=1, random_blocks=1, max_length=64),
    "etc": BigBird(backend="chunked", block=4, global_tokens=1),
    "local": Local(backend="chunked", block=4),
    "full": Full(backend="chunked"),
    "grouped, rotary": Full(backend="chunked", kv_heads=1, rotary=True),
    "shaw": Shaw(backend="reference", clip=3),
    "shaw, keys alone": Shaw(backend="chunked", clip=3, kv_heads=1, values=False, causal=True),
    "disentangled": Disentangled(backend="chunked", clip=3),
    "t5": Biased(backend="chunked", kind="t5"),
    "alibi": Biased(backend="chunked", kind="alibi", causal=True),
    "latent": Latent(backend="chunked", latent=8, rotary_dim=4, query_latent=8),
    "favor": Favor(features=8),
    "favor, trigonometric": Favor(features=64, kind="trigonometric"),
    "elu, causal": Elu(causal=True),
    "elu": Elu(),
    "linformer": Linformer(backend="chunked", rank=8, max_length=64),
    "linformer, pooling": Linformer(backend="chunked", rank=8, max_length=64, projection="pooling"),
}


def given(layer: Any, lengths: list[int]) -> tuple[torch.Tensor, dict[str, Any]]:
    x, real = texts(lengths)
    chosen = torch.zeros_like(real)
    chosen[:, :1] = True
    return x, {"real": real} | ({"is_global": chosen} if getattr(layer, "uses_global", False) else {})


@pytest.mark.parametrize("kind", LAYERS)
def test_autocast(kind: str) -> None:
    """bf16 under autocast: outputs and gradients as in fp64 but for the rounding, and the weights' gradients in fp32."""
    layer = made(LAYERS[kind])
    for parameter in layer.parameters():
        parameter.data.mul_(0.3)
    x, more = given(layer, [29, 10])
    exact = layer(x, **more)[more["real"]]
    wanted = torch.autograd.grad(exact.sum(), list(layer.parameters()))
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x.float(), **more)[more["real"]]
    for mine, right in zip(
        (got, *torch.autograd.grad(got.float().sum(), list(layer.parameters()))), (exact, *wanted), strict=True
    ):
        assert mine.dtype == (torch.bfloat16 if mine is got else torch.float32)
        assert (mine.double() - right).norm() <= 0.03 * right.norm() + 1e-2


@pytest.mark.parametrize("kind", LAYERS)
def test_nothing_of_a_call_is_kept(kind: str) -> None:
    """Calls of other lengths between two of the same; and the modules hold what they held."""
    layer = made(LAYERS[kind])
    (x, more), before = given(layer, [29, 10]), dict(vars(layer))
    once = layer(x, **more)
    for lengths in ([2], [40, 3, 1]):
        other, others = given(layer, lengths)
        layer(other, **others)
    assert torch.equal(layer(x, **more), once) and dict(vars(layer)) == before


@pytest.mark.parametrize("kind", LAYERS)
def test_any_length(kind: str) -> None:
    """The same in inference mode, whose tensors must not come to serve training."""
    layer = made(LAYERS[kind])
    for length in range(2, 12):
        x, more = given(layer, [length])
        with torch.inference_mode():
            seen = layer(x, **more)
        out = layer(x, **more)
        assert out.shape == x.shape and torch.equal(out, seen)
        out.sum().backward()
