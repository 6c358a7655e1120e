import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.decode import Hypothesis, beam_search
from tests.common.decode.toy import (
    BOS,
    EOS,
    NEG_INF,
    PAD,
    UNK,
    Markov,
    Recurrent,
    exhaustive,
    markov_next,
    norm,
    plain_beam,
    random_table,
    table_of,
)

A, B, C = 3, 4, 5
WORDS = [A, B, C]
RULES = st.sampled_from(["power", "gnmt"])


def search(model, source=None, **kwargs) -> list[list[Hypothesis]]:
    """One blank sentence unless told otherwise; 6 columns, for Markov's attention over the words."""
    source = torch.full((1, 6), EOS) if source is None else source
    return beam_search(model, source, torch.ones_like(source, dtype=torch.bool), bos=BOS, eos=EOS, **kwargs)


def paths(hypotheses: list[Hypothesis]) -> list[tuple[int, ...]]:
    return [tuple(h.tokens) for h in hypotheses]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]), n=st.integers(1, 6), rule=RULES)
def test_a_wide_beam_finds_the_best_of_all_translations(seed, alpha, n, rule):
    table = random_table(seed, 6)
    expected = exhaustive(markov_next(table), WORDS, 4, alpha, n, rule)
    found = search(Markov(table), beam=150, max_len=4, length_penalty=alpha, length_rule=rule, n_best=n)[0]
    finished = [h for h in found if h.finished]
    assert paths(finished) == [path for path, _ in expected]
    assert [h.log_prob for h in finished] == pytest.approx([log_prob for _, log_prob in expected], abs=1e-5)
    assert [h.score for h in finished] == pytest.approx(
        [p / norm(len(h) + 1, alpha, rule) for h, p in expected], abs=1e-5
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 7),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    min_len=st.integers(0, 2),
    n=st.integers(1, 3),
    rule=RULES,
)
def test_stopping_early_loses_nothing(seed, beam, alpha, min_len, n, rule):
    """Equal to a search over plain lists that always runs to the limit."""
    n = min(n, beam)
    table = random_table(seed, 6, impossible=0.0)
    expected = plain_beam(markov_next(table), WORDS, beam, 7, alpha, n, min_len, rule)
    settings = {"length_penalty": alpha, "length_rule": rule, "n_best": n, "min_len": min_len}
    found = search(Markov(table), beam=beam, max_len=7, **settings)[0]
    assert paths([h for h in found if h.finished]) == [path for path, _ in expected]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("beam", [1, 3])
def test_state_follows_its_beam(seed, beam):
    """State in two tensors, reordered at each step, against recomputing every prefix from its first word."""
    model = Recurrent(seed, words=7)
    source = torch.tensor([5, 4, 6, EOS])
    expected = plain_beam(model.recompute(source), [3, 4, 5, 6], beam, 6, 1.0, beam)
    found = search(model, source.unsqueeze(0), beam=beam, max_len=6, length_penalty=1.0, n_best=beam)[0]
    finished = [h for h in found if h.finished]
    assert paths(finished) == [path for path, _ in expected]
    assert [h.log_prob for h in finished] == pytest.approx([log_prob for _, log_prob in expected], abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("size", [2, 6])
def test_a_sentence_does_not_depend_on_its_batch(size, alpha):
    """Lengths 1 (a blank line: EOS alone) to 6, with a length limit each."""
    model = Recurrent(3, words=9)
    sentences = [[*range(4, 3 + n), EOS] for n in range(1, 7)]
    settings = {"bos": BOS, "eos": EOS, "beam": 4, "n_best": 2, "length_penalty": alpha}
    alone, together = [], []
    for s in sentences:
        source = torch.tensor([s])
        alone += beam_search(model, source, source != PAD, max_len=2 * len(s), **settings)
    for start in range(0, 6, size):
        part = sentences[start : start + size]
        source = torch.tensor([s + [PAD] * (6 - len(s)) for s in part])
        together += beam_search(
            model, source, source != PAD, max_len=torch.tensor([2 * len(s) for s in part]), **settings
        )
    assert len({len(best[0].tokens) for best in alone}) > 2  # they do end at different steps
    for one, other in zip(alone, together, strict=True):
        assert paths(one) == paths(other)
        for h, g in zip(one, other, strict=True):
            assert h.finished == g.finished
            assert h.log_prob == pytest.approx(g.log_prob, abs=1e-5)
            assert h.weights is not None and g.weights is not None
            torch.testing.assert_close(h.weights, g.weights)


def test_a_longer_hypothesis_may_win_after_the_best_beam_has_ended():
    """A: -1.2 / 2 = -0.6. A B B: -2.0 / 4 = -0.5."""
    table = table_of(6, {BOS: {A: -0.2}, A: {EOS: -1.0, B: -1.2}, B: {C: -0.3}, C: {EOS: -0.3}})
    best = search(Markov(table), beam=2, max_len=8, length_penalty=1.0, n_best=2)[0]
    assert paths(best) == [(A, B, C), (A,)]
    assert [h.score for h in best] == pytest.approx([-0.5, -0.6])
    assert paths(search(Markov(table), beam=2, max_len=8)[0]) == [(A,)]  # -1.2 against -2.0


def test_the_length_rules_by_hand():
    """A ends with -1.2, of length 2 with its EOS; A B C with -2.0, of length 4. Power 1: -0.6 and -0.5, the longer wins.
    gnmt 1: -1.2 / (7 / 6) = -1.03 and -2.0 / (9 / 6) = -1.33, the shorter; gnmt 3: -0.76 and -0.59, the longer."""
    table = table_of(6, {BOS: {A: -0.2}, A: {EOS: -1.0, B: -1.2}, B: {C: -0.3}, C: {EOS: -0.3}})
    for alpha, winner, score in ((1.0, (A,), -1.2 * 6 / 7), (3.0, (A, B, C), -2.0 * (6 / 9) ** 3)):
        [best] = search(Markov(table), beam=2, max_len=8, length_penalty=alpha, length_rule="gnmt")[0]
        assert (tuple(best.tokens), best.score) == (winner, pytest.approx(score))
    [best] = search(Markov(table), beam=2, max_len=8, length_penalty=1.0, length_rule="power")[0]
    assert (tuple(best.tokens), best.score) == ((A, B, C), pytest.approx(-0.5))


def test_a_search_stops_as_soon_as_nothing_better_can_come():
    """A has ended with -0.5 after two steps. What goes on has -1.0: of length 8 it would have -1.0 * 6 / 13 = -0.46 by gnmt,
    less than -0.5 * 6 / 7 = -0.43; by power -1.0 / 8 is more than -0.5 / 2, up to the limit."""
    table = table_of(6, {BOS: {A: -0.2}, A: {EOS: -0.3, B: -0.8}, B: {B: -0.001}})
    for rule, steps in (("gnmt", 2), ("power", 8)):
        model = Markov(table)
        search(model, beam=2, max_len=8, length_penalty=1.0, length_rule=rule)
        assert len(model.batch_sizes) == steps


def test_the_n_best_are_the_best_and_not_the_first_to_end():
    table = table_of(6, {BOS: {EOS: -2.5, A: -0.5}, A: {EOS: -1.5, B: -0.2}, B: {EOS: -0.3}})
    best = search(Markov(table), beam=2, max_len=8, n_best=2)[0]
    assert paths(best) == [(A, B), (A,)]  # -1.0, -2.0; the empty one ended first with -2.5
    assert [h.log_prob for h in best] == pytest.approx([-1.0, -2.0])


def test_log_probs_are_summed_raw_and_normalised_once():
    table = table_of(6, {BOS: {A: -1.0}, A: {B: -1.0}, B: {EOS: -1.0}})
    [best] = search(Markov(table), max_len=8, length_penalty=1.0)[0]
    assert (best.log_prob, best.score) == (pytest.approx(-3.0), pytest.approx(-1.0))


@pytest.mark.parametrize("beam", [1, 5])
def test_an_ending_at_the_first_step(beam):
    table = table_of(6, {BOS: {EOS: -0.7, A: -1.0, B: -2.0}, A: {EOS: -0.1}, B: {EOS: -0.1}})
    [best] = search(Markov(table), beam=beam, max_len=8)[0]
    assert best.tokens == [] and best.finished and best.log_prob == pytest.approx(-0.7)
    assert best.weights is not None and best.weights.shape == (1, 6)
    [longer] = search(Markov(table), beam=beam, max_len=8, min_len=1)[0]
    assert longer.tokens == [A] and longer.log_prob == pytest.approx(-1.1)


def test_n_best_are_distinct_and_in_order():
    ends = {EOS: 0.0}
    table = table_of(6, {BOS: {A: -0.5, B: -1.5, C: -2.5}, A: ends, B: ends, C: ends})
    assert paths(search(Markov(table), beam=3, max_len=8, n_best=3)[0]) == [(A,), (B,), (C,)]


def test_a_beam_wider_than_the_vocabulary():
    table = table_of(6, {BOS: {A: -0.5, B: -1.5}, A: {EOS: 0.0}, B: {EOS: 0.0}})
    assert paths(search(Markov(table), beam=40, max_len=8, n_best=40)[0]) == [(A,), (B,)]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_forbidden_words_padding_and_bos_are_never_chosen(beam):
    following = {PAD: -0.1, BOS: -0.2, UNK: -0.3, B: -3.0, EOS: -4.0}
    table = table_of(6, {last: following for last in range(6)})
    for hypothesis in search(Markov(table), beam=beam, max_len=4, n_best=beam, forbid=[UNK])[0]:
        assert set(hypothesis.tokens) <= {B}
    allowed = search(Markov(table), beam=beam, max_len=4, n_best=beam)[0]
    assert any(UNK in h.tokens for h in allowed)


def test_at_the_limit_a_hypothesis_is_unfinished():
    """The limit counts EOS: of A B EOS, the second sentence gets no further than A B."""
    table = table_of(6, {BOS: {A: -0.5}, A: {B: -0.5}, B: {EOS: -0.5}})
    source = torch.full((2, 6), EOS)
    (full,), (cut,) = search(Markov(table), source, beam=2, max_len=torch.tensor([3, 2]), length_penalty=1.0)
    assert (full.tokens, full.finished, full.score) == ([A, B], True, pytest.approx(-0.5))
    assert (cut.tokens, cut.finished, cut.score) == ([A, B], False, pytest.approx(-0.5))
    assert full.weights is not None and full.weights.shape == (3, 6)
    assert cut.weights is not None and cut.weights.argmax(1).tolist() == [BOS, A]


def test_finished_hypotheses_come_before_better_unfinished_ones():
    table = table_of(6, {BOS: {A: -0.1, EOS: -3.0}, A: {A: -0.1}})
    best = search(Markov(table), beam=2, max_len=3, n_best=2)[0]
    assert [(h.tokens, h.finished) for h in best] == [([], True), ([A, A, A], False)]


def test_attention_belongs_to_the_chosen_path():
    """Markov attends to the word it reads: row t is one-hot at word t - 1, BOS first. Limits make sentences leave."""
    table = random_table(11, 6, impossible=0.0)
    source = torch.arange(30).view(5, 6)
    found = search(Markov(table), source, beam=6, n_best=6, max_len=torch.tensor([7, 2, 5, 3, 6]), length_penalty=1.0)
    assert [len(best) for best in found] == [6] * 5
    for hypothesis in (h for best in found for h in best):
        assert hypothesis.weights is not None and not hypothesis.weights.requires_grad
        read = [BOS, *hypothesis.tokens]
        assert hypothesis.weights.argmax(1).tolist() == (read if hypothesis.finished else read[:-1])


def test_sentences_leave_the_batch_when_they_are_over():
    table = table_of(6, {BOS: {A: -0.5}, A: {A: -0.5, EOS: -9.0}})
    model = Markov(table)
    search(model, torch.arange(18).view(3, 6), max_len=torch.tensor([4, 1, 2]))
    assert model.batch_sizes == [3, 2, 1, 1]


def test_no_gradient_is_kept():
    table = random_table(0, 6, impossible=0.0).requires_grad_()
    [best] = search(Markov(table), max_len=3)[0]
    assert best.weights is not None and not best.weights.requires_grad


def test_no_sentences():
    assert search(Markov(random_table(0, 6)), torch.zeros(0, 6, dtype=torch.int64), max_len=3) == []


@pytest.mark.parametrize(
    ("value", "message"), [(float("nan"), "at most 0, got nan"), (0.5, "log_softmax"), (NEG_INF, r"sentences \[0\]")]
)
def test_scores_that_are_no_log_probs_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        search(Markov(torch.full((1, 6, 6), value)), beam=2, max_len=3)


def test_state_without_a_beam_dimension_is_refused():
    class Layers(Markov):
        def begin(self, source, source_mask):
            memory, state = super().begin(source, source_mask)
            return memory, {**state, "cell": torch.zeros(2, len(source), 4)}

    with pytest.raises(ValueError, match=r"'cell' must be .* \(1, 1\) .* got \(2, 1, 4\)"):
        search(Layers(random_table(0, 6)), beam=2, max_len=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "beam 0"),
        ({"beam": 2, "n_best": 3}, "n_best 3, beam 2"),
        ({"length_penalty": -1.0}, "got -1.0"),
        ({"length_rule": "wu"}, "length_rule: got 'wu', expected one of power, gnmt"),
        ({"forbid": [EOS]}, "forbid"),
        ({"min_len": 3}, "min_len 3, max_len 3"),
        ({"max_len": torch.tensor([3, 3])}, r"got \(2,\)"),
    ],
)
def test_contradicting_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        search(Markov(random_table(0, 6)), **{"max_len": 3, **wrong})


def test_a_mask_of_another_kind_is_refused():
    source = torch.full((1, 3), EOS)
    with pytest.raises(ValueError, match="mask bool"):
        beam_search(Markov(random_table(0, 6)), source, source, bos=BOS, eos=EOS, max_len=3)
