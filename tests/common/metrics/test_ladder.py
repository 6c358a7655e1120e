"""The ladder, each rung against an independent computation."""

import inspect
import math
from collections import Counter

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from common.metrics import bleu, ladder
from common.metrics.bleu import split_compounds
from common.report.measures import METRICS, SCORERS
from common.report.tables import LADDER, STORED

PLAIN = {
    "hypotheses": ["The state-of-the-art system isn't a $5.50 e-mail client.", "It was GREAT, really!", "10 % off"],
    "references": ["the state-of-the-art System isn't a $5.50 mail client!", "It was great, really.", "10 % of it"],
}
TOKENS = {
    "hypotheses_tok": [
        "The state-of-the-art system isn 't a $ 5.50 e-mail client .",
        "It was GREAT , really !",
        "10 % off",
    ],
    "references_tok": [
        "the state-of-the-art System isn 't a $ 5.50 mail client !",
        "It was great , really .",
        "10 % of it",
    ],
}
SCORES = ladder(**PLAIN, **TOKENS)


def counted(hypotheses: list[str], references: list[str]) -> tuple[list[int], float]:
    """multi-bleu.perl's formula, written anew: the ten sums, and 0 where some order has no match."""
    sums = [0] * 10
    for hypothesis, reference in zip(map(str.split, hypotheses), map(str.split, references), strict=True):
        sums[0] += len(hypothesis)
        sums[1] += len(reference)
        for n in range(1, 5):
            ours, theirs = (
                Counter(zip(*(side[i:] for i in range(n)), strict=False)) for side in (hypothesis, reference)
            )
            sums[1 + n] += (ours & theirs).total()
            sums[5 + n] += ours.total()
    if 0 in sums[2:6]:
        return sums, 0.0
    penalty = min(1.0, math.exp(1 - sums[1] / sums[0]))
    return sums, 100 * penalty * math.prod(sums[1 + n] / sums[5 + n] for n in range(1, 5)) ** 0.25


LINES = st.lists(st.sampled_from(["a", "b", "c", "d", "a-b", "x-y-z"]), max_size=9).map(" ".join)


@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6))
def test_multi_bleu_is_its_formula_and_compounds_are_split_on_both_sides(pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    scores = tokens_alone(hypotheses, references)
    for name, change in (("multi_bleu", lambda lines: lines), ("bleu_atat", split_compounds)):
        sums, value = counted(change(hypotheses), change(references))
        assert scores[name].statistics.sum(axis=0).tolist() == sums
        assert scores[name].value == pytest.approx(value)
    for name, score in scores.items():
        again = METRICS[name].score(score.statistics.sum(axis=0).astype(float))
        assert float(again) == pytest.approx(score.value, abs=1e-9), f"{name}, as the report computes it"


def tokens_alone(hypotheses: list[str], references: list[str]):
    return ladder(hypotheses=hypotheses, references=references, hypotheses_tok=hypotheses, references_tok=references)


def test_smoothing_is_all_that_sets_multi_bleu_apart():
    """Matches 3/4, 1/3, 0/2, 0/1: smoothed, the last two are 1/4 and 1/4."""
    scores = tokens_alone(["a b x d"], ["a b c d"])
    assert scores["multi_bleu"].value == 0
    assert scores["bleu"].value == pytest.approx(100 * (3 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** 0.25)
    scores = tokens_alone(["a b x d", "a b c d"], ["a b c d", "a b c d"])
    assert scores["multi_bleu"].value == pytest.approx(scores["bleu"].value) and scores["bleu"].value > 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a rich-text format", "a rich ##AT##-##AT## text format"),
        ("a - b -c d-", "a - b -c d-"),
        ("ein EU-Mitglied , UN-Charta", "ein EU ##AT##-##AT## Mitglied , UN ##AT##-##AT## Charta"),
        ("aa-bb-cc", "aa ##AT##-##AT## bb ##AT##-##AT## cc"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("x--y", "x ##AT##-##AT## -y"),
        ("", ""),
    ],
)
def test_compounds(line, expected):
    assert split_compounds([line]) == [expected]


def test_splitting_compounds_changes_a_score_by_hand():
    """`a b-c` against `a b-d`: 1 of 2 words; of `a b ##AT##-##AT## c` 3/4 words, then 2/3, 1/2, 0/1."""
    scores = tokens_alone(["a b-c"], ["a b-d"])
    assert scores["multi_bleu"].statistics.tolist() == [[2, 2, 1, 0, 0, 0, 2, 1, 0, 0]]
    assert scores["bleu_atat"].statistics.tolist() == [[4, 4, 3, 2, 1, 0, 4, 3, 2, 1]]


def test_plain_text_is_scored_by_sacrebleu_and_not_as_tokens():
    hypotheses, references = PLAIN["hypotheses"], [PLAIN["references"]]
    for name, settings in {
        "bleu_detok": {"tokenize": "13a"},
        "bleu_intl": {"tokenize": "intl"},
        "bleu_lc": {"tokenize": "13a", "lowercase": True},
    }.items():
        assert SCORES[name].value == pytest.approx(sacrebleu.corpus_bleu(hypotheses, references, **settings).score)
    assert SCORES["chrf"].value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, references).score)
    of_tokens = sacrebleu.corpus_bleu(TOKENS["hypotheses_tok"], [TOKENS["references_tok"]]).score
    assert SCORES["bleu_detok"].value != pytest.approx(of_tokens), "else the test could not fail"
    values = [SCORES[name].value for name in LADDER if name != "multi_bleu"]
    assert len({round(value, 6) for value in values}) == len(values), "every rung moves the number"


def test_signatures():
    version = f"version:{sacrebleu.__version__}"
    assert {name: score.signature for name, score in SCORES.items()} == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|{version}",
        "multi_bleu": f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|{version}",
        "bleu_atat": f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|{version}|compounds:split",
        "bleu_detok": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}",
        "bleu_intl": f"nrefs:1|case:mixed|eff:no|tok:intl|smooth:exp|{version}",
        "bleu_lc": f"nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}",
    }


def test_the_report_knows_every_rung():
    assert tuple(SCORES) == LADDER and set(STORED) <= set(LADDER)
    for name, score in SCORES.items():
        assert len(score.statistics) == 3
        about = METRICS[name]
        assert about.scorer in SCORERS
        assert (score.statistics == SCORES[about.statistic].statistics).all()


def test_the_sides_are_told_apart():
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in inspect.signature(ladder).parameters.values())
    for name, score in SCORES.items():
        if name != "chrf":
            hypothesis, reference = score.statistics[2, :2].tolist()
            assert (hypothesis, reference) == (3, 4), name
    assert SCORES["chrf"].statistics[2, :2].tolist() == [6, 7]


def test_compounds_in_plain_text_are_refused():
    with pytest.raises(ValueError, match="compounds are split in tokenised text alone"):
        bleu(hypotheses=["a"], references=[["a"]], tokenize="13a", compounds="split")


def test_pieces_are_refused_on_every_rung():
    with pytest.raises(ValueError, match="subword mark"):
        ladder(**PLAIN, **TOKENS | {"hypotheses_tok": ["lo@@ w", "", ""]})
