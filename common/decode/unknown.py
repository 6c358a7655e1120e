"""Unknown words of a translation, replaced after decoding (Luong et al. 2015b; Jean et al. 2015, section 3.3)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

Pair = tuple[Sequence[str], Sequence[str], Tensor]
"""Source words, target words, and weights (target words or more, source words or more) of the one on the other."""


def learn_dictionary(pairs: Iterable[Pair], least: int = 2) -> dict[str, str]:
    """For each source word the target word that most often looks at it the most, among those seen `least` times or more.

    Words are surface forms: those outside the vocabularies have their entries too. Ties go to the word met first.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source, target, weights in pairs:
        for word, j in zip(target, aligned(weights, len(target), len(source)), strict=True):
            counts[source[j]][word] += 1
    best = {word: found.most_common(1)[0] for word, found in counts.items()}
    return {word: translation for word, (translation, count) in best.items() if count >= least}


def replace_unknown(
    words: Sequence[str], source: Sequence[str], weights: Tensor, dictionary: Mapping[str, str], unknown: str
) -> list[str]:
    """`words` with each `unknown` replaced by its source word's entry in the dictionary, or by that word itself."""
    if unknown not in words:
        return list(words)
    at = aligned(weights, len(words), len(source))
    return [
        dictionary.get(source[j], source[j]) if word == unknown else word for word, j in zip(words, at, strict=True)
    ]


def aligned(weights: Tensor, target: int, source: int) -> list[int]:
    """The source word that each target word looks at the most; the end mark behind the words is none."""
    assert source > 0, "a source without words has no translation"
    return weights[:target, :source].argmax(-1).tolist()
