"""The same translations under every scorer that published numbers name: how far the scorer alone moves a number."""

from collections.abc import Sequence

from common.metrics.bleu import bleu, chrf
from common.metrics.score import Score


def ladder(
    *,
    hypotheses: Sequence[str],
    references: Sequence[str],
    hypotheses_tok: Sequence[str],
    references_tok: Sequence[str],
) -> dict[str, Score]:
    """Scores by name, from a single reference a sentence.

    - bleu: Moses tokens, smoothed as sacreBLEU does, so that resamples without a 4-gram have a score
    - multi_bleu: Moses tokens by multi-bleu.perl's formula, without smoothing
    - bleu_atat: multi_bleu after compounds are split at their hyphens
    - bleu_detok, bleu_intl: sacreBLEU of plain text under its tokenisers 13a (that of mteval-v13a) and intl
    - bleu_lc: bleu_detok of lower-cased text
    - chrf: chrF2 of plain text

    Args:
        hypotheses, references: plain text, a line a sentence.
        hypotheses_tok, references_tok: the same, as Moses tokens between single spaces.

    Raises:
        ValueError: as `common.metrics.bleu`.
    """
    tokens = {"hypotheses": hypotheses_tok, "references": [references_tok]}
    plain = {"hypotheses": hypotheses, "references": [references]}
    return {
        "bleu": bleu(**tokens, tokenize="none"),
        "multi_bleu": bleu(**tokens, tokenize="none", smooth="none"),
        "bleu_atat": bleu(**tokens, tokenize="none", smooth="none", compounds="split"),
        "bleu_detok": bleu(**plain, tokenize="13a"),
        "bleu_intl": bleu(**plain, tokenize="intl"),
        "bleu_lc": bleu(**plain, tokenize="13a", lowercase=True),
        "chrf": chrf(**plain),
    }
