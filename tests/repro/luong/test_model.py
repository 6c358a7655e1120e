"""Luong et al. 2015: the model against the paper's equations and sizes."""

import math

import pytest
import torch
from torch import Tensor

from common.decode.beam import beam_search
from reproductions.luong.model import Luong, reversed_within

BOS, EOS = 1, 2
SIZES = {"layers": 2, "hidden": 4, "embedding": 3}
KINDS = [
    ("none", "global", False), ("location", "global", False), ("location", "global", True), ("dot", "global", True),
    ("general", "global", True), ("concat", "global", True), ("dot", "local_m", True), ("general", "local_m", False),
    ("dot", "local_p", False), ("general", "local_p", True), ("concat", "local_p", True),
]  # fmt: skip


def model(attention: str, span: str = "global", feed: bool = False, **changes: object) -> Luong:
    torch.manual_seed(0)
    made = Luong(11, 13, attention=attention, span=span, feed=feed, **(SIZES | {"half_width": 2} | changes))  # type: ignore[arg-type]
    for p in made.parameters():  # larger than the paper's initial weights, so that everything matters
        torch.nn.init.uniform_(p, -0.8, 0.8)
    return made.double().eval()


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source = torch.tensor([[5, 6, 7, 4, 9, 2], [8, 3, 2, 0, 0, 0]])
    target_in = torch.tensor([[1, 4, 5, 7], [1, 9, 3, 0]])
    return source, source != 0, target_in, torch.tensor([[True] * 4, [True, True, True, False]])


def cell(w: Tensor, b: Tensor, u: Tensor, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (w @ x + b + u.T @ h).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def stack(lstm: torch.nn.Module, x: Tensor, state: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list]:
    after = []
    for layer, (h, c) in enumerate(state):
        w = lstm.w[layer]  # type: ignore[index]
        x, c = cell(w.weight, w.bias, lstm.u[layer], x, h, c)  # type: ignore[index]
        after.append((x, c))
    return x, after


def weights_by_hand(m: Luong, h: Tensor, states: Tensor, t: int) -> Tensor:
    """Sections 3.1 and 3.2, one source word after the other."""
    s = len(states)
    if m.attention == "dot":
        scores = [h @ of_s for of_s in states]
    elif m.attention == "general":
        scores = [h @ m.w_a.weight @ of_s for of_s in states]  # type: ignore[operator]
    elif m.attention == "concat":
        w_a = torch.cat((m.w_query.weight, m.w_key.weight), 1)
        scores = [m.v_a @ torch.tanh(w_a @ torch.cat((h, of_s))) for of_s in states]
    else:
        scores = list((m.w_place.T @ h)[:s])
    if m.span == "global":
        return torch.stack(scores).softmax(0)
    center = t if m.span == "local_m" else s * torch.sigmoid(m.v_p @ torch.tanh(m.w_p.T @ h)).item()
    inside = [j for j in range(s) if center - m.half_width <= j <= center + m.half_width]
    found = torch.zeros(s, dtype=torch.double)
    if inside:
        found[inside] = torch.stack([scores[j] for j in inside]).softmax(0)
    if m.span == "local_p":
        sigma = m.half_width / 2
        found *= torch.tensor([math.exp(-((j - center) ** 2) / (2 * sigma**2)) for j in range(s)], dtype=torch.double)
    return found


@pytest.mark.parametrize("attention, span, feed", KINDS)
def test_forward_follows_the_equations(attention: str, span: str, feed: bool) -> None:
    """Word by word with the paper's symbols; the source is read backwards, states are those of their own words."""
    m = model(attention, span, feed)
    source, mask, target_in, target_mask = batch()
    logits, row = m(source, mask, target_in, target_mask), 0
    zero = torch.zeros(SIZES["hidden"], dtype=torch.double)
    for b in range(2):
        state, states = [(zero, zero)] * SIZES["layers"], []
        for x in m.source_embedding(source[b][mask[b]]).flip(0):
            top, state = stack(m.encoder, x, state)
            states.insert(0, top)
        annotations, vector = torch.stack(states), zero
        for t in range(int(target_mask[b].sum())):
            x = m.target_embedding(target_in[b, t])
            h, state = stack(m.decoder, torch.cat((x, vector)) if feed else x, state)
            vector = h
            if attention != "none":
                context = weights_by_hand(m, h, annotations, t) @ annotations
                vector = torch.tanh(m.w_c.weight @ torch.cat((context, h)))
            torch.testing.assert_close(logits[row], m.w_s.weight @ vector + m.w_s.bias)
            row += 1
    assert row == len(logits)


@pytest.mark.parametrize("attention, span, feed", KINDS)
def test_decoding_is_the_forward_pass_word_by_word(attention: str, span: str, feed: bool) -> None:
    """Alone and in a batch with a longer sentence."""
    m = model(attention, span, feed)
    source, mask, target_in, target_mask = batch()
    exact = m(source, mask, target_in, target_mask).log_softmax(-1).float()
    for rows, cut in ((slice(0, 2), 6), (slice(1, 2), 3)):
        memory, state = m.begin(source[rows, :cut], mask[rows, :cut])
        steps = []
        for t in range(4):
            log_probs, state, weights = m.step(memory, state, target_in[rows, t : t + 1])
            steps.append(log_probs[:, 0])
            assert (weights is None) == (attention == "none")
            assert weights is None or not weights[..., ~mask[rows, :cut].any(0)].any()
        got = torch.stack(steps, 1)[target_mask[rows]]
        torch.testing.assert_close(got, exact[-len(got) :], atol=1e-6, rtol=0)


@pytest.mark.parametrize("attention, span, feed", [("general", "local_p", True), ("dot", "local_m", True)])
def test_a_beam_scores_its_translation_as_teacher_forcing_does(attention: str, span: str, feed: bool) -> None:
    """States, attentional vectors and places of hypotheses are reordered with them."""
    m = model(attention, span, feed)
    source, mask, *_ = batch()
    for b, (best,) in enumerate(beam_search(m, source, mask, bos=BOS, eos=EOS, max_len=6, beam=3)):
        words = [*best.tokens, EOS] if best.finished else best.tokens
        target_in = torch.tensor([[BOS, *words[:-1]]])
        logits = m(source[b : b + 1], mask[b : b + 1], target_in, torch.ones_like(target_in, dtype=torch.bool))
        exact = logits.log_softmax(-1)[range(len(words)), words].sum()
        assert best.log_prob == pytest.approx(exact.item(), abs=1e-5)


def test_reading_backwards_keeps_padding_where_it_is() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert reversed_within(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]
    forwards = model("dot", reverse=False)
    source, keep, *_ = batch()
    order = reversed_within(keep)
    forwards.load_state_dict(model("dot").state_dict())
    read = forwards.encode(source.gather(1, order), keep)
    torch.testing.assert_close(read.state.h, model("dot").encode(source, keep).state.h)


def test_sizes_of_the_paper() -> None:
    """Four layers of 1000 units, 50,000 words and three special ones: a closed form of section 4.1."""
    words, n = 50_003, 1000
    lstm = 4 * (4 * n * (n + n) + 4 * n)
    with torch.device("meta"):
        base = Luong(words, words, layers=4, hidden=n, embedding=n, attention="none")
        best = Luong(words, words, layers=4, hidden=n, embedding=n, attention="general", span="local_p", feed=True)
    plain = 2 * words * n + 2 * lstm + words * n + words
    assert sum(p.numel() for p in base.parameters()) == plain
    attention = n * n + (n * n + n) + 2 * n * n  # W_a, W_p and v_p, W_c
    assert (
        sum(p.numel() for p in best.parameters()) == plain + attention + 4 * n * n
    )  # the fed vector's share of layer 1


def test_weights_start_uniform() -> None:
    made = Luong(50, 60, layers=2, hidden=64, embedding=64, attention="concat", span="local_p", feed=True)
    for name, p in made.named_parameters():
        assert p.abs().max() <= 0.1, name
    everything = torch.cat([p.flatten() for p in made.parameters()])
    assert everything.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.01)


@pytest.mark.parametrize("given, told", [
    ({"attention": "bilinear"}, "model.attention: got 'bilinear', expected one of none, location"),
    ({"attention": "dot", "span": "local"}, "model.span: got 'local', expected one of global, local_m, local_p"),
    ({"attention": "location", "span": "local_p"}, "which do not go together"),
    ({"attention": "none", "feed": True}, "which do not go together"),
])  # fmt: skip
def test_settings_that_mean_nothing_are_refused(given: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Luong(11, 13, **(SIZES | given))  # type: ignore[arg-type]
