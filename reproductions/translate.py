"""python -m reproductions.translate run=runs/bahdanau/small/rnnsearch_50-s1 [beam=5] < text > translation

Translates standard input line by line with the weights that were tested. Blank lines stay blank, nothing is cut.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from common.lit.seq2seq import Seq2Seq
from data.text import map_nonblank, read_lines
from data.tokenize import detokenize, tokenize
from data.translation import TranslationData
from data.vocab import EOS, PAD
from reproductions.config import Decode
from reproductions.evaluate import search
from reproductions.stored import load

AT_A_TIME = 32


def translate(lines: Sequence[str], module: Seq2Seq, data: TranslationData, decode: Decode) -> list[str]:
    """A translation a line, in the order of the lines."""

    def batched(sentences: list[str]) -> list[str]:
        found: dict[int, str] = {}
        ids = [[*data.source_vocab.encode(tokenize(s, data.context.source_lang)), EOS] for s in sentences]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), AT_A_TIME):
            rows = order[start : start + AT_A_TIME]
            source = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[i]) for i in rows], True, PAD)
            mask = source != PAD
            best = search(module, source, mask, decode)
            for i, hypotheses in zip(rows, best, strict=True):
                words = data.target_vocab.decode(hypotheses[0].tokens)
                found[i] = detokenize(words, data.context.target_lang)
        return [found[i] for i in range(len(sentences))]

    return map_nonblank(lines, batched)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    try:
        if set(given) - {"run", "beam"} or "run" not in given:
            raise ValueError(f"got {' '.join(arguments) or 'nothing'}, expected run=FOLDER [beam=N]")
        module, data, config = load(Path(given["run"]))
        beam = {"beam": int(given["beam"])} if "beam" in given else {}
        decode = Decode(**config["decode"] | beam)
        lines = list(read_lines("/dev/stdin"))
        sys.stdout.write("".join(f"{line}\n" for line in translate(lines, module, data, decode)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
