"""Claims that hold exactly, or not: what each says, computed, beside what it may be. Seconds on any machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from reproductions.field_guide.exact.value import Unavailable, Value

WHERE = "exact"


@dataclass(frozen=True)
class Exact:
    """checks: row -> `<module>.<function>` of this folder, which gives the values that a claim consists of.

    Quantities of each row: `failed`, how many of its values are outside of what they may be, and `checked`, how many there
    are; `value` by name, as found. A check that needs what is not installed is refused with the reason.
    """

    checks: Mapping[str, str]

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        return {row: samples(name, seed) for row, name in self.checks.items()}


def samples(name: str, seed: int) -> dict[str, Any]:
    """Of one check."""
    try:
        values = run(name, seed)
    except Unavailable as reason:
        refused = {WHERE: str(reason)}
        return {quantity: {"unit": "values", "at": {}, "refused": refused} for quantity in ("failed", "checked")}
    for value in values:
        if not value.holds:
            print(f"{name}: {value}", flush=True)
    return {
        "failed": _count(sum(not value.holds for value in values)),
        "checked": _count(len(values)),
        "value": {"unit": "", "at": {value.name: [value.found] for value in values}, "refused": {}},
    }


def run(name: str, seed: int) -> list[Value]:
    """The values of a check, all of different names."""
    module, function = name.split(".")
    # spelt out: what is imported so counts as source of a result (data.code)
    check = getattr(import_module(f"reproductions.field_guide.exact.{module}"), function)
    values = list(check(torch.Generator().manual_seed(seed)))
    names = [value.name for value in values]
    assert values and len(set(names)) == len(names), (name, names)
    return values


def _count(number: int) -> dict[str, Any]:
    return {"unit": "values", "at": {WHERE: [number]}, "refused": {}}
