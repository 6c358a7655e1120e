"""Unknown words of translations, replaced through a model's own attention (Luong et al. 2015, section 4.1)."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from common.decode.types import Hypothesis
from common.decode.unknown import Pair, learn_dictionary, replace_unknown
from common.lit.seq2seq import Seq2Seq
from data.pairs import Example
from data.translation import TranslationData
from data.vocab import SPECIALS, UNK
from reproductions.reading import read


def dictionary_of(module: Seq2Seq, data: TranslationData, pairs: int) -> dict[str, str] | None:
    """Translations of single words, from how the model reads `pairs` training pairs; None for one without attention.

    Which pairs does not depend on the seed, so that rows of a table learn from the same.
    """
    found = list(_aligned_pairs(module, data, pairs))
    return learn_dictionary(found) if found else None


def _aligned_pairs(module: Seq2Seq, data: TranslationData, pairs: int) -> Iterator[Pair]:
    examples = data.examples("train")
    rows = np.random.default_rng(0).permutation(len(examples))[:pairs]
    for i, weights in read(module, data, "train", np.sort(rows)):
        if examples[i].source_tokens:
            yield examples[i].source_tokens, examples[i].target_tokens, weights


def replace_words(
    example: Example, words: Sequence[str], hypothesis: Hypothesis, dictionary: Mapping[str, str]
) -> list[str]:
    """The words of a hypothesis, those that are unknown replaced."""
    if hypothesis.weights is None or not example.source_tokens:
        return list(words)
    return replace_unknown(words, example.source_tokens, hypothesis.weights, dictionary, SPECIALS[UNK])
