"""python -m reproductions.translate run=runs/bahdanau/small/rnnsearch_50-s1 [key=value ...] < text > translation

Translates standard input with the weights that were tested, an ensemble's too: a line for a line, blank ones stay blank,
nothing is cut. What is done is written block by block, so that a line that can't be read, or Ctrl-C, costs its block alone.

    beam=N        hypotheses kept alive, the run's own unless given
    nbest=N       the N best, as lines "number ||| translation ||| score"; numbers count the lines of the text from 0
    output=json   a JSON object a line: the units of the source, and of each hypothesis its text, units, log_prob, score and
                  alignment: pairs source-target of units, each target unit with the source unit that it looks at the most
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from hydra.utils import instantiate
from pydantic import Field
from torch.nn.utils.rnn import pad_sequence

from common.decode.types import Hypothesis
from common.decode.unknown import aligned, replace_unknown
from common.lit.seq2seq import Seq2Seq
from data.text import map_nonblank, read_lines
from data.tokenize import detokenize, tokenize
from data.translation import TranslationData
from data.vocab import EOS, PAD, SPECIALS, UNK
from reproductions.config import TRANSLATION, Decode, Section, requested
from reproductions.evaluate import search
from reproductions.stored import configuration, load_module
from reproductions.unknown_words import dictionary_of

AT_A_TIME = 32
BLOCK = 8 * AT_A_TIME
"""Lines read before any is translated: those of about the same length go together."""


class Request(Section):
    """The command line."""

    run: Path
    beam: int | None = Field(None, gt=0)
    nbest: int = Field(1, gt=0)
    output: Literal["text", "json"] = "text"


@dataclass(frozen=True)
class Translation:
    """One hypothesis. units: words, or pieces of words; alignment: "0-0 1-2", source-target; empty without attention."""

    text: str
    units: list[str]
    log_prob: float
    score: float
    finished: bool
    alignment: str


@dataclass(frozen=True)
class Line:
    """A line and its translations, best first; blank: no units, and one translation without words."""

    source: list[str]
    hypotheses: list[Translation]


BLANK = Line([], [Translation("", [], 0.0, 0.0, True, "")])


class Translator:
    """A finished run, ready for lines of text."""

    def __init__(self, module: Seq2Seq, data: TranslationData, decode: Decode, n_best: int = 1) -> None:
        self.module, self.data, self.n_best = module, data, n_best
        self.decode = decode.model_copy(update={"beam": max(decode.beam, n_best)})
        replace = decode.unknown == "replace"
        self.dictionary = dictionary_of(module, data, decode.dictionary_pairs) if replace else None

    def __call__(self, lines: Sequence[str]) -> list[Line]:
        """One a line, in the order of the lines."""
        return map_nonblank(lines, self._translated, blank=BLANK)

    def _translated(self, sentences: list[str]) -> list[Line]:
        vocab, language = self.data.source_vocab, self.data.context.source_lang
        words = [tokenize(sentence, language) for sentence in sentences]
        ids = [torch.tensor([*vocab.encode(of_one), EOS]) for of_one in words]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        found: dict[int, Line] = {}
        for start in range(0, len(order), AT_A_TIME):
            rows = order[start : start + AT_A_TIME]
            source = pad_sequence([ids[i] for i in rows], batch_first=True, padding_value=PAD).to(self.module.device)
            best = search(self.module, source, source != PAD, self.decode, n_best=self.n_best)
            for i, hypotheses in zip(rows, best, strict=True):
                units = vocab.split(words[i])
                found[i] = Line(units, [self._translation(words[i], len(units), h) for h in hypotheses])
        return [found[i] for i in range(len(sentences))]

    def _translation(self, source: Sequence[str], pieces: int, hypothesis: Hypothesis) -> Translation:
        """source: its words; pieces: how many units they are."""
        vocab, weights = self.data.target_vocab, hypothesis.weights
        words, units = vocab.decode(hypothesis.tokens), vocab.units(hypothesis.tokens)
        if self.dictionary is not None and weights is not None:
            words = units = replace_unknown(units, source, weights, self.dictionary, SPECIALS[UNK])
        looks = [] if weights is None else aligned(weights, len(units), pieces)
        return Translation(
            text=detokenize(words, self.data.context.target_lang),
            units=units,
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            finished=hypothesis.finished,
            alignment=" ".join(f"{j}-{t}" for t, j in enumerate(looks)),
        )


def load(folder: Path) -> tuple[Seq2Seq, TranslationData, dict[str, Any]]:
    """Model, data (for its vocabularies) and configuration; an ensemble's model is made of its members' runs. Raises
    ValueError if it is no finished run, or one whose data or members are not those that it was tested with."""
    config = configuration(folder)
    if (target := config.get("task", {}).get("_target_")) != TRANSLATION:
        raise ValueError(f"{folder} is a run of {target}, expected a translation model ({TRANSLATION})")
    data: TranslationData = instantiate(config["data"])
    data.prepare()
    return cast(Seq2Seq, load_module(folder, data)), data, config


def shown(number: int, line: Line, request: Request) -> str:
    """What is written of a line."""
    if request.output == "json":
        return json.dumps(asdict(line), ensure_ascii=False) + "\n"
    if request.nbest == 1:
        return f"{line.hypotheses[0].text}\n"
    return "".join(f"{number} ||| {h.text} ||| {h.score:.4f}\n" for h in line.hypotheses)


def blocks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """The lines, up to size at a time. One that can't be read is met only when those before it are through."""
    block: list[str] = []
    try:
        for line in lines:
            block.append(line)
            if len(block) == size:
                yield block
                block = []
    except ValueError:
        if block:
            yield block
        raise
    if block:
        yield block


def write_whole(text: str) -> bool:
    """Writes to standard output, which Ctrl-C doesn't cut; returns whether it came meanwhile."""
    stopped: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: stopped.append(number))
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGINT, before)
    return bool(stopped) and before != signal.SIG_IGN


def main(argv: Sequence[str] | None = None) -> int:
    done = 0
    try:
        request = requested(Request, sys.argv[1:] if argv is None else argv)
        module, data, config = load(request.run)
        decode = Decode(**config["decode"] | ({"beam": request.beam} if request.beam else {}))
        translator = Translator(module, data, decode, request.nbest)
        size = 1 if sys.stdin.isatty() else BLOCK
        for block in blocks(read_lines("/dev/stdin"), size):
            lines = translator(block)
            text = "".join(shown(done + i, line, request) for i, line in enumerate(lines))
            stopped = write_whole(text)
            done += len(block)
            if stopped:
                raise KeyboardInterrupt
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted after {done} lines; the rest of the text begins at: tail -n +{done + 1}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # who reads has enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
