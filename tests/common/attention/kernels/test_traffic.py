"""What interpreted kernels load, store and multiply, against closed forms and against counts by hand."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from common.attention import Blocks, Causal, Full, Mask, Padding, Window, traffic
from common.attention.kernels import configurations
from common.attention.kernels.autograd import flash
from common.attention.kernels.configurations import Configuration
from common.attention.kernels.launch import Problem
from common.attention.kernels.ledger import Ledger, counting
from common.attention.traffic import Shape

BATCH, HEADS, KV_HEADS, LQ, LK, D, DV = 2, 4, 2, 40, 56, 32, 16
SHAPE = Shape(BATCH, HEADS, HEADS // KV_HEADS, LQ, LK, D, DV, 2)
MASKS: list[Mask] = [
    Full(),
    Causal(),
    Window(5, 3),
    Padding.lengths(torch.tensor([20, 0]), LK),
    Blocks(torch.tensor([[True, False, True, False], [False] * 4, [True] * 4]), 16),
]


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of 32 queries and 16 keys; for dK and dV 16 queries and 32 keys."""
    chosen = {"key_value": Configuration(16, 32, 4, 1)}
    monkeypatch.setattr(configurations, "choose", lambda part, *_: chosen.get(part, Configuration(32, 16, 4, 1)))
    yield


def counted(mask: Mask, lq: int = LQ, lk: int = LK) -> Ledger:
    draw = torch.Generator().manual_seed(0)
    sizes = [(HEADS, lq, D), (KV_HEADS, lk, D), (KV_HEADS, lk, DV)]
    q, k, v = (torch.randn(BATCH, *size, generator=draw).half().requires_grad_() for size in sizes)
    with counting() as ledger:
        output, _ = flash(Problem(q, k, v, mask, None, D**-0.5, 0.0, 0))
        output.backward(torch.randn(output.shape, generator=draw).half())
    return ledger


def of_tensors(ledger: Ledger, kernel: str) -> Counter[str]:
    """Bytes by argument, loads and stores, without the lists."""
    found: Counter[str] = Counter()
    for part in (ledger.loads, ledger.stores):
        for (name, argument), count in part.items():
            if name == kernel and not argument.startswith("lists"):
                found[argument] += count
    return found


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
def test_every_byte_is_that_of_the_closed_form(mask: Mask) -> None:
    ledger = counted(mask)
    assert of_tensors(ledger, "forward_kernel") == +traffic.flash_forward(SHAPE, mask, 32, 16)
    assert of_tensors(ledger, "delta_kernel") == traffic.flash_delta(SHAPE)
    assert of_tensors(ledger, "query_kernel") == +traffic.flash_query(SHAPE, mask, 32, 16)
    assert of_tensors(ledger, "key_value_kernel") == +traffic.flash_key_value(SHAPE, mask, 16, 32)


@pytest.mark.parametrize("kept", [[0], [0, 3], [0, 1, 3]], ids=["quarter", "half", "three quarters"])
def test_bytes_and_products_are_proportional_to_density(kept: list[int]) -> None:
    """Of 2 x 2 blocks of 32, so many are kept: what is read once a block, and every product, is that share of full's."""
    blocks = torch.zeros(4, dtype=torch.bool)
    blocks[kept] = True
    sparse, full = (counted(mask, 64, 64) for mask in (Blocks(blocks.view(2, 2), 32), Full()))
    for kernel, arguments in {
        "forward_kernel": "kv",
        "query_kernel": "kv",
        "key_value_kernel": ("q", "d_output"),
    }.items():
        for argument in arguments:
            assert 4 * sparse.loads[kernel, argument] == len(kept) * full.loads[kernel, argument] > 0
        assert 4 * sparse.products[kernel] == len(kept) * full.products[kernel] > 0


def test_by_hand() -> None:
    """40 queries in blocks of 32: two programs a head, each of which reads all 56 keys and values once."""
    moved, heads = of_tensors(counted(Full()), "forward_kernel"), BATCH * HEADS
    assert moved == {
        "q": heads * 40 * 32 * 2,
        "k": heads * 2 * 56 * 32 * 2,
        "v": heads * 2 * 56 * 16 * 2,
        "output": heads * 40 * 16 * 2,
        "lse": heads * 40 * 4,
    }


def test_products_by_hand() -> None:
    """Whole blocks are multiplied: 2 x 4 of 32 x 16 a head forward, over head_dims of 32 and 16."""
    products, heads = counted(Full()).products, BATCH * HEADS
    assert products["forward_kernel"] == heads * 8 * 2 * 32 * 16 * (32 + 16)
    assert products["query_kernel"] == heads * 8 * 2 * 32 * 16 * (32 + 16 + 32)
    assert products["key_value_kernel"] == heads * 3 * 2 * 2 * 16 * 32 * (32 + 16 + 16 + 32)


def test_theorem_2_traffic_of_keys_falls_with_the_queries_held() -> None:
    """Dao et al. 2022, theorem 2: N^2 d^2 / M. Twice the queries in a block, half of the reads of K and V, exactly."""
    shape = Shape(1, 1, 1, 4096, 4096, 64, 64, 2)
    reads = {b: traffic.flash_forward(shape, Full(), b, 64) for b in (32, 64, 128)}
    assert [reads[b]["k"] for b in reads] == [4096 // b * 4096 * 64 * 2 for b in reads]
    assert reads[32]["v"] == 2 * reads[64]["v"] == 4 * reads[128]["v"]


def test_a_window_moves_bytes_in_proportion_to_the_length() -> None:
    shapes = [Shape(1, 1, 1, n, n, 64, 64, 2) for n in (4096, 8192)]
    short, long = (traffic.flash_forward(s, Window(128, 0), 128, 64)["k"] for s in shapes)
    rows = 128 // 64 + 128 // 64  # of blocks that 128 queries and the 128 keys before them touch
    assert long - short == 4096 // 128 * rows * 64 * 64 * 2


def test_standard_attention_by_hand() -> None:
    """Algorithm 0: Q, K, V, O once; S and P each written and read. N = 4, M = 8, d = 2, 2 bytes."""
    shape = Shape(1, 1, 1, 4, 8, 2, 2, 2)
    assert traffic.standard_forward(shape).total() == 2 * (4 * 2 + 8 * 2 + 8 * 2 + 4 * 2 + 4 * (4 * 8))
    assert traffic.standard_products(shape) == 6 * 2 * 4 * 8 * 2
