"""Moses tokenisation through sacremoses, language aware (English possessives, French and Italian clitics)."""

import html
from collections.abc import Sequence
from functools import lru_cache

from sacremoses import MosesDetokenizer, MosesTokenizer

from data.text import is_blank


@lru_cache(maxsize=16)
def _tokenizer(language: str) -> MosesTokenizer:
    return MosesTokenizer(lang=language)


@lru_cache(maxsize=16)
def _detokenizer(language: str) -> MosesDetokenizer:
    return MosesDetokenizer(lang=language)


def tokenize(text: str, language: str) -> list[str]:
    """Moses tokens of `text`, as the paper's preprocessing: no lower-casing, no stemming, no split at hyphens.

    Nothing is escaped (`it 's`, not `it &apos;s`): escapes would only have to be undone before scoring.
    Blank text, see `data.text.is_blank`, gives no token.
    """
    if is_blank(text):
        return []
    return str(_tokenizer(language).tokenize(text, return_str=True, aggressive_dash_splits=False, escape=False)).split()


def detokenize(tokens: Sequence[str], language: str) -> str:
    """The tokens as readable text: punctuation attached, clitics joined. A literal `&amp;` stays as it is."""
    return str(_detokenizer(language).detokenize(list(tokens), unescape=False))


def unescape_once(text: str) -> str:
    """Undo one level of HTML escapes, for text that comes escaped (`&apos;`, `&#91;`): `&amp;amp;` gives `&amp;`."""
    return html.unescape(text)
