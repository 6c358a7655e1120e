"""The gated unit against its equations, the written-out gradient against finite differences and autograd."""

import math

import pytest
import torch
from torch import Tensor

from common.nn.attentive import attentive_scan, attentive_step
from common.nn.initialisers import orthogonal_
from common.nn.recurrent import GatedEncoder, gated_scan, gated_step

T, B, S, A, H = 4, 3, 5, 4, 3


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_gated_step_by_hand() -> None:
    # one unit: z = s(0.1 + 0.5h), r = s(0.2 - 0.5h), n = tanh(0.3 + 2 r h), h = 0.4
    x, h = torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[0.4]])
    z, r = sigmoid(0.1 + 0.5 * 0.4), sigmoid(0.2 - 0.5 * 0.4)
    n = math.tanh(0.3 + 2.0 * (r * 0.4))
    step = gated_step(x, h, torch.tensor([[0.5, -0.5]]), torch.tensor([[2.0]]))
    assert step.item() == pytest.approx((1 - z) * 0.4 + z * n)


def scan_inputs() -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(0)
    shapes = [(T, 2, B, 3 * H), (2, B, H), (2, H, 2 * H), (2, H, H)]
    keep = torch.ones(T, 2, B, 1, dtype=torch.float64)
    keep[3, 0, 1] = keep[0, 1, 0] = keep[2:, 0, 2] = 0
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes], keep


def test_gated_scan_gradient_by_finite_differences() -> None:
    inputs, keep = scan_inputs()
    assert torch.autograd.gradcheck(lambda x, h0, ug, us: gated_scan(x, h0, ug, us, keep), inputs)


def test_gated_scan_is_the_step_in_a_loop_and_keeps_the_state_over_padding() -> None:
    (x, h, u_gates, u_state), keep = scan_inputs()
    states = gated_scan(x, h, u_gates, u_state, keep)
    for t in range(T):
        h = torch.where(keep[t].bool(), gated_step(x[t], h, u_gates, u_state), h)
        torch.testing.assert_close(states[t], h)


def attention_inputs() -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(1)
    shapes = [(T, B, 3 * H), (B, H), (B, S, A), (B, S, 3 * H), (H, A), (A,), (H, 2 * H), (H, H)]
    mask = torch.arange(S) < torch.tensor([[5], [2], [1]])
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes], mask


def scan(mask: Tensor, y: Tensor, s0: Tensor, keys: Tensor, values: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    return attentive_scan(y, s0, keys, values, mask, *weights)


def test_attentive_scan_gradient_by_finite_differences() -> None:
    inputs, mask = attention_inputs()
    assert torch.autograd.gradcheck(lambda *a: scan(mask, *a), inputs)


def test_attentive_scan_is_the_step_in_a_loop() -> None:
    inputs, mask = attention_inputs()
    y, s, keys, values, *weights = inputs
    states, alphas = scan(mask, *inputs)
    for t in range(T):
        s, alpha = attentive_step(y[t], s, keys, values, mask, *weights)
        torch.testing.assert_close(states[t], s)
        torch.testing.assert_close(alphas[t], alpha)


def test_the_score_reads_the_previous_state() -> None:
    """The first step's weights depend on s_0 alone: not on the first word, which only enters s_1."""
    inputs, mask = attention_inputs()
    _, alphas = scan(mask, *inputs)
    changed = [inputs[0] + 1, *inputs[1:]]
    _, others = scan(mask, *changed)
    torch.testing.assert_close(others[0], alphas[0])
    assert (others[1] - alphas[1]).abs().max() > 1e-3


def test_garbage_in_padded_keys_reaches_nothing() -> None:
    inputs, mask = attention_inputs()
    states, alphas = scan(mask, *inputs)
    y, s0, keys, values, *weights = (x.detach().clone() for x in inputs)
    keys[~mask], values[~mask] = 1e6, -1e6
    other_states, other_alphas = scan(mask, y, s0, keys, values, *weights)
    assert torch.equal(states, other_states) and torch.equal(alphas, other_alphas)


def test_bf16_products_stay_near_fp32() -> None:
    torch.manual_seed(2)
    inputs = [x.detach().float() * 0.3 for x in attention_inputs()[0]]
    mask = attention_inputs()[1]
    states, _ = scan(mask, *inputs)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = scan(mask, *inputs)
    assert low.dtype == torch.float32
    assert 0 < (low - states).abs().max() < 2e-2  # 2^-8 relative in each product


def test_encoder_does_not_see_padding_or_neighbours() -> None:
    torch.manual_seed(3)
    encoder = GatedEncoder(4, H, bidirectional=True, std=0.5)
    words = torch.randn(1, 6, 4)
    alone = encoder(words[:, :3], torch.ones(1, 3, dtype=torch.bool))
    beside = encoder(torch.cat([words, torch.randn(1, 6, 4)]), torch.arange(6) < torch.tensor([[3], [6]]))
    torch.testing.assert_close(beside.annotations[0, :3], alone.annotations[0])
    torch.testing.assert_close(beside.last[:, 0], alone.last[:, 0])


def test_encoder_directions() -> None:
    """h_j forward has read words 1..j, backward j..end; last[1] is the backward state at the first word."""
    torch.manual_seed(4)
    encoder = GatedEncoder(4, H, bidirectional=True, std=0.5)
    words, mask = torch.randn(1, 5, 4), torch.ones(1, 5, dtype=torch.bool)
    encoded = encoder(words, mask)
    changed = words.clone()
    changed[:, -1] += 1
    other = encoder(changed, mask)
    forward = (encoded.annotations - other.annotations)[0, :, :H].abs().amax(-1)
    backward = (encoded.annotations - other.annotations)[0, :, H:].abs().amax(-1)
    assert (forward[:-1] == 0).all() and forward[-1] > 0 and (backward > 0).all()
    torch.testing.assert_close(encoded.last[1], encoded.annotations[:, 0, H:])
    torch.testing.assert_close(encoded.last[0], encoded.annotations[:, -1, :H])


def test_orthogonal_blocks() -> None:
    torch.manual_seed(5)
    u = orthogonal_(torch.empty(2, 3, 6))
    for block in (u[0, :, :3], u[0, :, 3:], u[1, :, :3], u[1, :, 3:]):
        torch.testing.assert_close(block @ block.T, torch.eye(3), atol=1e-5, rtol=0)
    assert not torch.allclose(u[0, :, :3], u[0, :, 3:])
