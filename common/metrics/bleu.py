"""BLEU and chrF of whole test sets, by sacreBLEU. Arguments go by name: swapped streams would score without a word."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from common.metrics.score import Score

SUBWORD = re.compile(r"@@(?=\s|$)|(?:^|\s)##\w|\N{LOWER ONE EIGHTH BLOCK}")
MOSES_ESCAPE = re.compile(r"&(?:apos|quot|amp|lt|gt|#91|#93|#124);")
COMPOUND = re.compile(r"(\S)-(\S)")
ESCAPED_SHARE = 0.01
"""Of the lines; a few literal ones can be real text (of the web), escaped output has them everywhere."""


def bleu(
    *,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: Literal["none", "13a", "intl"],
    lowercase: bool = False,
    smooth: Literal["exp", "none"] = "exp",
    compounds: Literal["whole", "split"] = "whole",
) -> Score:
    """Corpus BLEU, 0-100 (Papineni et al., 2002).

    Args:
        references: streams, each with one line a hypothesis: `[reference_lines]` for a single reference.
        tokenize: "none" scores text as tokenised by the caller, as papers did with multi-bleu.perl; "13a" and "intl" take
            detokenised text, and "13a" is what is meant by "sacreBLEU". No two of them are comparable.
        smooth: "exp" as sacreBLEU; "none" as multi-bleu.perl, 0 where some order has no match. They differ nowhere else.
        compounds: "split" also scores the parts of compounds with a hyphen, see `split_compounds`.

    Returns:
        statistics (sentences, 10): length of hypothesis and reference, matches of 1- to 4-grams, counts of 1- to 4-grams.

    Raises:
        ValueError: if streams differ in length, or lines hold subword pieces or Moses escapes (see `check_text`); for
            compounds split in text that is not tokenised.
    """
    check_text(hypotheses, references)
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smooth, effective_order=False, force=True)
    if compounds == "whole":
        return _score(metric, hypotheses, references)
    if tokenize != "none":
        raise ValueError(f"compounds are split in tokenised text alone: expected tokenize='none', got {tokenize!r}")
    score = _score(metric, split_compounds(hypotheses), [split_compounds(stream) for stream in references])
    return replace(score, signature=f"{score.signature}|compounds:split")


def split_compounds(lines: Sequence[str]) -> list[str]:
    """`rich-text` as `rich ##AT##-##AT## text`: how English to German was scored from GNMT to the Transformer.

    The rule is one substitution from left to right, so that of `a-b-c`, whose middle is a single character, `b-c` stays.
    """
    return [COMPOUND.sub(r"\1 ##AT##-##AT## \2", line) for line in lines]


def chrf(*, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus chrF2, 0-100, of detokenised text (Popovic, 2015): character 1- to 6-grams, no word n-grams, beta 2.

    Returns:
        statistics (sentences, 18): for each order the n-grams of the hypothesis, of the reference, and the matches.

    Raises:
        ValueError: as `bleu`.
    """
    check_text(hypotheses, references)
    return _score(CHRF(char_order=6, word_order=0, beta=2), hypotheses, references)


def check_text(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse what would give a number that means something else.

    Raises:
        ValueError: no sentences; a string where a list of them is due; streams of different lengths; subword pieces
            ("lo@@ wer", sentencepiece's or WordPiece's marks) on either side; more than 1% of the hypotheses with Moses
            escapes ("&apos;").
    """
    if isinstance(hypotheses, str) or isinstance(references, str) or any(isinstance(r, str) for r in references):
        raise ValueError("need a list of hypotheses and a list of reference streams: references=[lines], got a string")
    lengths = [len(stream) for stream in references]
    if not hypotheses or not references or any(n != len(hypotheses) for n in lengths):
        raise ValueError(
            f"every reference stream needs one line a hypothesis: got {len(hypotheses)} hypotheses and "
            f"{len(references)} streams of lengths {sorted(set(lengths))}; one reference a sentence is references=[lines]"
        )
    for side, lines in [("hypothesis", hypotheses), *(("reference", stream) for stream in references)]:
        for number, line in enumerate(lines):
            if mark := SUBWORD.search(line):
                raise ValueError(
                    f"{side} {number} holds the subword mark {mark.group().strip()!r}: join pieces to words before "
                    f"scoring; got {line!r}"
                )
    escaped = [line for line in hypotheses if MOSES_ESCAPE.search(line)]
    if len(escaped) > ESCAPED_SHARE * len(hypotheses):
        raise ValueError(
            f"{len(escaped)} of {len(hypotheses)} hypotheses hold Moses escapes: unescape them once before scoring; "
            f"got {escaped[0]!r}"
        )


def _score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    # sacreBLEU has no public call for the statistics of a sentence; its version is bounded for this.
    statistics = metric._extract_corpus_statistics(hypotheses, references)
    value = metric._aggregate_and_compute(statistics).score
    return Score(value, str(metric.get_signature()), np.array(statistics, dtype=np.int64))
