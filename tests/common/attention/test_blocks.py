"""Block lists: they mean what the mask means, list no empty block, and call a block full only if it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.attention import Blocks, Causal, Dilated, Full, Global, Mask, Packed, Padding, Random, Window
from common.attention.blocks import BlockLists, Lists, lower
from tests.common.attention.test_masks import written

SIZES = st.integers(1, 45)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Mask, int, int]:
    """A mask with shapes that it fits."""
    lq, lk, seed = draw(SIZES), draw(SIZES), draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    batch, heads, side = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 3])), st.none() | st.integers(0, 20)
    table = torch.rand(batch, heads, -(-lq // 6), -(-lk // 6), generator=generator) > 0.6
    simple = [
        Full(),
        Causal(),
        Window(draw(side), draw(side)),
        Dilated(draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.integers(1, 5))),
        Global(tuple(draw(st.lists(st.integers(0, 50), max_size=3)))),
        Random(draw(st.integers(0, 3)), draw(st.integers(1, 9)), seed),
        Blocks(table, 6),
        Padding(torch.rand(batch, lk, generator=generator) > 0.4),
        Packed(
            torch.randint(-1, 3, (batch, lq), generator=generator).sort(1).values,
            torch.randint(-1, 3, (batch, lk), generator=generator).sort(1).values,
        ),
    ]
    mask = draw(st.sampled_from(simple))
    for _ in range(draw(st.integers(0, 2))):
        other = draw(st.sampled_from(simple))
        mask = mask & other if draw(st.booleans()) else mask | other
    return mask, lq, lk


def listed(lists: Lists) -> list[tuple[int, int, int, int]]:
    """(group, row, column, tile), in order."""
    found = []
    for group, starts in enumerate(lists.start.tolist()):
        for row in range(len(starts) - 1):
            for n in range(starts[row], starts[row + 1]):
                found.append((group, row, int(lists.column[n]), int(lists.tile[n])))
    return found


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([(4, 4), (8, 5), (16, 16), (1, 64)]))
def test_lists_mean_what_the_mask_means(case: tuple[Mask, int, int], block: tuple[int, int]):
    (mask, lq, lk), (block_q, block_k) = case, block
    lists = lower(mask, lq, lk, block_q, block_k)
    dense = mask.dense(lq, lk).expand(*mask.groups, lq, lk)
    assert torch.equal(lists.dense(), dense)
    by_query = listed(lists.by_query)
    assert sorted(by_query) == sorted((g, column, row, tile) for g, row, column, tile in listed(lists.by_key))
    for g, row, column, tile in by_query:
        block_of = dense.flatten(0, 1)[g, row * block_q :, column * block_k :][:block_q, :block_k]
        assert bool(block_of.any()), "an empty block is listed"
        assert tile >= 0 or bool(block_of.all()), "a block is called full that is not"
        assert tile < 0 or not bool(lists.tiles[tile].all()), "a full block is not called full"
        assert tile >= 0 or (column + 1) * block_k <= lk, "a full block reaches beyond the keys"
        rest = block_of.shape
        beyond = [] if tile < 0 else [lists.tiles[tile, rest[0] :], lists.tiles[tile, :, rest[1] :]]
        assert not any(bool(part.any()) for part in beyond), "a tile allows what is beyond the lengths"
    assert_order(lists)


def assert_order(lists: BlockLists) -> None:
    """Full blocks first, each part ascending, each group's last entry the next one's first."""
    for side in (lists.by_query, lists.by_key):
        assert torch.equal(side.start[1:, 0], side.start[:-1, -1])
        for starts, ends in zip(side.start.tolist(), side.full_end.tolist(), strict=True):
            for row, end in enumerate(ends):
                for part, full in (((starts[row], end), True), ((end, starts[row + 1]), False)):
                    columns = side.column[part[0] : part[1]].tolist()
                    assert columns == sorted(set(columns))
                    assert bool(((side.tile[part[0] : part[1]] < 0) == full).all())


def test_a_causal_window_by_hand():
    """Window(2, 0) of 5 queries and keys in blocks of 2: the block before is cut, the own one too."""
    lists = lower(Causal() & Window(2, 0), 5, 5, 2, 2)
    found = {(row, column): lists.tiles[tile] for _, row, column, tile in listed(lists.by_query) if tile >= 0}
    expected = {(0, 0): ("10", "11"), (1, 0): ("11", "01"), (1, 1): ("10", "11")}
    # the last query is alone in its block: its own block has one key, and it sees all of the block before
    expected |= {(2, 2): ("10", "00")}
    assert found.keys() == expected.keys() and len(lists.by_query.column) == 5
    assert [(row, column) for _, row, column, tile in listed(lists.by_query) if tile < 0] == [(2, 1)]
    for place, rows in expected.items():
        assert torch.equal(found[place], written(*rows)), place
    assert len(lists.tiles) == 3, "equal tiles are not shared"
    assert lists.density == pytest.approx(5 / 9)


def test_full_blocks_lie_inside_the_keys_but_may_reach_beyond_the_queries():
    lists = lower(Full(), 3, 3, 2, 2)
    assert [(row, column) for _, row, column, tile in listed(lists.by_query) if tile < 0] == [(0, 0), (1, 0)]


def test_a_long_windows_lists_hold_few_tiles():
    """Equal distances share a tile: 64 rows of three blocks, two tiles, and one more pair at the cut-off end."""
    lists = lower(Window(16, 0), 1000, 1000, 16, 16)
    assert len(lists.by_query.column) == 63 * 2 - 1 and len(lists.tiles) <= 4


def test_equal_masks_share_their_lists():
    assert lower(Causal() & Window(5, 0), 30, 30, 8, 8) is lower(Causal() & Window(5, 0), 30, 30, 8, 8)
    assert lower(Causal() & Window(5, 0), 30, 30, 8, 8) is not lower(Causal() | Window(5, 0), 30, 30, 8, 8)


@pytest.mark.parametrize(("lq", "lk"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_list(lq: int, lk: int):
    lists = lower(Causal(), lq, lk, 4, 4)
    assert lists.dense().shape == (1, 1, lq, lk) and not len(lists.by_query.column) and not len(lists.by_key.column)


def test_an_empty_batch_has_no_groups():
    lists = lower(Padding(torch.ones(0, 9, dtype=torch.bool)), 5, 9, 4, 4)
    assert lists.by_query.start.shape == (0, 3) and lists.by_key.full_end.shape == (0, 3)
    assert Padding(torch.ones(0, 9, dtype=torch.bool)).dense(5, 9).shape == (0, 1, 5, 9)
