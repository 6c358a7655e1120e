"""Biases by distance and rotations against formulas of their own, in Python's numbers."""

import math
from typing import Any

import pytest
import torch

from common.attention import Alibi, RotaryScaling, T5Bias, alibi_slopes, rotary
from common.attention.positions import t5_bucket


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (1, [1 / 256]),
        (2, [1 / 16, 1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        # no power of two: those of 4, then every second one of 8
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
    ],
)
def test_alibi_slopes(heads: int, expected: list[float]):
    """Section 3: for 8 heads 1/2, 1/4, .. 1/256, a geometric sequence that starts at its ratio."""
    assert alibi_slopes(heads).tolist() == pytest.approx(expected)


def test_sixteen_slopes_start_at_the_root_of_a_half():
    slopes = alibi_slopes(16)
    assert slopes[0] == pytest.approx(2**-0.5)
    assert (slopes[1:] / slopes[:-1]).tolist() == pytest.approx([2**-0.5] * 15)


def test_alibi_bias_by_hand():
    """Two heads with slopes 1/16 and 1/256; the query stands at the last key, figure 3's rows shifted to it."""
    bias = Alibi(alibi_slopes(2)).dense(2, 4)
    assert bias.shape == (1, 2, 2, 4)
    assert (bias[0, 0] * -16).tolist() == [[2.0, 1.0, 0.0, 1.0], [3.0, 2.0, 1.0, 0.0]]
    assert (bias[0, 1] * -256).tolist() == [[2.0, 1.0, 0.0, 1.0], [3.0, 2.0, 1.0, 0.0]]


def test_slopes_need_a_head():
    with pytest.raises(ValueError, match="heads: got 0, expected 1 or more"):
        alibi_slopes(0)


def bucket_by_integers(distance: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """The bucket without logarithms: exact + the largest k with distance >= exact * (max / exact)^(k / logarithmic).

    Both sides to the power of `logarithmic`, times powers of exact: all integers.
    """
    first = 0
    if bidirectional:
        buckets //= 2
        if distance > 0:
            first = buckets
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    logarithmic = buckets - exact
    k = 0
    while k + 1 < logarithmic and (
        distance**logarithmic * exact ** (k + 1) >= max_distance ** (k + 1) * exact**logarithmic
    ):
        k += 1
    return first + exact + k


@pytest.mark.parametrize(
    ("buckets", "bidirectional", "max_distance"),
    [(32, True, 128), (32, False, 128), (8, True, 20), (10, False, 50), (4, True, 128), (2, False, 16)],
)
def test_t5_buckets(buckets: int, bidirectional: bool, max_distance: int):
    distances = torch.arange(-600, 601)
    got = t5_bucket(distances, buckets, bidirectional, max_distance).tolist()
    expected = [bucket_by_integers(d, buckets, bidirectional, max_distance) for d in distances.tolist()]
    wrong = [(d, g, e) for d, g, e in zip(distances.tolist(), got, expected, strict=True) if g != e]
    assert wrong == []
    assert set(got) <= set(range(buckets))


def test_t5_buckets_by_hand():
    """32 buckets one way: 0 to 15 one each, 16 to 31 logarithmic, 128 and all beyond in the last."""
    got = t5_bucket(-torch.tensor([0, 1, 15, 16, 18, 19, 112, 113, 128, 5000]), 32, False, 128)
    assert got.tolist() == [0, 1, 15, 16, 16, 17, 30, 31, 31, 31]
    assert t5_bucket(torch.tensor([3, 300]), 32, False, 128).tolist() == [0, 0], "keys behind count as distance 0"
    assert t5_bucket(torch.tensor([-7, -8, 0, 1, 7, 8, 500]), 32, True, 128).tolist() == [7, 8, 0, 17, 23, 24, 31]


def test_t5_bias_reads_its_table_and_passes_gradients_to_it():
    table = torch.randn(8, 3, requires_grad=True)
    bias = T5Bias(table, bidirectional=False, max_distance=16)
    dense = bias.dense(4, 6)
    for i in range(4):
        for j in range(6):
            bucket = bucket_by_integers(j - (i + 2), 8, False, 16)
            assert torch.equal(dense[0, :, i, j], table[bucket])
    (gradient,) = torch.autograd.grad(dense.sum(), table)
    assert float(gradient.sum()) == 4 * 6 * 3


@pytest.mark.parametrize(("rows", "bidirectional", "far"), [(1, False, 128), (3, True, 128), (32, False, 16)])
def test_t5_tables_that_make_no_buckets_are_refused(rows: int, bidirectional: bool, far: int):
    with pytest.raises(ValueError, match=rf"T5Bias: got a table of shape \({rows}, 2\) and max_distance {far}"):
        T5Bias(torch.zeros(rows, 2), bidirectional, far)


@pytest.mark.parametrize(("lq", "lk"), [(3, 5), (5, 3), (1, 4), (4, 1), (0, 3), (3, 0), (0, 0)])
def test_the_vector_is_the_bias_by_distance(lq: int, lk: int):
    """Entry j - i + Lq - 1 of query i and key j, where query i stands at position i + Lk - Lq."""
    bias = Alibi(torch.tensor([1.0, 10.0]))
    vector, dense = bias.vector(lq, lk), bias.dense(lq, lk)
    assert vector.shape == (2, max(lq + lk - 1, 0)) and dense.shape == (1, 2, lq, lk)
    for i in range(lq):
        for j in range(lk):
            expected = [-float(abs(j - (i + lk - lq))), -10.0 * abs(j - (i + lk - lq))]
            assert vector[:, j - i + lq - 1].tolist() == dense[0, :, i, j].tolist() == expected


def test_rotary_by_hand():
    """D = 4: the first pair turns by the position, the second by the position / 100."""
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    got = rotary(x, torch.tensor([3]))[0].tolist()
    assert got == pytest.approx([math.cos(3), math.sin(3), -math.sin(0.03), math.cos(0.03)], abs=1e-6)


def test_rotary_at_0_does_nothing_and_keeps_lengths_everywhere():
    x = torch.randn(2, 3, 50, 16, dtype=torch.float64)
    assert torch.equal(rotary(x, torch.zeros(50)), x)
    turned = rotary(x, torch.arange(50))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert turned.dtype == torch.float64 and rotary(x.bfloat16(), torch.arange(50)).dtype == torch.bfloat16


def test_rotary_scores_know_the_distance_alone():
    """Equation 16: the product of a query at m and a key at n depends on n - m."""
    q, k = torch.randn(16, dtype=torch.float64), torch.randn(16, dtype=torch.float64)

    def score(m: int, n: int) -> float:
        return float(rotary(q[None], torch.tensor([m]))[0] @ rotary(k[None], torch.tensor([n]))[0])

    assert score(5, 2) == pytest.approx(score(105, 102), abs=1e-9)
    assert score(0, 7) == pytest.approx(score(1000, 1007), abs=1e-9)
    assert abs(score(5, 2) - score(2, 5)) > 1e-3


def test_rotary_takes_positions_of_each_batch_entry():
    x = torch.randn(2, 1, 3, 4)
    positions = torch.tensor([[0, 1, 2], [7, 8, 9]])[:, None]
    torch.testing.assert_close(rotary(x, positions)[1], rotary(x[1], torch.tensor([7, 8, 9])))


def test_rotary_of_16_bits_is_turned_in_fp32():
    """Position 4095 in bf16 would be 4096."""
    x = torch.randn(1, 8).bfloat16()
    exact = rotary(x.double(), torch.tensor([4095]))
    torch.testing.assert_close(rotary(x, torch.tensor([4095])).double(), exact, atol=2e-2, rtol=2e-2)


def test_rotary_far_from_the_start():
    """Angles of a million, which fp32 holds to 0.03."""
    x, far = torch.tensor([[1.0, 0.0, 1.0, 0.0]]), 1_000_003
    angles = [far, far * 0.01]
    expected = [f(angle) for angle in angles for f in (math.cos, math.sin)]
    assert rotary(x, torch.tensor([far]))[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_rotary_of_an_odd_dimension_is_refused():
    with pytest.raises(ValueError, match="rotary: got a head dimension of 7, expected an even one"):
        rotary(torch.randn(5, 7), torch.arange(5))


def angles(size: int, position: int, scaling: RotaryScaling | None) -> list[float]:
    """By which each pair of dimensions turns, between -pi and pi."""
    turned = rotary(
        torch.tensor([[1.0, 0.0] * (size // 2)], dtype=torch.float64), torch.tensor([position]), 1e4, scaling
    )
    return torch.atan2(turned[0, 1::2], turned[0, 0::2]).tolist()


def test_interpolated_positions_are_those_over_the_factor():
    """Chen et al. 2023, section 2.3: position 6 of twice the length is position 3, and 5 lies between 2 and 3."""
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 2)
    got = rotary(x, torch.tensor([6, 5]), scaling=RotaryScaling("interpolation", 2)).tolist()
    assert got[0] == pytest.approx([math.cos(3), math.sin(3), -math.sin(0.03), math.cos(0.03)], abs=1e-6)
    assert got[1] == pytest.approx([math.cos(2.5), math.sin(2.5), -math.sin(0.025), math.cos(0.025)], abs=1e-6)
    far = rotary(torch.tensor([[1.0, 0.0]]), torch.tensor([4_000_012]), scaling=RotaryScaling("interpolation", 4))
    assert far[0].tolist() == pytest.approx([math.cos(1_000_003), math.sin(1_000_003)], abs=1e-6)


def test_a_larger_base_leaves_the_highest_rate_and_interpolates_the_lowest():
    """(b s^(D / (D - 2)))^(-2i / D) = b^(-2i / D) s^(-2i / (D - 2)): 1 at i = 0, and at i = D / 2 - 1 the rate over s. D = 8
    and s = 27: rates 1, 1 / 10, 1 / 100, 1 / 1000 become 1, 1 / 30, 1 / 900, 1 / 27000."""
    assert angles(8, 1, None) == pytest.approx([1, 1 / 10, 1 / 100, 1 / 1000], rel=1e-12)
    assert angles(8, 1, RotaryScaling("ntk", 27)) == pytest.approx([1, 1 / 30, 1 / 900, 1 / 27000], rel=1e-12)
    assert angles(8, 1, RotaryScaling("interpolation", 27)) == pytest.approx(
        [1 / 27, 1 / 270, 1 / 2700, 1 / 27000], rel=1e-12
    )


@pytest.mark.parametrize("kind", ["interpolation", "ntk"])
def test_scaled_rotary_scores_know_the_distance_alone_and_a_factor_of_1_changes_nothing(kind: Any):
    q, k = (torch.randn(1, 16, dtype=torch.float64) for _ in range(2))
    scaling = RotaryScaling(kind, 3.5)

    def score(m: int, n: int) -> float:
        turned = (rotary(x, torch.tensor([at]), scaling=scaling) for x, at in ((q, m), (k, n)))
        return float(torch.stack([*turned]).prod(0).sum())

    assert score(5, 2) == pytest.approx(score(105, 102), abs=1e-9)
    assert abs(score(5, 2) - score(2, 5)) > 1e-3
    positions = torch.tensor([7])
    assert torch.equal(rotary(q, positions, scaling=RotaryScaling(kind, 1)), rotary(q, positions))


@pytest.mark.parametrize(
    ("kind", "factor", "message"),
    [
        ("dynamic", 2.0, "rotary scaling: got 'dynamic', expected interpolation or ntk"),
        ("ntk", 0.5, "rotary scaling: got a factor of 0.5, expected a finite number, 1 or more"),
        ("interpolation", math.inf, "rotary scaling: got a factor of inf, expected a finite number"),
        ("interpolation", math.nan, "rotary scaling: got a factor of nan, expected a finite number"),
        ("ntk", 2.0, "rotary scaling: got a head dimension of 2, expected 4 or more for ntk"),
    ],
)
def test_scaling_that_does_not_fit_is_refused(kind: Any, factor: float, message: str):
    with pytest.raises(ValueError, match=message):
        rotary(torch.randn(5, 2), torch.arange(5), scaling=RotaryScaling(kind, factor))
