"""Positions that start later or that count real tokens alone, and one matrix for two embeddings."""

import pytest
import torch
from torch import Tensor

from common.nn.embedding import AddedPositions, Embedding


def embedding(positions: AddedPositions = "sinusoidal") -> Embedding:
    torch.manual_seed(0)
    return Embedding(9, 4, positions=positions, max_length=8 if positions == "learned" else None, scale=True)


def at(model: Embedding, token: int, position: int) -> Tensor:
    return model(torch.tensor([[token]]), torch.tensor([position]))[0, 0]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_positions_go_on_from_a_start(positions: AddedPositions) -> None:
    model = embedding(positions)
    x = model(torch.tensor([[5, 6, 7]]), start=2)[0]
    torch.testing.assert_close(
        x, torch.stack([at(model, token, position) for token, position in ((5, 2), (6, 3), (7, 4))])
    )


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_real_tokens_are_numbered_wherever_the_padding_lies(positions: AddedPositions) -> None:
    model = embedding(positions)
    ids = torch.tensor([[5, 6, 7, 8], [0, 0, 5, 6], [5, 6, 0, 0]])
    x = model(ids, real=ids != 0)
    expected = [at(model, token, position) for token, position in ((5, 0), (6, 1), (7, 2), (8, 3))]
    torch.testing.assert_close(x[0], torch.stack(expected))
    torch.testing.assert_close(x[1, 2:], torch.stack(expected[:2]))
    torch.testing.assert_close(x[2, :2], torch.stack(expected[:2]))


def test_a_start_behind_the_last_learned_position() -> None:
    model, ids = embedding("learned"), torch.tensor([[5, 6]])
    model(ids, start=6)
    with pytest.raises(ValueError, match="got 9 in a row, expected at most 8, max_length"):
        model(ids, start=7)


def test_a_shared_matrix_is_one_parameter_with_the_gradient_of_both() -> None:
    first = embedding()
    second = Embedding(9, 4, positions="learned", max_length=3, shared=first.weight)
    assert second.weight is first.weight and second.places is not None
    (first(torch.tensor([[5]])).sum() + second(torch.tensor([[6]])).sum()).backward()
    assert first.weight.grad is not None
    assert first.weight.grad[5].tolist() == [2.0] * 4 and first.weight.grad[6].tolist() == [1.0] * 4
