"""Counted training FLOPs against closed forms of the models' products."""

import pytest
from torch import nn

from common.nn.encoder_decoder import Transformer
from common.nn.multihead import MultiHead
from data.batch import made_up_batch
from reproductions.compose import job
from reproductions.flops import flops_per_token
from reproductions.job import as_module
from reproductions.luong.model import Luong

B, WORDS, VOCABULARY = 2, 5, 20
LENGTH = WORDS + 1  # the end mark counted, on both sides
PASSES = 3  # forward; backward with respect to what comes in, and to the weight
PER_PRODUCT = 2 * PASSES  # a multiply-add is two


def counted(model: nn.Module) -> float:
    config = job(("experiment=transformer/transformer_base", "scale=smoke"), None).config
    module = as_module(model, config, total=1, dev=1)
    found = flops_per_token(module, [made_up_batch(VOCABULARY, VOCABULARY, B, WORDS)] * 2)
    assert all(p.grad is None for p in model.parameters())
    return found


@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
def test_a_transformer(backend: str) -> None:
    """Per position of a side: four projections (cross attention has two on each side), two products with every key, the
    feed-forward network's two, and the logits."""
    n, d, ff = 2, 8, 24
    model = Transformer(VOCABULARY, VOCABULARY, layers=n, d_model=d, d_ff=ff, heads=2, backend=backend)
    attention = 4 * d * d + 2 * LENGTH * d
    multiply_adds = n * (attention + 2 * d * ff) + n * (2 * attention + 2 * d * ff) + VOCABULARY * d
    assert counted(model) == PER_PRODUCT * multiply_adds
    assert {part.backend for part in model.modules() if isinstance(part, MultiHead)} == {backend}


def test_stacked_lstms_with_input_feeding() -> None:
    """Per word of a side two layers of four gates from input and state; then the score and the context of every source
    word, W_a of the source, W_c and the logits. The recurrent products with a state of zeros, and what has no gradient to
    give (the first step's zeros), are the only ones that a closed form of all words would not meet: at most a step's."""
    h, e = 6, 4
    model = Luong(VOCABULARY, VOCABULARY, layers=2, hidden=h, embedding=e, attention="general", feed=True, reverse=True)
    encoder = 4 * h * (e + h) + 4 * h * 2 * h + h * h
    decoder = 4 * h * (e + h + h) + 4 * h * 2 * h + 2 * LENGTH * h + 2 * h * h + VOCABULARY * h
    expected = PER_PRODUCT * (encoder + decoder)
    assert expected * (1 - 1 / LENGTH) <= counted(model) <= expected
