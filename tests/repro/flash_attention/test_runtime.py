"""Rows of the tables of times: who sees whom, and Linformer's projection."""

from typing import Any

import pytest
import torch

from common.bench.workload import Shape, random_inputs
from reproductions.flash_attention.runtime import Runtime, kept, mask_of, padded_lengths, projected

SHAPE = Shape(2, 2, 2, 256, 8, "fp32", "cpu")


def test_patterns_of_the_rows() -> None:
    """An eighth of 256: 16 keys on each side. Longformer's first token and BigBird's first block see all and are seen by all."""
    seen = {row: mask_of(row, SHAPE, False, 1).dense(256, 256) for row in
            ("standard", "local_attention", "longformer", "block_sparse_flash", "bigbird")}  # fmt: skip
    i, j = torch.arange(256)[:, None], torch.arange(256)
    window = (i - j).abs() <= 16
    assert kept(SHAPE) == 32 and seen["standard"].all() and torch.equal(seen["local_attention"], window)
    assert torch.equal(seen["longformer"], window | (i == 0) | (j == 0))
    blocks = seen["block_sparse_flash"]
    assert (blocks & window == window).all() and not blocks.all()
    assert torch.equal(seen["bigbird"], blocks | (i < 64) | (j < 64))


def test_padding_hides_at_most_twenty_keys() -> None:
    lengths = padded_lengths(SHAPE, 1)
    seen = mask_of("standard", SHAPE, True, 1).dense(256, 256)
    assert ((lengths >= 236) & (lengths <= 256)).all()
    for entry, length in zip(seen[:, 0], lengths.tolist(), strict=True):
        assert entry[:, :length].all() and not entry[:, length:].any()


@pytest.mark.parametrize("padded", [False, True])
def test_a_projection_by_its_definition(padded: bool) -> None:
    """Wang et al. 2020, equation 7: softmax(Q (E K)^T / sqrt(d)) E V, E found from what is given for K = V = identity."""
    [one] = random_inputs(SHAPE, 1, 0)
    attend: Any = projected(SHAPE, one, padded, 0.0, 1)
    q, k, v = one.q.double(), one.k.double(), one.v.double()
    draw = torch.Generator().manual_seed(1)
    e = (torch.randn(32, 256, generator=draw) / 32**0.5).double()[None, None]
    if padded:
        e = e * (torch.arange(256) < padded_lengths(SHAPE, 1)[:, None])[:, None, None]
    expected = (q @ (e @ k).mT / 8**0.5).softmax(-1) @ (e @ v)
    torch.testing.assert_close(attend(one.q, one.k, one.v).double(), expected, rtol=1e-4, atol=1e-4)
    if padded:
        shortest = int(padded_lengths(SHAPE, 1).min())
        row = int(padded_lengths(SHAPE, 1).argmin())
        other = one.k.detach().clone()
        other[row, :, shortest:] = 1e3
        assert torch.equal(attend(one.q, other, one.v)[row], attend(one.q, one.k, one.v)[row])


def test_every_row_is_measured_or_says_why() -> None:
    methods = {"standard": "plain", "longformer": "chunked", "bigbird": "chunked", "linformer": "linformer"}
    found = Runtime(
        methods=methods, lengths=[128], batch=1, heads=2, head_dim=8, dtype="fp32", device="cpu", repeats=1, budget=60.0,
        dropout_budget=60.0, threads=1,
    )(1)  # fmt: skip
    for row in methods:
        assert len(found[row]["both_ms"]["at"]["128"]) == len(found[row]["both_mask_ms"]["at"]["128"]) == 1
        assert found[row]["memory_mb"]["at"]["128"][0] > 0
        dropped = found[row]["both_dropout_ms"]
        assert ("128" in dropped["at"]) != ("128" in dropped["refused"])
