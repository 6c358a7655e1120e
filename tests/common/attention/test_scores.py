"""Scores against numbers worked by hand."""

import math

import pytest
import torch

from common.attention.scores import additive_score, masked_softmax


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
