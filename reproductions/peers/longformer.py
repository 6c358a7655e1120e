"""A layer of the transformers library's Longformer beside ours, forward and backward with its projections, in turns."""

import statistics
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from common import bench
from common.bench.memory import peak_bytes
from common.bench.ratios import ratio
from common.nn.sparse import Windowed

LENGTH, HEADS, HEAD_DIM, WINDOW, THREADS, REPEATS = 8192, 8, 64, 128, 2, 7
"""WINDOW: keys on each side."""


def theirs() -> Callable[[Tensor], Tensor]:
    from transformers.models.longformer.modeling_longformer import (  # type: ignore[import-not-found]
        LongformerSelfAttention,
    )

    size = HEADS * HEAD_DIM
    settings = SimpleNamespace(
        hidden_size=size, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, attention_window=[2 * WINDOW]
    )
    layer, output = LongformerSelfAttention(settings, 0), nn.Linear(size, size)
    nothing = torch.zeros(1, LENGTH, dtype=torch.bool)

    def attend(x: Tensor) -> Tensor:
        given = {"attention_mask": nothing.float(), "is_index_masked": nothing, "is_index_global_attn": nothing}
        return output(layer(x, **given, is_global_attn=False)[0])

    return attend


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    size = HEADS * HEAD_DIM
    ours = Windowed(backend="chunked", window=WINDOW)(size, HEADS, 0, 1)
    x, grad = torch.randn(1, LENGTH, size, requires_grad=True), torch.randn(1, LENGTH, size)
    layers: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
        "transformers": (theirs(), False),
        "ours, fp32": (ours, False),
        "ours, bf16": (ours, True),
    }

    def step(attend: Callable[[Tensor], Tensor], bf16: bool) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = attend(x)
        out.backward(grad.to(out.dtype))

    timers = {name: lambda given=given: bench.seconds_of(lambda: step(*given)) for name, given in layers.items()}
    times = bench.interleaved(timers, repeats=REPEATS)
    print(
        f"a layer, {LENGTH} tokens, {HEADS} heads of {HEAD_DIM}, {WINDOW} keys on each side, forward and backward with "
        f"projections, {THREADS} threads, medians of {REPEATS} turns"
    )
    print(f"{'':28}{'ms':>10}{'MB':>10}{'x theirs':>11}{'from':>8}{'to':>8}")
    for name, given in layers.items():
        faster = ratio(times["transformers"], times[name])
        peak = peak_bytes(lambda *_, given=given: step(*given), (x,))
        print(
            f"{name:28}{1e3 * statistics.median(times[name]):10.0f}{peak / 1e6:10.0f}"
            f"{faster.median:11.2f}{faster.low:8.2f}{faster.high:8.2f}"
        )
