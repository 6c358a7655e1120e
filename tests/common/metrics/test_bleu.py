import inspect
import math

import numpy as np
import pytest
import sacrebleu

from common.metrics import bleu, chrf

HYPOTHESES = ["the cat sat on the mat .", "we went home by train", "a small dog"]
REFERENCES = ["the cat sat on a mat .", "we went home by the train", "one small dog barked"]
BOTH = pytest.mark.parametrize("score", [chrf, lambda **kw: bleu(**kw, tokenize="13a")], ids=["chrf", "bleu"])


def test_bleu_by_hand():
    """n-gram matches 6/7, 4/6, 2/5, 1/4 at equal length."""
    score = bleu(hypotheses=HYPOTHESES[:1], references=[REFERENCES[:1]], tokenize="none")
    assert score.value == pytest.approx(100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)
    assert score.statistics.tolist() == [[7, 7, 6, 4, 2, 1, 7, 6, 5, 4]]


def test_bleu_of_a_corpus_is_of_its_summed_counts():
    """Counted by hand: matches 13/15, 8/12, 4/9, 2/6; 15 words against 17. Not the mean over sentences."""
    score = bleu(hypotheses=HYPOTHESES, references=[REFERENCES], tokenize="none")
    expected = 100 * math.exp(1 - 17 / 15) * (13 / 15 * 8 / 12 * 4 / 9 * 2 / 6) ** 0.25
    assert score.statistics.sum(axis=0).tolist() == [15, 17, 13, 8, 4, 2, 15, 12, 9, 6]
    assert score.value == pytest.approx(expected)
    assert score.statistics.shape == (3, 10) and score.statistics.dtype == np.int64


@pytest.mark.parametrize("tokenize", ["none", "13a"])
def test_bleu_and_its_signature_are_sacrebleus(tokenize):
    hypotheses = ["Hello, world!", "It's (really) 3.5% better."]
    references = ["Hello world!", "It's really 3.5 % better."]
    score = bleu(hypotheses=hypotheses, references=[references], tokenize=tokenize)
    assert score.value == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize).score)
    assert score.signature == f"nrefs:1|case:mixed|eff:no|tok:{tokenize}|smooth:exp|version:{sacrebleu.__version__}"


def test_a_short_sentence_is_smoothed_in_one_place():
    """Three tokens have no 4-gram, and without effective order a corpus of them scores 0."""
    assert bleu(hypotheses=["a b c"], references=[["a b c"]], tokenize="none").value == 0


def test_two_references_take_the_best_match():
    score = bleu(hypotheses=["a b c d"], references=[["x x x x"], ["a b c d"]], tokenize="none")
    assert score.value == pytest.approx(100) and score.signature.startswith("nrefs:2")


def test_chrf_is_a_percentage():
    score = chrf(hypotheses=["a perfect line"], references=[["a perfect line"]])
    assert score.value == pytest.approx(100.0)
    assert score.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_chrf_by_hand():
    """abcd / abxd: matches 3/4 of characters, 1/3 of bigrams, 0/2, 0/1; precision = recall = F."""
    score = chrf(hypotheses=["abcd"], references=[["abxd"]])
    assert score.value == pytest.approx(100 * (3 / 4 + 1 / 3) / 4)
    assert score.statistics.reshape(6, 3)[:, 2].tolist() == [3, 1, 0, 0, 0, 0]


@BOTH
def test_swapping_the_sides_changes_the_score(score):
    hypotheses = [" ".join(f"w{i}" for i in range(32))]
    references = [" ".join(f"w{i}" for i in range(33))]
    right = score(hypotheses=hypotheses, references=[references]).value
    swapped = score(hypotheses=references, references=[hypotheses]).value
    assert right < swapped < 100 or swapped < right < 100


@pytest.mark.parametrize("score", [bleu, chrf])
def test_the_sides_go_by_name(score):
    parameters = inspect.signature(score).parameters.values()
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters) and len(parameters) >= 2


def test_short_output_pays_the_brevity_penalty():
    words = [f"w{i}" for i in range(100)]
    score = bleu(hypotheses=[" ".join(words[:97])], references=[[" ".join(words)]], tokenize="none")
    assert score.value == pytest.approx(100 * math.exp(1 - 100 / 97))


@BOTH
def test_every_sentence_is_scored(score):
    assert len(score(hypotheses=HYPOTHESES, references=[REFERENCES]).statistics) == 3
    with pytest.raises(ValueError, match=r"got 3 hypotheses and 3 streams of lengths \[1\]"):
        score(hypotheses=HYPOTHESES, references=[[r] for r in REFERENCES])
    with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
        score(hypotheses=HYPOTHESES, references=[REFERENCES, REFERENCES[:2]])
    with pytest.raises(ValueError, match="string"):
        score(hypotheses=HYPOTHESES, references=REFERENCES)
    with pytest.raises(ValueError, match="string"):
        score(hypotheses=HYPOTHESES[0], references=[REFERENCES])
    with pytest.raises(ValueError, match="got 0 hypotheses"):
        score(hypotheses=[], references=[[]])


@BOTH
@pytest.mark.parametrize("line", ["the lo@@ west", "lowe@@", "\u2581the \u2581low est", "the low ##est"])
def test_subword_pieces_are_refused_on_either_side(score, line):
    with pytest.raises(ValueError, match="hypothesis 1 .*subword"):
        score(hypotheses=["fine", line], references=[["fine", "the lowest"]])
    with pytest.raises(ValueError, match="reference 1 .*subword"):
        score(hypotheses=["fine", "the lowest"], references=[["fine", line]])


def test_why_pieces_are_refused_joining_lowers_the_score():
    pieces = (["the low@@ est of all the new@@ er ones"], ["the low@@ est of all our new@@ er ones"])
    joined = [[line.replace("@@ ", "") for line in side] for side in pieces]
    of_pieces = sacrebleu.corpus_bleu(pieces[0], [pieces[1]], tokenize="none").score
    assert bleu(hypotheses=joined[0], references=[joined[1]], tokenize="none").value < of_pieces


@BOTH
@pytest.mark.parametrize("escape", ["it &apos;s", "&quot; ok &quot;", "AT &amp; T", "&#91; 1 &#93;"])
def test_escaped_output_is_refused(score, escape):
    with pytest.raises(ValueError, match="1 of 2 hypotheses hold Moses escapes"):
        score(hypotheses=["fine", escape], references=[["fine", "clean"]])


def test_a_rare_literal_entity_is_text():
    lines = ["an ordinary line of text"] * 199 + ["write &amp; in HTML"]
    assert bleu(hypotheses=lines, references=[lines], tokenize="none").value == pytest.approx(100)


def test_signs_that_only_look_like_marks_are_text():
    lines = ["mail me@@home or a @-@ b, R & D &c; #1 and ## two"]
    assert bleu(hypotheses=lines, references=[lines], tokenize="none").value == pytest.approx(100)


def test_an_empty_hypothesis_counts():
    score = bleu(hypotheses=["", "a b c d"], references=[["a b c d", "a b c d"]], tokenize="none")
    assert score.value == pytest.approx(100 * math.exp(1 - 8 / 4))
