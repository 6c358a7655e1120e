"""Decoding: batched beam search over a model's step function."""

from common.decode.beam import beam_search
from common.decode.types import Hypothesis, Memory, State, StepModel

__all__ = ["Hypothesis", "Memory", "State", "StepModel", "beam_search"]
