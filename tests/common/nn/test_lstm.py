"""The stacked LSTM against torch's own, and by hand."""

import math

import pytest
import torch
from torch import Tensor, nn

from common.nn.lstm import Cells, StackedLSTM, lstm_step

B, T, INPUTS, HIDDEN = 3, 7, 5, 4
LENGTHS = torch.tensor([7, 4, 1])


def stack(layers: int, **options: float) -> StackedLSTM:
    torch.manual_seed(0)
    made = StackedLSTM(INPUTS, HIDDEN, layers, **options).double()
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.6, 0.6)
    return made


def as_torch_has_it(ours: StackedLSTM) -> tuple[nn.LSTM, dict[str, str]]:
    """torch's LSTM of the same weights, and the names of ours for its parameters."""
    other = nn.LSTM(INPUTS, HIDDEN, ours.layers, batch_first=True).double()
    names = {}
    with torch.no_grad():
        for layer in range(ours.layers):
            for name, ours_name in (
                (f"weight_ih_l{layer}", f"w.{layer}.weight"),
                (f"bias_ih_l{layer}", f"w.{layer}.bias"),
            ):
                getattr(other, name).copy_(ours.get_parameter(ours_name))
                names[name] = ours_name
            getattr(other, f"weight_hh_l{layer}").copy_(ours.get_parameter(f"u.{layer}").t())
            getattr(other, f"bias_hh_l{layer}").zero_()
            names[f"weight_hh_l{layer}"] = f"u.{layer}"
    return other, names


@pytest.mark.parametrize("layers", [1, 3])
def test_states_and_gradients_are_those_of_torch(layers: int) -> None:
    """Sentences of different lengths: states at real words, last states, gradients of all of them."""
    ours = stack(layers)
    other, names = as_torch_has_it(ours)
    x = torch.randn(B, T, INPUTS, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(T) < LENGTHS[:, None]
    first = [torch.randn(B, layers, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    top, last = ours(x, Cells(*first), mask)

    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True)
    out, state = other(packed, tuple(t.transpose(0, 1).contiguous() for t in first))
    out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    state = [t.transpose(0, 1) for t in state]
    torch.testing.assert_close(top[mask], out[mask])
    torch.testing.assert_close(list(last), state)

    factors = [torch.randn_like(t) for t in (top[mask], *last)]

    def gradients(values: list[Tensor], module: nn.Module) -> dict[str, Tensor]:
        total = sum((factor * value).sum() for factor, value in zip(factors, values, strict=True))
        named = {"x": x, "h0": first[0], "c0": first[1]} | dict(module.named_parameters())
        found = torch.autograd.grad(total, list(named.values()), allow_unused=True)  # type: ignore[arg-type]
        return dict(zip(named, found, strict=True))

    got, right = gradients([top[mask], *last], ours), gradients([out[mask], *state], other)
    for name, value in right.items():
        if not name.startswith("bias_hh"):
            mine = got[names.get(name, name)]
            torch.testing.assert_close(mine.t() if name.startswith("weight_hh") else mine, value, msg=name)


def test_one_word_at_a_time_is_the_whole() -> None:
    """With several hypotheses a sentence; and the gradients of the two agree."""
    ours = stack(2)
    x = torch.randn(B, T, INPUTS, dtype=torch.float64)
    whole, last = ours(x, ours.zeros(x))
    state, tops = Cells(*(t.unsqueeze(1).expand(-1, 2, -1, -1) for t in ours.zeros(x))), []
    for t in range(T):
        top, state = ours.step(x[:, None, t].expand(-1, 2, -1), state)
        tops.append(top)
    stepped = torch.stack(tops, 2)
    torch.testing.assert_close(stepped, whole.unsqueeze(1).expand_as(stepped))
    torch.testing.assert_close(state.c[:, 1], last.c)
    got, right = (torch.autograd.grad(o.square().mean(), list(ours.parameters())) for o in (stepped, whole))
    torch.testing.assert_close(got, right)


def test_by_hand() -> None:
    """Sums of 0 but for the proposal: i = f = o = 1/2, g = tanh(1), c' = (c + g) / 2, h' = tanh(c') / 2."""
    h, c = lstm_step(torch.tensor([[0.0, 0.0, 1.0, 0.0]]), torch.tensor([[3.0]]))
    cell = (3 + math.tanh(1)) / 2
    assert c.item() == pytest.approx(cell) and h.item() == pytest.approx(math.tanh(cell) / 2)


def test_dropout_never_touches_what_recurs() -> None:
    """With all of its inputs dropped a stack still carries its state on (Zaremba et al. 2015, section 3.1)."""
    ours = stack(2, dropout=0.999999).train()
    x = torch.randn(B, 1, INPUTS, dtype=torch.float64)
    state = Cells(*(torch.randn(B, 2, HIDDEN, dtype=torch.float64) for _ in range(2)))
    _, after = ours(x, state)
    _, dry = ours.eval()(torch.zeros_like(x), state)
    torch.testing.assert_close(after.h[:, 0], dry.h[:, 0])
    assert not torch.equal(after.h, state.h)


def test_products_are_rounded_under_autocast_and_states_are_not() -> None:
    ours = stack(1).float()
    x = torch.randn(B, T, INPUTS)
    exact, _ = ours(x, ours.zeros(x))
    with torch.autocast("cpu", torch.bfloat16):
        rounded, last = ours(x, ours.zeros(x))
    assert rounded.dtype == last.c.dtype == torch.float32
    assert 1e-5 < (rounded - exact).abs().max() < 2e-2


def test_a_stack_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="layers: got 0, expected 1 or more"):
        StackedLSTM(2, 2, 0)


def test_a_fed_loop_is_a_step_on_words_and_what_is_fed() -> None:
    """Values, and gradients of everything it is made of; from a state that is not zero."""
    fed = 2
    model = stack(2)
    words = torch.randn(B, T, INPUTS - fed, dtype=torch.float64, requires_grad=True)
    h, c = (torch.randn(B, 2, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def plain() -> Tensor:
        state, x, out = Cells(h, c), torch.zeros(B, fed, dtype=torch.float64), []
        for word in words.unbind(1):
            top, state = model.step(torch.cat((word, x), -1), state)
            x = 2 * top[:, :fed]
            out.append(top)
        return torch.stack(out)

    def looped() -> Tensor:
        step, x, out = model.fed(words, Cells(h, c)), torch.zeros(B, fed, dtype=torch.float64), []
        for t in range(T):
            top = step(t, x)
            x = 2 * top[:, :fed]
            out.append(top)
        return torch.stack(out)

    inputs = (words, h, c, *model.parameters())
    upstream = torch.randn(T, B, HIDDEN, dtype=torch.float64)
    torch.testing.assert_close(looped(), plain())
    expected = torch.autograd.grad((plain() * upstream).sum(), inputs)
    torch.testing.assert_close(torch.autograd.grad((looped() * upstream).sum(), inputs), expected)
