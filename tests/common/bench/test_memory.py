"""Peaks against counts by hand: what is stored, when it is freed, what a gradient keeps."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from common.attention import Causal, attention
from common.bench import StorageMeter, memory, peak_bytes

N = 1000
FP32 = 4


def test_chain_and_freeing() -> None:
    """a -> b -> c .. one behind the other: two of them are alive at a time, however long the chain."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(10):
            x = x.exp()
        return x

    assert peak_bytes(chain, [torch.zeros(N)]) == 2 * N * FP32
    assert peak_bytes(lambda x: [x.exp() for _ in range(10)], [torch.zeros(N)]) == 10 * N * FP32


def test_views_in_place_operations_and_what_was_there_count_nothing() -> None:
    weight = torch.ones(N)

    def views(x: Tensor) -> object:
        return x[10:].view(2, -1).t(), x.add_(1).mul_(2), weight.view(10, -1), weight.detach(), x.contiguous()

    assert peak_bytes(views, [torch.ones(N + 10)]) == 0
    assert peak_bytes(lambda x: x.clone().add_(1).view(10, -1).t()[:5], [torch.ones(N)]) == N * FP32


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 8), (torch.bfloat16, 2), (torch.bool, 1)])
def test_bytes_of_each_dtype(dtype: torch.dtype, size: int) -> None:
    assert peak_bytes(lambda x: x.to(dtype), [torch.ones(N)]) == N * size


def test_a_whole_storage_counts_even_where_a_part_is_kept() -> None:
    """y keeps 1 of 1000 numbers of a storage, so that all 1000 stay: 2 x 1000 beside the 10 kept by themselves."""
    whole = peak_bytes(lambda x: [x.exp()[:1], x.exp()[:1]], [torch.ones(N)])
    parts = peak_bytes(lambda x: [x.exp()[:1].clone(), x.exp()[:1].clone()], [torch.ones(N)])
    assert (whole, parts) == (2 * N * FP32, (N + 2) * FP32)


def test_numbers_made_from_python_count() -> None:
    assert peak_bytes(lambda: torch.tensor([1.0, 2.0, 3.0]), []) == 3 * FP32


@pytest.mark.parametrize("length", [32, 64])
def test_softmax_attention_stores_two_score_matrices(length: int) -> None:
    """softmax(Q K^T) holds its input and its output: 2 B H L^2 numbers; the last product holds one and O."""
    batch, heads, width = 2, 3, 16
    q, k, v = (torch.randn(batch, heads, length, width) for _ in range(3))

    def materialised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    assert peak_bytes(materialised, [q, k, v]) == 2 * batch * heads * length**2 * FP32


def test_the_tensors_that_a_gradient_keeps() -> None:
    """z = exp(exp(x)) keeps y and z, and z is in the caller's hands. Backward: dy = dz z, then dx = dy y: four at last."""
    x, seed = torch.zeros(N, requires_grad=True), torch.ones(N)
    assert peak_bytes(lambda x: torch.autograd.grad(x.exp().exp(), x, seed), [x]) == 4 * N * FP32
    assert peak_bytes(lambda x: torch.autograd.grad(_tower(x), x, seed), [x]) == (8 + 2) * N * FP32
    # Half a tower of 8 computed again: the middle, the top and four results, and one gradient in the making.
    assert peak_bytes(lambda x: torch.autograd.grad(_halves(x), x, seed), [x]) == (2 + 4 + 1) * N * FP32


def _tower(x: Tensor, height: int = 8) -> Tensor:
    for _ in range(height):
        x = x.exp()
    return x


def _halves(x: Tensor) -> Tensor:
    middle = checkpoint(_tower, x, 4, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(middle, Tensor)
    whole = checkpoint(_tower, middle, 4, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(whole, Tensor)
    return whole


def test_live_bytes_fall_when_results_go() -> None:
    with StorageMeter() as meter:
        y = torch.ones(N).exp()
        assert meter.live == N * FP32
    kept = y.view(2, -1)
    del y
    assert meter.live == N * FP32  # by its view
    del kept
    assert meter.live == 0 and meter.peak == 2 * N * FP32


def test_one_measurement_leaves_nothing_for_the_next() -> None:
    x = torch.ones(N)
    small, large = (lambda x: x[:10].exp()), (lambda x: x.exp())
    for order in ([small, large, small], [large, small, large]):
        found = {f: peak_bytes(f, [x]) for f in order}
        assert found == {small: 10 * FP32, large: N * FP32}


class FakeGpu:
    """The allocator's counters, with 100 bytes of weights in use."""

    def __init__(self) -> None:
        self.live = self.peak = 100
        self.waited = False

    def work(self, size: int) -> None:
        self.live += size
        self.peak = max(self.peak, self.live)
        self.live -= size
        self.waited = False

    def reset(self, device: torch.device) -> None:
        self.peak = self.live

    def read_peak(self, device: torch.device) -> int:
        assert self.waited, "read before the work was done"
        return self.peak


def test_on_a_gpu_the_peak_is_reset_and_what_was_in_use_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: setattr(gpu, "waited", True))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", gpu.reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: gpu.live)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", gpu.read_peak)

    class OnGpu:
        device = torch.device("cuda", 0)

    inputs: list[Tensor] = [OnGpu()]  # type: ignore[list-item]
    for order in ((900, 10), (10, 900)):
        assert {size: memory.peak_bytes(lambda _, size=size: gpu.work(size), inputs) for size in order} == {
            900: 900,
            10: 10,
        }


def test_the_reference_grows_with_the_square_of_the_length() -> None:
    def peak(length: int) -> int:
        q, k, v = (torch.randn(1, 2, length, 4) for _ in range(3))
        return peak_bytes(lambda *qkv: attention(*qkv, mask=Causal(), backend="reference"), [q, k, v])

    peaks = [peak(length) for length in (64, 128, 256)]
    assert peaks[0] >= 2 * 2 * 64**2 * FP32  # scores and weights of each head
    assert all(3.5 < longer / shorter < 4.1 for shorter, longer in pairwise(peaks))
