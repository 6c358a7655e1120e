"""Masks by name, inputs, their rotation, and the contestants against the reference."""

import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from common.attention import Causal, Full, Mask, Padding, Random, Window, attention, unsupported
from common.attention.request import Request
from common.bench import job
from common.bench.contestants import Dense, Pinned, Plain, prepare
from common.bench.flops import Pass
from common.bench.job import Job
from common.bench.workload import Inputs, Shape, mask_of, random_inputs, refuse_constant, sets_needed

SHAPE = Shape(batch=3, heads=4, kv_heads=2, length=200, head_dim=8, dtype="fp32", device="cpu")


def test_masks_by_name() -> None:
    """Counted by what they keep."""
    dense = {
        name: mask_of(name, SHAPE, block=32, seed=0).dense(200, 200)
        for name in ("full", "causal", "window:5", "causal-window:5", "blocks:0.3", "blocks:0.001", "padding")
    }
    assert dense["full"].all() and torch.equal(dense["causal"], torch.ones(200, 200).tril().bool())
    middle = torch.zeros(200, dtype=torch.bool)
    assert torch.equal(dense["window:5"][100], middle.index_fill(0, torch.arange(95, 106), True))
    assert torch.equal(dense["causal-window:5"][100], middle.index_fill(0, torch.arange(95, 101), True))
    for name, count in (("blocks:0.3", 2), ("blocks:0.001", 1)):  # of 7 blocks in a row
        assert (dense[name][::32, ::32].sum(1) == count).all()
    kept = dense["padding"][:, 0].sum(-1)
    assert dense["padding"].shape == (3, 1, 200, 200) and ((kept >= 100) & (kept <= 200)).all()


@pytest.mark.parametrize("name", ["window", "window:x", "blocks:0", "blocks:1.5", "causal:3", "padding:2", "dense"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of full, causal, window:W"):
        mask_of(name, SHAPE, block=32, seed=0)


@pytest.mark.parametrize(("set_bytes", "cache"), [(10, 0), (10, 100), (10, 101), (1000, 100), (7, 50 << 20)])
def test_sets_are_as_few_as_fill_the_cache_between_two_uses(set_bytes: int, cache: int) -> None:
    count = sets_needed(set_bytes, cache)
    assert (count - 1) * set_bytes >= cache
    assert count == 1 or (count - 2) * set_bytes < cache


def test_the_bytes_of_a_set_are_those_of_its_tensors() -> None:
    for dtype in ("fp32", "bf16"):
        shape = Shape(3, 4, 2, 200, 8, dtype, "cpu")
        [inputs] = random_inputs(shape, 1, 0)
        assert shape.set_bytes == sum(t.untyped_storage().nbytes() for t in inputs)


def test_inputs_are_normal_and_all_different() -> None:
    sets = random_inputs(SHAPE, 3, seed=1)
    tensors = [t.detach().flatten() for inputs in sets for t in inputs]
    assert all(abs(t.mean().item()) < 0.1 and abs(t.std().item() - 1) < 0.1 for t in tensors)
    firsts = torch.stack([t[:100] for t in tensors])
    assert len(torch.unique(firsts, dim=0)) == 12
    again = random_inputs(SHAPE, 1, seed=1)[0]
    assert torch.equal(again.do, sets[0].do) and [t.requires_grad for t in again] == [True, True, True, False]


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("which", range(4))
def test_constant_inputs_are_refused(value: float, which: int) -> None:
    parts = list(random_inputs(SHAPE, 1, 0)[0])
    refuse_constant(parts)
    parts[which] = torch.full_like(parts[which], value).detach()
    with pytest.raises(ValueError, match=f"got {value} in every place, expected random"):
        Job(lambda q, k, v: q, "forward", [random_inputs(SHAPE, 1, 0)[0], Inputs(*parts)])


def test_a_job_takes_its_sets_in_turns_and_times_several_short_calls_at_once() -> None:
    sets, seen = random_inputs(SHAPE, 3, 0), []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.append(next(n for n, x in enumerate(sets) if x.q.data_ptr() == q.data_ptr()))
        return q * 1

    one = Job(attend, "forward", sets)
    one.warm_up()
    assert seen == [0, 0, 1] and one.calls > 1  # one call twice, then one for the time
    seen.clear()
    one.calls = 4
    one.seconds()
    assert seen == [2, 0, 1, 2]


def test_the_passes_of_a_job() -> None:
    """What runs without gradients and what computes them, and what the peak counts: q + 1 and the gradient of q."""
    [inputs] = random_inputs(SHAPE, 1, 0)
    modes: list[bool] = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        modes.append(q.requires_grad or k.requires_grad or v.requires_grad)
        return (q * 2) * (k.sum() + v.sum())

    jobs = {name: Job(attend, name, [inputs]) for name in ("forward", "backward", "both")}
    for each in jobs.values():
        each.warm_up()
    assert modes == [False] * 3 + [True] * 6
    size = inputs.q.numel() * 4
    assert jobs["forward"].peak_bytes is not None and 2 * size <= jobs["forward"].peak_bytes < 2.1 * size
    assert jobs["both"].peak_bytes is not None and jobs["both"].peak_bytes >= 3 * size
    assert jobs["backward"].peak_bytes is None
    assert Job(attend, "both", [inputs], metered=False).peak_bytes is None


@pytest.mark.parametrize(
    ("passes", "timed"),
    [("forward", ["forward"] * 3), ("backward", ["backward"] * 3), ("both", ["forward", "backward"] * 3)],
)
def test_what_is_inside_the_timing(passes: Pass, timed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls in 6 s are 2 s each; the forward that a backward pass needs comes before the clock."""
    events: list[str] = []

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            events.append("forward")
            return q * 1

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
            events.append("backward")
            return grads * 3

    def clock(function: Callable[[], object]) -> float:
        events.append("start")
        function()
        events.append("stop")
        return 6.0

    monkeypatch.setattr(job, "seconds_of", clock)
    one = Job(Step.apply, passes, random_inputs(Shape(1, 2, 2, 4, 4, "fp32", "cpu"), 2, 0))
    one.calls = 3
    assert one.seconds() == 2.0
    assert events[events.index("start") + 1 : -1] == timed and events[-1] == "stop"
    assert events[: events.index("start")] == ["forward"] * 3 * (passes == "backward")


@pytest.mark.parametrize("name", ["plain", "reference", "torch:flash", "torch:math"])
@pytest.mark.parametrize("mask", [Full(), Causal(), Window(9, 0), Padding.lengths(torch.tensor([150, 200, 101]), 200)])
def test_contestants_compute_attention(name: str, mask: Mask) -> None:
    [inputs] = random_inputs(SHAPE, 1, 0)
    attend = prepare(name, inputs, mask, 0.0, 0)
    assert not isinstance(attend, str)
    expected = attention(*inputs[:3], mask=mask, backend="reference")
    torch.testing.assert_close(attend(*inputs[:3]), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        attend(*inputs[:3]), expected, rtol=1e-4, atol=1e-5
    )  # its mask is made in the first call


def test_a_mask_is_stored_once_for_all_who_use_it_and_gone_after_them() -> None:
    [inputs] = random_inputs(SHAPE, 1, 0)
    users = [prepare(name, inputs, Window(9, 0), p, 0) for name in ("plain", "torch:math") for p in (0.0, 0.1)]
    masks = {
        id(user.seen): user.seen(inputs.q, inputs.k) for user in users if isinstance(user, Plain | Pinned) and user.seen
    }
    assert len(masks) == 1 and [m.shape for m in masks.values()] == [(200, 200)]
    shared = Dense.shared[Window(9, 0)]
    assert shared(inputs.q[:, :, :7], inputs.k).shape == (7, 200)  # of another length it is made again
    del users, shared
    assert Window(9, 0) not in Dense.shared


def test_plain_attention_drops_weights() -> None:
    [inputs] = random_inputs(SHAPE, 1, 0)
    dropped = prepare("plain", inputs, Full(), 0.5, 0)
    assert not isinstance(dropped, str)
    assert not torch.equal(dropped(*inputs[:3]), dropped(*inputs[:3]))


def test_what_can_not_be_timed_here_says_why() -> None:
    """flex has a forward alone on a CPU."""
    [inputs] = random_inputs(SHAPE, 1, 0)
    interpreted = "is only interpreted on a CPU, which says nothing of its speed"
    assert prepare("triton", inputs, Full(), 0.0, 0) == interpreted
    assert prepare("flash_attn", inputs, Full(), 0.0, 0) == "is not installed"
    assert prepare("flex", inputs, Full(), 0.0, 0) == "has no backward pass on a CPU"
    assert prepare("flex", inputs.detached(), Full(), 0.0, 0) != "has no backward pass on a CPU"
    assert prepare("sdpa", inputs, Full(), 0.1, 0) == unsupported(
        Request(*inputs[:3], Full(), None, 1.0, 0.1, 0, False, False), "sdpa"
    )


@pytest.mark.parametrize(
    ("mask", "causal", "window"),
    [
        (Full(), False, (-1, -1)),
        (Causal(), True, (-1, 0)),
        (Window(3, 5), False, (3, 5)),
        (Window(3, None), False, (3, -1)),
    ],
)
def test_the_flash_attn_package_is_called_as_it_wants(
    mask: Mask, causal: bool, window: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """(batch, time, heads, head_dim) in and out, -1 for a side without limit; a stand-in takes the package's place."""
    calls = []

    def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, **settings: object) -> Tensor:
        calls.append((tuple(q.shape), tuple(k.shape), dropout_p, settings))
        return q

    module = types.ModuleType("flash_attn")
    module.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    module.__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)
    [inputs] = random_inputs(Shape(3, 4, 2, 200, 8, "bf16", "cpu"), 1, 0)

    class OnGpu:
        device, dtype = torch.device("cuda"), torch.bfloat16

    gpu = Inputs(OnGpu(), OnGpu(), OnGpu(), OnGpu())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    assert prepare("flash_attn", inputs, mask, 0.1, 0) == "takes fp16 and bf16 on a GPU"
    assert prepare("flash_attn", gpu, Random(1, 8, 0), 0.1, 0) == "takes no such mask"
    attend = prepare("flash_attn", gpu, mask, 0.1, 0)
    assert not isinstance(attend, str)
    assert attend(*inputs[:3]).shape == inputs.q.shape
    assert calls == [((3, 200, 4, 8), (3, 200, 2, 8), 0.1, {"causal": causal, "window_size": window})]
