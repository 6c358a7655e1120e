"""Decoding: batched beam search over a model's step function."""

from common.decode.beam import beam_search
from common.decode.types import Hypothesis, Memory, Rows, State, StepModel

__all__ = ["Hypothesis", "Memory", "Rows", "State", "StepModel", "beam_search"]
