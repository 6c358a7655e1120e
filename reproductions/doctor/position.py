"""Whether a model of text knows the order of what it reads, and how it does on texts longer than those of its training."""

from math import exp
from typing import Any

import torch
from torch import Tensor

from common.lit.seq2seq import Seq2Seq
from common.lit.text import Classifier, MaskedLanguageModel
from common.lit.training import Trained
from data.language_modeling import ByteData
from reproductions.doctor.subject import Report, Subject
from reproductions.items import scored_items
from reproductions.stored import opened, prepared

ITEMS, LENGTH, BLOCKS = 4, 24, 16
BLIND = 1e-4
"""Change of the answer, over its size, below which the order made none."""
WORSE = 1.1
"""Times the perplexity at the length of training from which a longer text counts as not understood."""


def position(subject: Subject) -> Report:
    """Texts in another order; of a run of a language model of bytes also longer ones."""
    module = subject.best()
    if isinstance(module, Seq2Seq):
        raise ValueError(f"got a translator, {subject.config['row']}, expected a model of text")  # noqa: TRY004
    report = reordered(module, subject.made_up(ITEMS, min(LENGTH, subject.usual()[1])).tokens)
    if subject.run is None or not isinstance(subject.data, ByteData) or not subject.data.causal:
        report.lines.append("longer texts: not asked, which a finished run of a language model of bytes is")
        return report
    longer(str(subject.run), subject.data.eval_length, report)
    return report


@torch.no_grad()
def reordered(module: Trained, tokens: Tensor) -> Report:
    """tokens: int64 (B, T). Of all but the last position another order; of a classifier of all but the first."""
    length = tokens.shape[1]
    shuffle = torch.randperm(length - 1, generator=torch.Generator().manual_seed(0))
    order = torch.cat([shuffle, torch.tensor([length - 1])])
    if isinstance(module, Classifier):
        order = torch.cat([torch.tensor([0]), 1 + shuffle])
    said, moved = (_said(module, text) for text in (tokens, tokens[:, order]))
    change = ((moved - said).norm() / said.norm()).item()
    report = Report([f"another order of what it reads changes what it says by {change:.2g} of it"])
    if change < BLIND:
        report.faults.append("blind to the order: it says the same of the words in any order")
    return report


def _said(module: Trained, tokens: Tensor) -> Tensor:
    """At the last position, or of the whole text."""
    model, real = module.model, torch.ones_like(tokens, dtype=torch.bool)
    if isinstance(module, Classifier):
        return model(tokens, real, None, None).float()
    return (model(tokens, real) if isinstance(module, MaskedLanguageModel) else model(tokens))[:, -1].float()


def longer(run: str, trained: int, report: Report) -> None:
    """Perplexity a byte of the same text in sequences of once, twice and four times the length of training."""
    texts: dict[int, Any] = {
        n * trained: prepared(run, eval_length=n * trained, eval_step=n * trained) for n in (1, 2, 4)
    }
    module, base = opened(run, texts[trained]).module, 0.0
    for length, text in texts.items():
        try:
            records = scored_items(module, text, "test", BLOCKS)
        except ValueError as reason:
            report.lines.append(f"{length} tokens: refused: {reason}")
            continue
        perplexity = exp(sum(r["nll"] for r in records) / sum(r["targets"] for r in records))
        base = base or perplexity
        report.lines.append(
            f"{length} tokens: perplexity {perplexity:.2f}, {perplexity / base:.2f} times that of {trained}"
        )
        if perplexity > WORSE * base:
            report.faults.append(
                f"{length} tokens: perplexity {perplexity / base:.2f} times that of {trained}, its training"
            )
