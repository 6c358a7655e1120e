"""Products with a matrix whose gradient waits for the end of the loop, against autograd's own."""

import pytest
import torch
from torch import Tensor

from common.nn.deferred import Deferred

STEPS = 4


def recurrence(product, x: Tensor) -> Tensor:
    """Each step reads what the step before made of the same matrix."""
    states = []
    for _ in range(STEPS):
        x = torch.tanh(product(x))
        states.append(x)
    return torch.stack(states)


@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5)], ids=["one matrix", "one a sentence"])
def test_values_and_gradients_are_those_of_the_plain_product(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(STEPS, 3, 2, 5, dtype=torch.float64)
    plain, ours = recurrence(lambda y: y @ matrix, x), recurrence(Deferred(matrix), x)
    torch.testing.assert_close(ours, plain)
    expected = torch.autograd.grad((plain * upstream).sum(), (matrix, x))
    found = torch.autograd.grad((ours * upstream).sum(), (matrix, x))
    torch.testing.assert_close(found, expected)


def test_the_gradient_goes_on_to_what_the_matrix_is_made_of() -> None:
    parts = [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)]
    x = torch.randn(5, 6)
    Deferred(torch.cat(parts))(x).sum().backward()
    for part, columns in zip(parts, x.split((2, 4), 1), strict=True):
        torch.testing.assert_close(part.grad, columns.sum(0).unsqueeze(1).expand(-1, 3))


def test_under_autocast_products_are_low_and_results_are_not() -> None:
    torch.manual_seed(0)
    matrix, x = torch.randn(64, 8, requires_grad=True), torch.randn(3, 64)
    with torch.autocast("cpu", torch.bfloat16):
        product = Deferred(matrix)
        out = product(x)
    assert product.low.dtype == torch.bfloat16 and out.dtype == torch.float32
    torch.testing.assert_close(out, (x.bfloat16() @ matrix.bfloat16()).float())
    out.sum().backward()
    assert matrix.grad is not None and matrix.grad.dtype == torch.float32
    torch.testing.assert_close(matrix.grad, x.sum(0).unsqueeze(1).expand(-1, 8), rtol=0.02, atol=0.02)


def test_a_second_backward_counts_alone() -> None:
    """What the first one used is not used again."""
    matrix, x = torch.eye(2, requires_grad=True), torch.ones(1, 2)
    loss = Deferred(matrix)(x).sum()
    for _ in range(2):
        matrix.grad = None
        loss.backward(retain_graph=True)
        torch.testing.assert_close(matrix.grad, torch.ones(2, 2))
