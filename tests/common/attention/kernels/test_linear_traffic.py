"""What the kernels of linear attention load, store and multiply, against closed forms and against counts by hand."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from common.attention import traffic
from common.attention.kernels import configurations
from common.attention.kernels.configurations import Tile
from common.attention.kernels.ledger import Ledger, counting
from common.attention.linear import linear_attention
from common.attention.traffic import LinearShape

SHAPE = LinearShape(1, 2, 40, 40, 20, 24, 4, 2, causal=True, log=True, chunk=16, block_m=16, block_d=16)
FORMS = {
    "states_kernel": traffic.linear_states,
    "outputs_kernel": traffic.linear_outputs,
    "d_states_kernel": traffic.linear_d_states,
    "d_features_kernel": traffic.linear_d_features,
    "d_values_kernel": traffic.linear_d_values,
}


def counted(shape: LinearShape, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Of the forward and backward pass: the sums at the seams are made in both."""
    s = shape
    monkeypatch.setattr(configurations, "LINEAR_CHUNKS", dict.fromkeys(configurations.LINEAR_CHUNKS, s.chunk))
    tile = Tile(s.block_m, s.block_d, 4, 1)
    monkeypatch.setattr(configurations, "LINEAR", dict.fromkeys(configurations.LINEAR, tile))
    draw = torch.Generator().manual_seed(0)
    sizes = {"q": (s.lq, s.m), "k": (s.lk, s.m), "v": (s.lk, s.dv)}
    made = {n: torch.rand(s.batch, s.heads, *size, generator=draw) for n, size in sizes.items()}
    leaves = [made["q"], made["k"], made["v"].half()]
    with counting() as ledger:
        output = linear_attention(
            *(x.requires_grad_() for x in leaves), causal=s.causal, log=s.log, backend="triton"
        ).output  # type: ignore[arg-type]
        output.backward(torch.rand(output.shape, generator=draw).half())
    return ledger


def of(ledger: Ledger, kernel: str) -> Counter[str]:
    """Bytes by argument, loads and stores."""
    found: Counter[str] = Counter()
    for part in (ledger.loads, ledger.stores):
        for (name, argument), count in part.items():
            if name == kernel:
                found[argument] += count
    return found


@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        replace(SHAPE, log=False, heads=1),
        replace(SHAPE, causal=False, lk=20, heads=1),
        replace(SHAPE, causal=False, log=False, lq=17, heads=1),
    ],
    ids=["causal logarithms", "causal features", "logarithms", "features"],
)
def test_every_byte_is_that_of_the_closed_form(shape: LinearShape, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = counted(shape, monkeypatch)
    for kernel, form in FORMS.items():
        times = 2 if kernel == "states_kernel" else 1
        assert of(ledger, kernel) == Counter({name: times * n for name, n in (+form(shape)).items()}), kernel
    assert {name for name, _ in ledger.loads} == {*FORMS, "delta_kernel"}


def test_by_hand() -> None:
    """One head, 128 tokens in two chunks, 64 features and values in one slice: what goes to and from memory, by argument."""
    shape = LinearShape(1, 1, 128, 128, 64, 64, 2, 2, causal=True, log=False, chunk=64, block_m=64, block_d=64)
    rows, sums = 128 * 64 * 2, 64 * 64 * 4
    assert +traffic.linear_states(shape) == {"k": rows, "v": rows, "states": 3 * sums, "norms": 3 * 64 * 4}
    assert +traffic.linear_outputs(shape) == {
        "q": rows, "k": rows, "v": rows, "output": rows, "totals": 128 * 4, "states": 2 * sums, "norms": 2 * 64 * 4,
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_bytes_are_proportional_to_the_length(form) -> None:
    """Katharopoulos et al. 2020, section 3.2: O(N). Twice as much longer, twice as much more, for any argument."""
    first, second, third = (
        form(replace(SHAPE, lq=n, lk=n, block_m=64, block_d=64, chunk=64)) for n in (1024, 2048, 4096)
    )
    assert all(third[name] - second[name] == 2 * (second[name] - first[name]) for name in third)
    assert third.total() < 2.01 * second.total()
