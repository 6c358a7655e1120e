"""FLOPs by hand values of the FlashAttention papers' rule, and pairs against dense masks."""

import pytest
import torch

from common.attention import Blocks, Causal, Dilated, Full, Global, Mask, Packed, Padding, Random, Window
from common.bench.flops import Pass, block_density, flops, kept_pairs, paper_pairs


def test_full_and_causal_by_the_papers_rule() -> None:
    """B 4, H 16, L 8192, D 128: 4 B H L^2 D = 2199023255552 forward; causal half; backward 2.5 times; both 3.5 times."""
    full, causal = paper_pairs(Full(), 8192), paper_pairs(Causal(), 8192)
    assert full is not None and causal is not None
    assert flops(full, 4, 16, 128, 128, "forward") == 2199023255552
    assert flops(causal, 4, 16, 128, 128, "forward") == 1099511627776
    assert flops(full, 4, 16, 128, 128, "backward") == 2.5 * 2199023255552
    assert flops(full, 4, 16, 128, 128, "both") == 3.5 * 2199023255552


def test_values_of_another_width() -> None:
    assert flops(8 * 8, 1, 1, 64, 128, "forward") == 2 * 64 * (64 + 128)


@pytest.mark.parametrize(("passes", "factor"), [("forward", 1), ("backward", 2.5), ("both", 3.5)])
def test_a_causal_window_is_credited_with_what_it_keeps(passes: Pass, factor: float) -> None:
    """Length 8, the own key and 2 before it: 1 + 2 + 6 x 3 = 21 pairs; the rule of the papers has no windows."""
    mask = Window(2, 0)
    assert kept_pairs(mask, 8) == 21 and paper_pairs(mask, 8) is None
    assert flops(kept_pairs(mask, 8), 1, 1, 64, 64, passes) == 2 * 21 * 128 * factor


MASKS: dict[str, Mask] = {
    "full": Full(),
    "causal": Causal(),
    "window": Window(40, 7),
    "dilated": Dilated(9, 0, 3),
    "global and window": Window(5, 5) | Global((0, 200)),
    "random": Random(1, 64, 3),
    "blocks": Blocks(torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.5, 64),
    "padding": Padding.lengths(torch.tensor([300, 1, 0]), 300),
    "packed": Packed.lengths(torch.tensor([128, 100, 72])),
}


@pytest.mark.parametrize("name", MASKS)
def test_pairs_are_those_of_the_dense_mask(name: str) -> None:
    """At a length that cuts the last blocks off; the mean over batch entries and heads."""
    dense = MASKS[name].dense(300, 300)
    assert kept_pairs(MASKS[name], 300) == dense.sum().item() / (dense.numel() / 300**2)


def test_block_density() -> None:
    """Length 512 has 4 x 4 blocks of 128: causal touches 1 + 2 + 3 + 4 of 16, a causal window of 128 keys 1 + 3 x 2."""
    assert block_density(Full(), 512) == 1
    assert block_density(Causal(), 512) == 10 / 16
    assert block_density(Window(128, 0), 512) == 7 / 16
