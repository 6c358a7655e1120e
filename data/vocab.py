"""Word lists with ids, as the paper's shortlist of the most frequent words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")


@dataclass(frozen=True)
class Vocab:
    """`words[i]` has id i + 4; ids 0 to 3 are PAD, BOS, EOS and UNK.

    The specials are no words: a text that contains `</s>` literally gets an id of its own for it, or UNK.
    """

    words: tuple[str, ...]

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], size: int) -> Self:
        """The `size` words with the highest counts, the most frequent first, ties in the order of code points."""
        if size < 1:
            raise ValueError(f"vocabulary size: got {size}, expected at least 1 (the four special ids are not counted)")
        return cls(tuple(sorted(counts, key=lambda word: (-counts[word], word))[:size]))

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, start=len(SPECIALS))}

    def __len__(self) -> int:
        """Number of ids, the specials among them."""
        return len(SPECIALS) + len(self.words)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the tokens, UNK for a word outside the list; neither BOS nor EOS is added."""
        return [self.ids.get(token, UNK) for token in tokens]

    def split(self, tokens: Iterable[str]) -> list[str]:
        """What each id of `encode` stands for, as text: here the tokens themselves."""
        return list(tokens)

    def units(self, ids: Iterable[int]) -> list[str]:
        """The words of the ids, one for one; special ids give `<pad>`, `<s>`, `</s>` and `<unk>`."""
        return [SPECIALS[i] if i < len(SPECIALS) else self.words[i - len(SPECIALS)] for i in ids]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words that the ids make: here one for one, see `units`."""
        return self.units(ids)
