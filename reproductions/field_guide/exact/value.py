"""What a check finds."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor


class Unavailable(Exception):
    """A check needs what this machine does not have; the message says what."""


@dataclass(frozen=True)
class Value:
    """A number that a claim speaks of: as found, and from where to where it may lie. One that is not a number fails."""

    name: str
    found: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= self.found <= self.high

    def __str__(self) -> str:
        return f"{self.name}: found {self.found:g}, expected {self.low:g} to {self.high:g}"


def number(found: float | Tensor) -> float:
    return float(found.detach()) if isinstance(found, Tensor) else float(found)


def about(name: str, found: float | Tensor, expected: float, within: float = 0.0) -> Value:
    return Value(name, number(found), expected - within, expected + within)


def at_most(name: str, found: float | Tensor, most: float) -> Value:
    return Value(name, number(found), -inf, most)


def at_least(name: str, found: float | Tensor, least: float) -> Value:
    return Value(name, number(found), least, inf)


def same(name: str, found: Tensor, expected: Tensor, within: float) -> Value:
    """The largest difference of two tensors; not a number where their shapes differ."""
    alike = found.shape == expected.shape
    return at_most(name, (found - expected).abs().max() if alike else torch.nan, within)


def true(name: str, found: bool) -> Value:
    """1 where it holds."""
    return about(name, number(found), 1.0)
