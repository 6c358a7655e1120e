"""Whether what a model says at a position hangs on what follows, by the gradient, part by part."""

from typing import Any

import torch
from torch import Tensor, nn

from common.lit.seq2seq import Seq2Seq
from common.lit.text import LanguageModel, MaskedLanguageModel
from common.lit.training import Trained
from reproductions.doctor.subject import Report, Subject, named

ITEMS, LENGTH = 2, 12


def causal(subject: Subject) -> Report:
    """Gradients of each part's output at some positions by the embeddings of all."""
    module = subject.best()
    return leaks(module, subject.made_up(ITEMS, min(LENGTH, subject.usual()[1])))


def leaks(module: Trained, batch: Any) -> Report:
    tokens = words_of(module, batch)
    if tokens is None:
        return Report([f"{type(module).__name__} sees both sides of a position, as it should: nothing to leak"])
    embedded, calls = _traced(module, batch, tokens)
    report = Report()
    for part, given, output in calls:
        found = leak(output, embedded)
        report.lines.append(f"{named(module, part)}: {found or 'hangs on nothing that follows'}")
        if found and not report.faults and not any(leak(one, embedded) for one in given):
            report.faults.append(f"{named(module, part)}: {found}, which nothing that it is given does")
    return report


def leak(output: Tensor, embedded: Tensor) -> str:
    """What a later embedding has to do with an earlier position, both (B, T, .), or nothing."""
    draw, length = torch.Generator().manual_seed(0), embedded.shape[1]
    for at in (0, length // 2, length - 2):
        # not the sum, which a normalisation keeps whatever it is given
        seen = (output[:, at] * torch.randn(output[:, at].shape, generator=draw)).sum()
        [by] = torch.autograd.grad(seen, embedded, retain_graph=True, allow_unused=True)
        if by is not None and (later := by[:, at + 1 :].abs().amax((0, 2)) > 0).any():
            return f"position {at} hangs on position {at + 1 + int(later.int().argmax())}"
    return ""


def words_of(module: Trained, batch: Any) -> Tensor | None:
    """Ids (B, T) of which each is to be said from those before; None where both sides are seen."""
    if isinstance(module, Seq2Seq):
        return batch.target_in
    return batch.tokens if isinstance(module, LanguageModel) and not isinstance(module, MaskedLanguageModel) else None


Call = tuple[nn.Module, list[Tensor], Tensor]
"""A part, what it is given and what it hands on, (B, T, .) each."""


def _traced(module: Trained, batch: Any, tokens: Tensor) -> tuple[Tensor, list[Call]]:
    """The embeddings of the ids, and calls of the parts that hang on them, in the order of returning."""
    embedded: list[Tensor] = []
    calls: list[Call] = []

    def laid_out(x: Any) -> Tensor | None:
        if isinstance(x, Tensor) and x.ndim == 2 and len(x) == tokens.numel():
            x = x.unflatten(0, tokens.shape)  # the real words of a translation, one after the other
        return x if isinstance(x, Tensor) and x.ndim > 2 and x.shape[:2] == tokens.shape else None

    def hook(part: nn.Module, args: Any, result: Any) -> Any:
        output = laid_out(result[0] if isinstance(result, tuple) else result)
        if output is None:
            return None
        if not embedded and args and args[0] is tokens:
            embedded.append(output.detach().requires_grad_())
            return embedded[0]
        if embedded and output.requires_grad:
            given = [x for one in args if (x := laid_out(one)) is not None and x.requires_grad]
            calls.append((part, given, output))
        return None

    for parameter in module.parameters():
        parameter.requires_grad_(False)  # so that only what hangs on the embeddings has a gradient
    hooks = [part.register_forward_hook(hook) for part in module.model.modules()]
    try:
        module.nll(batch)
    finally:
        for one in hooks:
            one.remove()
    if not calls:
        raise ValueError(f"{type(module.model).__name__}: no part takes the ids and hands on an embedding of each")
    return embedded[0], calls
