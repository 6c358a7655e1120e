"""An ensemble's probabilities are the mean of its members', word by word and in whole sentences."""

import pytest
import torch

from common.decode.beam import beam_search
from common.nn.ensemble import Ensemble
from reproductions.bahdanau.model import RNNSearch
from reproductions.luong.model import Luong


def members() -> list[torch.nn.Module]:
    """Of two architectures with states of their own, one that attends and one that does not."""
    torch.manual_seed(0)
    made = [
        Luong(9, 11, layers=1, hidden=6, embedding=4, attention="dot", feed=True),
        RNNSearch(9, 11, attention=False, embedding=4, hidden=5, alignment=3, maxout=3),
        Luong(9, 11, layers=2, hidden=3, embedding=4, attention="general", span="local_p", half_width=2),
    ]
    for parameter in (p for model in made for p in model.parameters()):
        torch.nn.init.normal_(parameter, 0, 0.7)
    return [model.eval() for model in made]


SOURCE, TARGET = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), torch.tensor([[1, 4, 8], [1, 9, 0]])
GIVEN = SOURCE, SOURCE != 0, TARGET, TARGET != 0


@torch.no_grad()
def test_probabilities_are_averaged() -> None:
    parts = members()
    mean = torch.stack([model(*GIVEN).softmax(-1) for model in parts]).mean(0)
    out = Ensemble(parts)(*GIVEN)
    torch.testing.assert_close(out.exp(), mean)
    torch.testing.assert_close(torch.log_softmax(out, -1), out)  # what a loss makes of logits


@torch.no_grad()
def test_steps_are_the_forward_pass() -> None:
    model = Ensemble(members())
    exact = model(*GIVEN)
    memory, state = model.begin(*GIVEN[:2])
    steps = []
    for t in range(3):
        log_probs, state, weights = model.step(memory, state, TARGET[:, t : t + 1])
        steps.append(log_probs[:, 0])
        assert weights is not None and weights.shape == (2, 1, 4)
    torch.testing.assert_close(torch.stack(steps, 1)[GIVEN[3]], exact)


def test_a_beam_reorders_the_states_of_all() -> None:
    model = Ensemble(members())
    for (best,) in beam_search(model, *GIVEN[:2], bos=1, eos=2, max_len=6, beam=3):
        words = [*best.tokens, 2] if best.finished else best.tokens
        row = SOURCE[:1] if best.weights is not None and best.weights.shape[1] == 4 else SOURCE[1:, :2]
        target_in = torch.tensor([[1, *words[:-1]]])
        with torch.no_grad():
            log_probs = model(row, row != 0, target_in, torch.ones_like(target_in) > 0)
        assert best.log_prob == pytest.approx(log_probs[range(len(words)), words].sum().item(), abs=1e-4)


def test_one_member_is_itself_and_none_is_refused() -> None:
    one = members()[0]
    torch.testing.assert_close(Ensemble([one])(*GIVEN).detach(), one(*GIVEN).log_softmax(-1).detach())
    with pytest.raises(ValueError, match="got no members"):
        Ensemble([])
