"""Scores against numbers worked by hand."""

import math

import pytest
import torch

from common.attention.scores import (
    additive_score,
    concat_score,
    dot_score,
    general_score,
    location_score,
    masked_softmax,
    predicted_center,
    scaled_dot_score,
    truncated_gaussian,
    window,
)

STATE, ANNOTATIONS = torch.tensor([1.0, -2.0]), torch.tensor([[3.0, 1.0], [0.5, 2.0], [-1.0, 0.0]])
"""h_t and three h_s."""


def test_additive_score_by_hand() -> None:
    # v = (1, 2); query (0.5, -1); keys (0, 1) and (1, 1)
    score = additive_score(torch.tensor([0.5, -1.0]), torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([1.0, 2.0]))
    assert score.tolist() == pytest.approx([math.tanh(0.5) + 2 * math.tanh(0.0), math.tanh(1.5) + 2 * math.tanh(0.0)])


def test_masked_softmax_by_hand() -> None:
    weights = masked_softmax(torch.tensor([0.0, math.log(3.0), 7.0]), torch.tensor([True, True, False]))
    assert weights.tolist() == pytest.approx([0.25, 0.75, 0.0])


@pytest.mark.parametrize("garbage", [1e30, math.inf, math.nan])
def test_masked_scores_never_reach_the_weights(garbage: float) -> None:
    scores = torch.tensor([0.0, math.log(3.0), garbage])
    assert masked_softmax(scores, torch.tensor([True, True, False])).tolist() == pytest.approx([0.25, 0.75, 0.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_score_is_so_low_that_a_masked_one_weighs_more(dtype: torch.dtype) -> None:
    """Scores at the lower end of the dtype, beside a masked one of 0."""
    scores = torch.tensor([torch.finfo(dtype).min, torch.finfo(dtype).min, 0.0], dtype=dtype)
    assert masked_softmax(scores, torch.tensor([True, True, False])).tolist() == [0.5, 0.5, 0.0]


def test_a_row_that_may_attend_to_nothing_gives_zeros_and_no_gradient() -> None:
    scores = torch.zeros(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[False] * 3, [True] * 3]))
    assert weights[0].tolist() == [0.0, 0.0, 0.0]
    (gradient,) = torch.autograd.grad((weights * torch.arange(3.0)).sum(), scores)
    assert gradient[0].tolist() == [0.0, 0.0, 0.0] and torch.isfinite(gradient).all()


def test_padding_changes_neither_weights_nor_context() -> None:
    torch.manual_seed(0)
    query, annotations, v = torch.randn(6), torch.randn(5, 6), torch.randn(6)
    alone = masked_softmax(additive_score(query, annotations, v), torch.ones(5, dtype=torch.bool))
    padded = torch.cat([annotations, torch.randn(4, 6)])
    weights = masked_softmax(additive_score(query, padded, v), torch.arange(9) < 5)
    assert (weights[5:] == 0).all()
    torch.testing.assert_close(weights[:5], alone)
    torch.testing.assert_close(weights @ padded, alone @ annotations)


def test_dot_by_hand() -> None:
    assert dot_score(STATE, ANNOTATIONS).tolist() == [3 - 2, 0.5 - 4, -1]
    root = math.sqrt(2)
    assert scaled_dot_score(STATE, ANNOTATIONS).tolist() == pytest.approx([1 / root, -3.5 / root, -1 / root])


def test_general_by_hand() -> None:
    # h_t^T W_a = (1 * 1 - 2 * 0, 1 * 4 - 2 * 1, 1 * 0 - 2 * 5) = (1, 2, -10)
    w_a = torch.tensor([[1.0, 4.0, 0.0], [0.0, 1.0, 5.0]])
    keys = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, 0.1]])
    assert general_score(STATE, keys, w_a).tolist() == pytest.approx([-7.0, 1.0])


def test_concat_is_one_layer_over_the_concatenation() -> None:
    draw = torch.Generator().manual_seed(0)
    w_a, v_a = torch.randn(4, 5, generator=draw), torch.randn(5, generator=draw)
    wanted = []
    for h_s in ANNOTATIONS.tolist():
        both = [*STATE.tolist(), *h_s]
        hidden = [math.tanh(sum(x * w for x, w in zip(both, column, strict=True))) for column in w_a.T.tolist()]
        wanted.append(sum(v * h for v, h in zip(v_a.tolist(), hidden, strict=True)))
    assert concat_score(STATE, ANNOTATIONS, w_a, v_a).tolist() == pytest.approx(wanted, abs=1e-5)


def test_location_reads_the_state_alone() -> None:
    w_a = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])  # scores of at most three positions: 1, -2, 0
    assert location_score(STATE, w_a, 3).tolist() == [1, -2, 0]
    assert location_score(STATE, w_a, 2).tolist() == [1, -2]  # of a short sentence the top part
    weights = masked_softmax(location_score(STATE, w_a, 5), torch.ones(5, dtype=torch.bool))
    whole = math.exp(1) + math.exp(-2) + 1
    assert weights.tolist() == pytest.approx([math.exp(1) / whole, math.exp(-2) / whole, 1 / whole, 0, 0])


@pytest.mark.parametrize("score", [dot_score, scaled_dot_score])
def test_a_batch_is_its_sentences(score) -> None:
    draw = torch.Generator().manual_seed(0)
    query, keys = torch.randn(3, 4, generator=draw), torch.randn(3, 5, 4, generator=draw)
    w_a, v_a = torch.randn(8, 6, generator=draw), torch.randn(6, generator=draw)
    for function in (score, lambda q, k: general_score(q, k, w_a[:4, :4]), lambda q, k: concat_score(q, k, w_a, v_a)):
        assert function(query, keys).shape == (3, 5)
        for b in range(3):
            torch.testing.assert_close(function(query, keys)[b], function(query[b], keys[b]))


def test_the_predicted_center_is_the_sentences_length_times_a_sigmoid() -> None:
    # W_p h_t = (1 - 2 * 0.5, -2) = (0, -2); v_p = (7, 1): tanh 0 = 0 leaves tanh(-2)
    w_p, v_p = torch.tensor([[1.0, 0.0], [0.5, 1.0]]), torch.tensor([7.0, 1.0])
    share = 1 / (1 + math.exp(-math.tanh(-2)))
    centers = predicted_center(STATE.expand(2, 2), w_p, v_p, torch.tensor([10, 40]))
    assert centers.tolist() == pytest.approx([10 * share, 40 * share])
    steps = predicted_center(STATE.expand(2, 3, 2), w_p, v_p, torch.tensor([[10], [40]]))
    assert steps.shape == (2, 3) and steps[:, 2].tolist() == pytest.approx([10 * share, 40 * share])


def test_a_center_in_16_bits_is_not_rounded_to_them() -> None:
    assert predicted_center(torch.zeros(2).bfloat16(), torch.zeros(2, 2).bfloat16(), torch.zeros(2).bfloat16(),
                            torch.tensor(514)).item() == 257  # fmt: skip


def test_windows_reach_d_to_both_sides_and_ignore_what_lies_outside() -> None:
    inside = window(torch.tensor([0.0, 3.0, 7.0, 8.0, 2.5]), 2, 6)
    wanted = ["111000", "011111", "000001", "000000", "011110"]
    assert ["".join(str(int(x)) for x in row) for row in inside] == wanted
    assert window(torch.tensor([3]), 2, 6).tolist() == window(torch.tensor([3.0]), 2, 6).tolist()  # local-m: p_t = t


def test_the_gaussian_by_hand() -> None:
    # D = 4, sigma = 2, p_t = 5: at distance x exp(-x^2 / 8), nothing beyond 4
    factor = truncated_gaussian(torch.tensor(5.0), 4, 11)
    wanted = [math.exp(-((s - 5) ** 2) / 8) if abs(s - 5) <= 4 else 0.0 for s in range(11)]
    assert factor.tolist() == pytest.approx(wanted)
    assert factor[1] > 0.13 and factor[0] == 0


def test_local_p_multiplies_after_the_softmax_and_normalises_nothing() -> None:
    """Equation 10 written out, for a sentence of 6 words padded to 8."""
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0, 1.0, 0.5, 9.0, math.nan])
    center, width = torch.tensor(4.6), 2
    real = torch.arange(8) < 6
    weights = masked_softmax(scores, real & window(center, width, 8)) * truncated_gaussian(center, width, 8)
    powers = {s: math.exp(scores[s].item()) for s in (3, 4, 5)}
    wanted = [powers.get(s, 0.0) / sum(powers.values()) * math.exp(-((s - 4.6) ** 2) / 2) for s in range(8)]
    assert weights.tolist() == pytest.approx(wanted)
    assert 0 < weights.sum() < 0.95


def test_the_center_learns_through_the_gaussian() -> None:
    """More weight on the position to its right pulls the center to the right, by the derivative (s - p_t) / sigma^2."""
    center = torch.tensor(3.2, requires_grad=True)
    truncated_gaussian(center, 4, 9)[4].log().backward()
    assert center.grad is not None and center.grad.item() == pytest.approx((4 - 3.2) / 4)


@pytest.mark.parametrize("function", [window, truncated_gaussian])
def test_a_window_of_nothing_is_refused(function) -> None:
    with pytest.raises(ValueError, match="half_width: got 0, expected 1 or more"):
        function(torch.tensor(1.0), 0, 5)
