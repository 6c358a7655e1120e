"""The shapes on the way through a model, up to where they don't fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from common.lit.training import Trained
from reproductions.doctor.subject import Report, Subject, named

ITEMS, LENGTH = 2, 12


def dims(subject: Subject) -> Report:
    """One made-up batch, forward."""
    module = subject.drawn()
    return walk(module, subject.made_up(ITEMS, min(LENGTH, subject.usual()[1])))


def walk(module: Trained, batch: Any) -> Report:
    report = Report()
    with _followed(module.model, module, report) as inside:
        try:
            module.nll(batch)
        except Exception as error:  # noqa: BLE001 - whatever does not fit: it is what is looked for
            part, given = inside[-1] if inside else (module, "")
            at = named(module, part) if part is not module else type(module).__name__
            report.faults.append(f"{at}, given {given}: {str(error).splitlines()[0]}")
    return report


@contextmanager
def _followed(model: nn.Module, module: nn.Module, report: Report) -> Iterator[list[tuple[nn.Module, str]]]:
    """A line for each part that is called; the list holds those that have not returned, the innermost last."""
    inside: list[tuple[nn.Module, str]] = []

    def enter(part: nn.Module, args: Any, kwargs: Any) -> None:
        inside.append((part, shapes((args, kwargs))))

    def leave(part: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        _, given = inside.pop()
        report.lines.append(f"{named(module, part)}: {given} -> {shapes(result)}")

    hooks = [
        hook
        for part in model.modules()
        for hook in (
            part.register_forward_pre_hook(enter, with_kwargs=True),
            part.register_forward_hook(leave, with_kwargs=True),
        )
    ]
    try:
        yield inside
    finally:
        for hook in hooks:
            hook.remove()


def shapes(tree: Any) -> str:
    found = [tuple(leaf.shape) for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    return ", ".join(map(str, found)) or "nothing"
