"""RNNsearch and RNNencdec against the paper's equations and sizes."""

import math

import pytest
import torch

from common.decode.beam import beam_search
from reproductions.bahdanau.model import RNNSearch

BOS, EOS = 1, 2
SIZES = {"embedding": 5, "hidden": 4, "alignment": 3, "maxout": 2}


def model(attention: bool = True, **changes: object) -> RNNSearch:
    torch.manual_seed(0)
    m = RNNSearch(11, 13, attention=attention, **(SIZES | changes))  # type: ignore[arg-type]
    for p in m.parameters():  # larger than the paper's initial weights, so that everything matters
        torch.nn.init.normal_(p, 0, 0.5)
    return m.double().eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]])
    target_in = torch.tensor([[1, 4, 5], [1, 9, 0]])
    return source, source != 0, target_in, torch.tensor([[True, True, True], [True, True, False]])


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("readout_state", ["previous", "current"])
def test_forward_follows_the_equations_of_appendix_a(attention: bool, readout_state: str) -> None:
    """Word by word with the paper's symbols, matrices multiplied from the left as it writes them."""
    m = model(attention, readout_state=readout_state)
    source, mask, target_in, target_mask = batch()
    logits = m(source, mask, target_in, target_mask)
    row = 0
    sig, tanh = torch.sigmoid, torch.tanh
    n = SIZES["hidden"]
    for b in range(2):
        x = m.source_embedding(source[b][mask[b]])
        directions = []
        for d in range(m.encoder.directions):
            w, bias = (t[..., d * 3 * n : (d + 1) * 3 * n] for t in (m.encoder.w, m.encoder.bias))
            ug, u = m.encoder.u_gates[d].T, m.encoder.u_state[d].T
            h, states = torch.zeros(n, dtype=torch.double), []
            for e in x if d == 0 else x.flip(0):
                pre = w.T @ e + bias
                z, r = sig(pre[:n] + ug[:n] @ h), sig(pre[n : 2 * n] + ug[n:] @ h)
                h = (1 - z) * h + z * tanh(pre[2 * n :] + u @ (r * h))
                states.append(h)
            directions.append(torch.stack(states if d == 0 else states[::-1]))
        h_j = torch.cat(directions, 1)
        s = tanh(m.w_s.weight @ (directions[1][0] if attention else h_j[-1]) + m.w_s.bias)
        ug, u = m.u_gates.T, m.u_state.T
        for t in range(int(target_mask[b].sum())):
            if attention:
                e_j = torch.stack([m.v_a @ tanh(m.w_a.T @ s + m.u_a.weight @ h + m.u_a.bias) for h in h_j])
                c = e_j.softmax(0) @ h_j
            else:
                c = h_j[-1]
            y = m.target_embedding.weight[target_in[b, t]]
            pre = m.w.weight @ y + m.w.bias + m.c.weight @ c
            z, r = sig(pre[:n] + ug[:n] @ s), sig(pre[n : 2 * n] + ug[n:] @ s)
            s_next = (1 - z) * s + z * tanh(pre[2 * n :] + u @ (r * s))
            read = s if readout_state == "previous" else s_next
            t_tilde = m.u_o.weight @ read + m.u_o.bias + m.v_o.weight @ y + m.c_o.weight @ c
            expected = m.w_o.weight @ torch.maximum(t_tilde[0::2], t_tilde[1::2]) + m.w_o.bias
            torch.testing.assert_close(logits[row], expected)
            s, row = s_next, row + 1
    assert row == len(logits)


@pytest.mark.parametrize("attention", [True, False])
def test_parameter_count_of_the_paper(attention: bool) -> None:
    """Appendix A and B: K = 30,000 and four special words, m = 620, n = 1000, n' = 1000, l = 500, with biases."""
    k, m, n, a, l_ = 30004, 620, 1000, 1000, 500
    context = 2 * n if attention else n
    encoder = (2 if attention else 1) * (3 * n * (m + n) + 3 * n)
    decoder = 3 * n * (m + n + context) + 3 * n + n * n + n
    alignment = a * (n + context) + a + a if attention else 0
    readout = 2 * l_ * (n + m + context) + 2 * l_ + l_ * k + k
    with torch.device("meta"):
        paper = RNNSearch(k, k, attention=attention, embedding=m, hidden=n, alignment=a, maxout=l_)
    assert sum(p.numel() for p in paper.parameters()) == 2 * k * m + encoder + decoder + alignment + readout


def test_initial_weights_of_appendix_b() -> None:
    torch.manual_seed(0)
    m = RNNSearch(500, 500, attention=True, embedding=60, hidden=80, alignment=90, maxout=40)
    for weights in (m.w.weight, m.c.weight, m.w_o.weight, m.source_embedding.weight, m.encoder.w):
        assert weights.std().item() == pytest.approx(0.01, rel=0.05) and abs(weights.mean().item()) < 5e-4
    for weights in (m.w_a, m.u_a.weight):
        assert weights.std().item() == pytest.approx(0.001, rel=0.05)
    biases = [p for name, p in m.named_parameters() if name.endswith("bias")]
    assert biases and all((b == 0).all() for b in [m.v_a, *biases])
    torch.testing.assert_close(m.u_state @ m.u_state.T, torch.eye(80), atol=1e-5, rtol=0)


def test_an_untrained_model_knows_nothing() -> None:
    torch.manual_seed(0)
    m = RNNSearch(50, 60, attention=True, embedding=8, hidden=8, alignment=8, maxout=8)
    source, mask, target_in, target_mask = batch()
    logits = m(source, mask, target_in, target_mask)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([4, 5, 2, 9, 2]))
    assert loss.item() == pytest.approx(math.log(60), abs=0.01)


@pytest.mark.parametrize("attention", [True, False])
def test_steps_agree_with_teacher_forcing(attention: bool) -> None:
    m = model(attention)
    source, mask, target_in, target_mask = batch()
    logits = m(source, mask, target_in, target_mask)
    memory, state = m.begin(source, mask)
    steps = []
    for t in range(3):
        log_probs, state, weights = m.step(memory, state, target_in[:, t : t + 1])
        steps.append(log_probs[:, 0])
        if weights is not None:
            assert (weights[1, 0, 2:] == 0).all()
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, dtype=torch.double))
    torch.testing.assert_close(torch.stack(steps, 1)[target_mask], logits.float().log_softmax(-1))


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_does_not_depend_on_the_batch(attention: bool, beam: int) -> None:
    m = model(attention)
    torch.manual_seed(1)
    lengths = [1, 2, 3, 4, 5, 6]
    source = torch.zeros(6, 6, dtype=torch.long)
    for i, n in enumerate(lengths):
        source[i, : n - 1] = torch.randint(3, 11, (n - 1,))
        source[i, n - 1] = EOS

    def translate(rows: list[int]) -> list[tuple[list[int], float]]:
        part = source[rows][:, : max(lengths[i] for i in rows)]
        best = beam_search(m, part, part != 0, bos=BOS, eos=EOS, beam=beam, max_len=8)
        return [(h[0].tokens, round(h[0].log_prob, 4)) for h in best]

    whole = translate(list(range(6)))
    assert [translate([i])[0] for i in range(6)] == whole
    assert translate([0, 1]) + translate([2, 3]) + translate([4, 5]) == whole
