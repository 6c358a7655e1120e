"""Subword vocabularies by sentencepiece, trained on words with their counts, for text that is tokenised already.

The model works inside Moses words: a piece never crosses their borders, so lengths in words, and BLEU on words, mean the
same for rows of words and rows of subwords. Training is in one thread and in a fixed order: the same counts give the
same bytes.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from data.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocab

START = "\N{LOWER ONE EIGHTH BLOCK}"
"""Stands before a piece that begins a word."""
RESERVED = f"{START}\N{LOWER FIVE EIGHTHS BLOCK}\0"
"""Characters that sentencepiece has uses of its own for."""
STAND_INS = "\N{EN SPACE}\N{EM SPACE}\N{THREE-PER-EM SPACE}"
"""White space, which no word has in it, takes their place."""
HIDE, SHOW = str.maketrans(RESERVED, STAND_INS), str.maketrans(STAND_INS, RESERVED)


@dataclass(frozen=True)
class Subword:
    """Settings. `size`: pieces, the four special ids not counted; `shared`: one vocabulary for both sides."""

    kind: Literal["bpe", "unigram"]
    size: int
    shared: bool

    def __post_init__(self) -> None:
        if self.kind not in ("bpe", "unigram") or self.size < 1:
            raise ValueError(f"data.subword: got {self.size} of kind {self.kind}, expected some of bpe or unigram")

    def __str__(self) -> str:
        return f"{self.size:,} {self.kind} subwords{', shared by both sides' if self.shared else ' a side'}"


def train_model(counts: Mapping[str, int], settings: Subword) -> bytes:
    """A sentencepiece model of `settings.size` pieces and the four special ids, from words and how often each occurs.

    Every character of the words is a piece. Raises ValueError if the words have more characters or fewer pieces.
    """
    if empty := [word for word in counts if not word or any(char.isspace() for char in word)]:
        raise ValueError(f"got the word {empty[0]!r}, expected words without white space")
    characters = {char for word in counts for char in word.translate(HIDE)}
    if settings.size <= len(characters):
        raise ValueError(
            f"data.subword.size: got {settings.size}, expected more than the {len(characters)} characters of the training "
            "text: each is a piece, and so is the mark of a word's start"
        )
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word.translate(HIDE)}\t{counts[word]}" for word in sorted(counts)),
            model_writer=model,
            input_format="tsv",
            model_type=settings.kind,
            vocab_size=len(SPECIALS) + settings.size,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            # Names with white space in them: no word is one, and no piece becomes one.
            pad_piece=f" {SPECIALS[PAD]} ",
            bos_piece=f" {SPECIALS[BOS]} ",
            eos_piece=f" {SPECIALS[EOS]} ",
            unk_piece=f" {SPECIALS[UNK]} ",
            # Coverage is a sum in single precision, which reaches 1 before the rare characters of large texts. The mark of
            # a word's start must not be among those required: with it they would reach 1 as well.
            required_chars="".join(sorted(characters)),
            character_coverage=1.0,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=1 << 20,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:  # its message is of C++, with the largest size at its end
        raise ValueError(
            f"data.subword.size: got {settings.size}, more pieces than the {len(counts):,} different words of the training "
            f"text make ({str(error).rpartition('] ')[2]} Four of these are the special ids.)"
        ) from None
    assert characters < set(Subwords.of(model.getvalue()).words), "a character is no piece"
    return model.getvalue()


@dataclass(frozen=True)
class Subwords(Vocab):
    """`words[i]`, with id i + 4, is a piece; one that begins a word starts with `START`.

    A character that the training text lacks is UNK. Words whose characters are all known come back as they were.
    """

    processor: SentencePieceProcessor = field(repr=False, compare=False)

    @classmethod
    def of(cls, model: bytes) -> Self:
        """Raises ValueError if the special ids of the model are not those of the project."""
        processor = SentencePieceProcessor(model_proto=model)
        ids = processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()
        if ids != (PAD, BOS, EOS, UNK):
            raise ValueError(f"got special ids {ids}, expected {(PAD, BOS, EOS, UNK)} for padding, start, end, unknown")
        pieces = (processor.id_to_piece(i) for i in range(len(SPECIALS), processor.get_piece_size()))
        return cls(tuple(pieces), processor)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the pieces of the words, one word after the other; neither BOS nor EOS is added."""
        return [i for word in tokens for i in self.processor.encode(word.translate(HIDE))]

    def split(self, tokens: Iterable[str]) -> list[str]:
        """The pieces of the words, one for each id of `encode`; unknown characters as themselves."""
        return [piece for word in tokens for piece in self.processor.encode(word.translate(HIDE), out_type=str)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words that the pieces make. UNK is a character of its word, any other special id a word by itself."""
        marks = {i: f"{START}{text}{START}" for i, text in enumerate(SPECIALS)} | {UNK: SPECIALS[UNK]}
        text = "".join(marks[i] if i in marks else self.words[i - len(SPECIALS)] for i in ids)
        return [word.translate(SHOW) for word in text.split(START) if word]
