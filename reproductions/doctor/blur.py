"""How sharp the attention of each head is and how alike heads are, trained and as drawn."""

import torch
from torch import Tensor, nn

from common.nn.diversity import copies, cosines, entropies, watched
from reproductions.doctor.subject import Report, Subject
from reproductions.job import build

SEQUENCES = 8
EVEN = 0.98
"""Entropy over its largest from which a head counts as reading evenly."""


def blur(subject: Subject) -> Report:
    """Of a run with full attention, on the longest sequences of its test text, some from all over it."""
    found = subject.opened()
    texts = [batch.tokens[batch.real.all(1)] for batch in found.data.eval_batches("test")]
    longest = max(tokens.shape[1] for tokens in texts)
    whole = torch.cat([tokens for tokens in texts if tokens.shape[1] == longest])
    chosen = torch.linspace(0, len(whole) - 1, min(SEQUENCES, len(whole))).long()
    return heads(found.module.model, build(subject.config, found.data).model.eval(), whole[chosen])


@torch.no_grad()
def heads(tested: nn.Module, drawn: nn.Module, tokens: Tensor) -> Report:
    """tokens: int64 (B, T)."""
    report = Report()
    for layer, (now, before) in enumerate(zip(measured(tested, tokens), measured(drawn, tokens), strict=True)):
        for head, (entropy, start) in enumerate(zip(now[0].tolist(), before[0].tolist(), strict=True)):
            report.lines.append(
                f"layer {layer}, head {head}: entropy {entropy:.3f} of its largest, {start:.3f} as drawn"
            )
            if entropy > EVEN:
                report.faults.append(f"layer {layer}, head {head}: reads evenly (entropy {entropy:.3f} of its largest)")
        report.faults += [
            f"layer {layer}: heads {i} and {j} look at the same ({now[1][i, j]:.3f})" for i, j in copies(now[1])
        ]
    return report


def measured(model: nn.Module, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of each layer the entropies (H,) and the cosines of the weights (H, H)."""
    with watched(model, "positions") as maps:
        model(tokens)
    length = tokens.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool)
    seen = seen.tril() if model.trunk.causal else seen  # pyright: ignore[reportAttributeAccessIssue]
    return [(entropies(layer.heads, seen), cosines(layer.heads)) for layer in maps]
