"""The trace on paper: its end is the reference's, its steps those worked out by hand, its bytes those that the kernel moves."""

from math import exp
from pathlib import Path

import pytest
import torch

from common.attention import Full, attention
from reproductions.flash_attention import trace

PAGE = Path(trace.__file__).with_name("TRACE.md")


@pytest.mark.parametrize("block", [1, 2, 4, 6])
def test_the_end_is_that_of_the_reference(block: int) -> None:
    q, k, v = trace.case()
    *_, last = trace.steps(q, k, v, block)
    expected = attention(q[None, None], k[None, None], v[None, None], mask=Full(), backend="reference")[0, 0]
    torch.testing.assert_close(last.output / last.running_sum[:, None], expected, rtol=1e-13, atol=1e-13)
    lse = (q @ k.T / 2).logsumexp(1)
    torch.testing.assert_close(last.maximum + last.running_sum.log(), lse, rtol=1e-13, atol=1e-13)


def test_the_second_block_by_hand() -> None:
    """Query 1: scores 1, 0, then 3, -1: what was summed is taken times e^(1 - 3)."""
    _, second, _ = trace.steps(*trace.case(), 2)
    assert second.scores[0].tolist() == [3, -1] and float(second.maximum[0]) == 3
    assert float(second.factor[0]) == pytest.approx(exp(-2))
    assert float(second.running_sum[0]) == pytest.approx(exp(-2) * (1 + exp(-1)) + 1 + exp(-4))
    first, other = exp(-2) * 1 + 2 - exp(-4), exp(-2) * exp(-1) + 2
    assert second.output[0].tolist() == pytest.approx([first, other])


def test_bytes_are_those_of_every_input_once() -> None:
    """2 queries and 6 keys of 4 numbers, 6 values of 2, of 2 bytes each; the scores and weights written out, 2 x 6, cross twice."""
    *_, last = trace.steps(*trace.case(), 2)
    assert last.read == 2 * (2 * 4 + 6 * 4 + 6 * 2)
    text = trace.page()
    assert f"Bytes: {88 + 2 * 2 * 2 + 2 * 4} in all, 88 of inputs read and 16 of output" in text
    assert f"moves {88 + 8 + 4 * 2 * 6 * 2}:" in text


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == trace.page()
