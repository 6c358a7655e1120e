"""Masks against matrices written by hand: a row a query, a column a key, 1 = may attend."""

import pytest
import torch
from torch import Tensor

from common.attention import And, Causal, Dilated, Full, Global, Mask, Or, Padding, Window
from common.attention.masks import EMPTY, FULL, PARTIAL


def written(*rows: str) -> Tensor:
    return torch.tensor([[place == "1" for place in row] for row in rows])


BY_HAND: dict[str, tuple[Mask, Tensor]] = {
    "full": (Full(), written("111", "111")),
    "causal, square": (Causal(), written("1000", "1100", "1110", "1111")),
    "causal, two new queries after three keys": (Causal(), written("11110", "11111")),
    "causal, one query sees all": (Causal(), written("111111")),
    "causal, more queries than keys": (Causal(), written("00", "00", "00", "10", "11")),
    "window, both sides": (Window(1, 2), written("11100", "11110", "01111", "00111", "00011")),
    "window, none after": (Window(2, 0), written("10000", "11000", "11100", "01110", "00111")),
    "window, only itself": (Window(0, 0), written("100", "010", "001")),
    "window, no limit before": (Window(None, 1), written("1100", "1110", "1111", "1111")),
    "window, no limit after": (Window(0, None), written("1111", "0111", "0011", "0001")),
    "window, bottom-right": (Window(1, 0), written("01100", "00110", "00011")),
    "window, queries before all keys": (Window(1, 1), written("00", "10", "11", "11")),
    "dilated": (Dilated(2, 1, 2), written("101000", "010100", "101010", "010101", "101010", "010101")),
    "dilated, bottom-right": (Dilated(1, 0, 2), written("10100", "01010", "00101")),
    "dilated by 1 is a window": (Dilated(1, 1, 1), written("110", "111", "011")),
    "global": (Global((1,)), written("0100", "1111", "0100", "0100")),
    "global, bottom-right": (Global((3,)), written("00010", "11111", "00010")),
    "global, beyond the keys": (Global((9,)), written("00", "00")),
    "global, none": (Global(()), written("00", "00")),
    "and": (Causal() & Window(1, 1), written("1000", "1100", "0110", "0011")),
    "or": (Window(0, 0) | Global((0,)), written("1111", "1100", "1010", "1001")),
    "nested": ((Window(1, 1) | Global((0,))) & Causal(), written("1000", "1100", "1110", "1011")),
}


@pytest.mark.parametrize(("mask", "expected"), BY_HAND.values(), ids=BY_HAND.keys())
def test_by_hand(mask: Mask, expected: Tensor):
    lq, lk = expected.shape
    assert torch.equal(mask.dense(lq, lk), expected)


def test_a_causal_mask_of_few_queries_is_the_last_rows_of_the_square():
    for lq, lk in ((2, 5), (1, 6), (4, 4), (3, 4)):
        assert torch.equal(Causal().dense(lq, lk), Causal().dense(lk, lk)[-lq:])


def test_a_window_counts_each_side_without_the_position_itself():
    """Token 7 of 8 with two keys before it sees 5, 6 and 7; in all 1 + 2 + 6 * 3 = 21 pairs."""
    seen = Window(2, 0).dense(8, 8)
    assert seen[7].nonzero().flatten().tolist() == [5, 6, 7] and int(seen.sum()) == 21


def test_longformers_window_of_w_has_half_on_each_side():
    """Section 3.1: w = 32 lets a token far from both ends see w / 2 keys on each side, and itself."""
    assert int(Window(16, 16).dense(100, 100)[50].sum()) == 33


def test_a_dilated_window_reaches_as_far_as_left_times_dilation():
    assert Dilated(3, 2, 4).dense(30, 30)[15].nonzero().flatten().tolist() == [3, 7, 11, 15, 19, 23]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_negative_window_is_refused(side: str):
    with pytest.raises(ValueError, match=rf"Window {side}: got -1, expected 0 or more keys"):
        Window(**{"left": 0, "right": 0, side: -1})


@pytest.mark.parametrize("sizes", [(-1, 0, 1), (0, -1, 1), (1, 1, 0)])
def test_a_dilated_window_of_negative_sizes_is_refused(sizes: tuple[int, int, int]):
    with pytest.raises(ValueError, match="expected left and right of 0 or more and a dilation of 1 or more"):
        Dilated(*sizes)


def test_a_negative_global_position_is_refused():
    with pytest.raises(ValueError, match=r"Global positions: got \(0, -1\), expected 0 or more"):
        Global((0, -1))


def test_equal_masks_are_equal_values():
    assert Causal() & Window(3, 0) == And(Causal(), Window(3, 0)) and hash(Global((1,))) == hash(Global((1,)))
    assert Window(None, 0) != Causal() and And(Full(), Full()) != Or(Full(), Full())


def some_masks() -> list[Mask]:
    torch.manual_seed(0)
    parts: list[Mask] = [
        Full(),
        Causal(),
        Window(3, 2),
        Window(0, 0),
        Window(None, 4),
        Dilated(2, 3, 3),
        Global((0, 7)),
    ]
    pairs = [pair for a in parts for b in parts for pair in (a & b, a | b)]
    return [*parts, *pairs, Padding(torch.rand(1, 40) > 0.3) & Window(3, 3)]


@pytest.mark.parametrize(("lq", "lk"), [(19, 19), (8, 40), (21, 13), (1, 40)])
def test_the_status_of_a_block_is_never_wrong(lq: int, lk: int):
    """FULL and EMPTY are promises about every element; PARTIAL promises nothing. Blocks of 4 queries and 5 keys."""
    i0, j0 = torch.arange(0, lq, 4)[:, None], torch.arange(0, lk, 5)[None]
    i1, j1 = (i0 + 3).clamp(max=lq - 1), (j0 + 4).clamp(max=lk - 1)
    told = 0
    for mask in some_masks():
        if isinstance(mask, And) and isinstance(mask.a, Padding) and lk != 40:
            continue
        dense = mask.dense(lq, lk).expand(lq, lk) if mask.groups == (1, 1) else mask.dense(lq, lk)[0, 0]
        status = mask.status(i0, i1, j0, j1, lq, lk).expand(len(i0), j0.shape[1])
        for row in range(len(i0)):
            for column in range(j0.shape[1]):
                block = dense[row * 4 : row * 4 + 4, column * 5 : column * 5 + 5]
                found = int(status[row, column])
                assert found in (EMPTY, PARTIAL, FULL)
                assert found != FULL or bool(block.all()), (mask, row, column)
                assert found != EMPTY or not bool(block.any()), (mask, row, column)
                told += found != PARTIAL
    assert told > 100 or lq == 1


def test_a_window_tells_full_and_empty_blocks_apart():
    """Window(7, 0) in blocks of 4: the block's own is cut by the diagonal, the one before is whole, the third is cut."""
    i0, j0 = torch.tensor([[12]]), torch.arange(0, 20, 4)[None]
    status = Window(7, 0).status(i0, i0 + 3, j0, j0 + 3, 20, 20)
    assert status.tolist() == [[EMPTY, PARTIAL, FULL, PARTIAL, EMPTY]]


def test_shift_invariance_is_told_truly():
    """Where a mask says that only distances count, one diagonal holds one value."""
    told = [mask for mask in some_masks() if mask.shift_invariant]
    for mask in told:
        dense = mask.dense(11, 17)
        for offset in range(-10, 17):
            diagonal = dense.diagonal(offset)
            assert bool(diagonal.all()) or not bool(diagonal.any()), mask
    assert Causal() in told and Global((0, 7)) not in told and (Causal() | Global((0, 7))) not in told


def test_groups_of_combined_masks():
    by_batch = Padding(torch.ones(3, 5, dtype=torch.bool))
    assert (by_batch & Causal()).groups == (3, 1)
    with pytest.raises(ValueError, match=r"(?s)masks of different batch: got 3 .* and 2 "):
        _ = (by_batch & Padding(torch.ones(2, 5, dtype=torch.bool))).groups
