"""Masks by head, and each backend with them."""

import pytest
import torch

from common.attention import BACKENDS, Blocks, Causal, Dilated, Full, Global, Padding, Window, attention
from common.attention.blocks import lower
from common.attention.heads import Heads
from tests.common.attention.properties import assert_exact, inputs
from tests.common.attention.test_masks import written


def test_by_hand():
    mask = Heads((Window(1, 0), Dilated(1, 0, 2)))
    assert mask.groups == (1, 2)
    assert torch.equal(mask.dense(3, 3)[0], torch.stack((written("100", "110", "011"), written("100", "010", "101"))))


def test_equal_tuples_are_equal_values_and_lowered_once():
    one, other = Heads((Window(3, 3), Dilated(3, 3, 2))), Heads([Window(3, 3), Dilated(3, 3, 2)])  # type: ignore[arg-type]
    assert one == other and hash(one) == hash(other)
    assert lower(one, 40, 40, 16, 16) is lower(other, 40, 40, 16, 16)
    turned = Heads((Dilated(3, 3, 2), Window(3, 3)))
    assert one != turned and not torch.equal(lower(one, 40, 40, 16, 16).dense(), lower(turned, 40, 40, 16, 16).dense())


@pytest.mark.parametrize(("lq", "lk"), [(37, 37), (5, 40), (40, 5)])
def test_lists_mean_what_the_mask_means(lq: int, lk: int):
    keep = torch.rand(3, lk, generator=torch.Generator().manual_seed(0)) > 0.4
    by_head = Heads((Window(2, 2), Causal(), Dilated(2, 1, 3) | Global((1,)), Full()))
    for mask in (by_head, by_head & Padding(keep), Heads((Padding(keep), Causal() & Padding(keep), Full(), Full()))):
        dense = mask.dense(lq, lk)
        assert dense.shape == (*mask.groups, lq, lk)
        assert torch.equal(lower(mask, lq, lk, 16, 16).dense(), dense)
        for head in range(4):
            assert torch.equal(dense[-1, head], mask.at(mask.groups[0] - 1, head).dense(lq, lk))


def test_one_mask_is_of_all_heads():
    one = Heads((Window(2, 1),))
    assert one.groups == (1, 1) and torch.equal(one.dense(9, 9), Window(2, 1).dense(9, 9)) and one.shift_invariant
    assert not Heads((Window(2, 1), Global((0,)))).shift_invariant
    both = one & Heads((Full(), Causal()))
    assert torch.equal(both.dense(5, 5)[0, 0], Window(2, 1).dense(5, 5))
    assert torch.equal(both.dense(5, 5)[0, 1], Window(2, 0).dense(5, 5))


@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
def test_exact(backend: str):
    keep = torch.arange(70) < torch.tensor([70, 33])[:, None]
    by_head = Heads((Window(3, 3), Dilated(3, 3, 2), Causal(), Window(0, 0) | Global((0,))))
    for mask in (by_head, by_head & Padding(keep)):
        assert_exact(backend, inputs(70, dtype=torch.float64), mask)
        assert_exact(backend, inputs(70, kv=2), mask)


def test_what_does_not_fit_is_refused():
    q, k, v, _ = inputs(6)
    with pytest.raises(ValueError, match="got 2 for heads, expected 1 or 4"):
        attention(q, k, v, mask=Heads((Full(), Causal())), backend=BACKENDS[0])
    with pytest.raises(ValueError, match=r"Heads: got masks of \[\] heads, expected one or more"):
        Heads(())
    with pytest.raises(ValueError, match=r"Heads: got masks of \[1, 2\] heads"):
        Heads((Full(), Blocks(torch.ones(1, 2, 1, 1, dtype=torch.bool), 8)))
    with pytest.raises(ValueError, match=r"masks of different batch: \[2, 3\]"):
        Heads(tuple(Padding(torch.ones(n, 4, dtype=torch.bool)) for n in (2, 3)))
    five = Heads((Full(), Padding(torch.ones(2, 5, dtype=torch.bool)), Full(), Full()))
    with pytest.raises(ValueError, match="Padding: got a mask of 5 keys, expected 6"):
        attention(q, k, v, mask=five, backend="reference")
