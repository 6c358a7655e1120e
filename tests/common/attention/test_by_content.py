"""Padding by value: one mask for equal contents, a copy of what it was made of, and one lowering for all who ask."""

import pytest
import torch

from common.attention import Blocks, Padding, Window
from common.attention.blocks import lower
from common.attention.by_content import block_table, real_keys


def test_equal_contents_are_one_mask_and_other_ones_are_not():
    keep = torch.arange(50) < torch.tensor([50, 20, 0])[:, None]
    mask = real_keys(keep)
    assert torch.equal(mask.keep, keep) and mask.groups == (3, 1)
    assert real_keys(keep.clone()) is mask and real_keys(keep.t().contiguous().t()) is mask, "whatever its strides"
    assert real_keys(~keep) is not mask and real_keys(keep.view(1, 150)) is not mask
    assert lower(Window(3, 3) & mask, 50, 50, 16, 16) is lower(Window(3, 3) & real_keys(keep.clone()), 50, 50, 16, 16)


def test_what_happens_to_the_tensor_afterwards_is_no_matter():
    keep = torch.ones(2, 30, dtype=torch.bool)
    before = lower(Window(3, 3) & real_keys(keep), 30, 30, 16, 16).dense()
    keep[:, 5:] = False
    assert torch.equal(lower(Window(3, 3) & real_keys(torch.ones_like(keep)), 30, 30, 16, 16).dense(), before)
    after = lower(Window(3, 3) & real_keys(keep), 30, 30, 16, 16).dense()
    assert torch.equal(after, (Window(3, 3) & Padding(keep)).dense(30, 30))


def test_it_takes_what_padding_takes():
    with pytest.raises(ValueError, match="Padding: got torch.float32"):
        real_keys(torch.ones(2, 3))
    assert real_keys(torch.ones(0, 3, dtype=torch.bool)).groups == (0, 1)


def test_equal_tables_are_one_mask():
    table = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    mask = block_table(table, 8)
    assert torch.equal(mask.table, table) and block_table(table.clone(), 8) is mask
    assert block_table(table, 4) is not mask and block_table(~table, 8) is not mask
    assert torch.equal(block_table(table[0, 0], 8).dense(30, 30), Blocks(table[0, 0], 8).dense(30, 30))
    with pytest.raises(ValueError, match="got a table of torch.float32"):
        block_table(table.float(), 8)
