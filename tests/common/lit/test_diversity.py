"""The loss with a penalty on heads that give the same, from what the heads give in a call of our own."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from common.lit.text import LanguageModel
from common.nn.diversity import Diversity
from common.nn.long import LanguageModel as Model
from common.nn.sparse import Full
from common.optim import constant
from data.token_batch import TokenBatch

HEADS = 4


def module(**changes: Any) -> LanguageModel:
    torch.manual_seed(0)
    model = Model(9, 2, 8, HEADS, 16, attention=Full(backend="reference", causal=True), std=0.5).double()
    settings: dict[str, Any] = {"schedule": constant, "total_updates": 1, "clip_norm": 1.0, "dev_items": 1, "seed": 1}
    return LanguageModel(model, optimizer=torch.optim.SGD, **settings, **changes)


def batch() -> TokenBatch:
    tokens = torch.tensor([[1, 5, 3, 7, 2], [4, 4, 6, 8, 1]])
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    return TokenBatch.of(tokens, tokens.roll(-1, 1), everywhere, everywhere)


def mean_cosine(heads: Tensor) -> Tensor:
    """Of the outputs (B, T, H, D) of all pairs of heads, a head and itself among them (Li et al. 2018)."""
    pairs = [
        torch.cosine_similarity(heads[:, :, i], heads[:, :, j], dim=-1) for i, j in product(range(HEADS), repeat=2)
    ]
    return torch.stack(pairs).mean()


def test_the_penalty_is_the_mean_cosine_of_the_heads() -> None:
    plain, made = module(), module(penalty=Diversity("outputs", 0.25))
    given: list[Tensor] = []
    for block in plain.model.trunk.blocks:  # type: ignore[union-attr]
        block.attention.w_o.register_forward_pre_hook(
            lambda _, inputs: given.append(inputs[0].unflatten(-1, (HEADS, -1)))
        )
    nll, _ = plain.losses(batch())
    expected = nll + 0.25 * torch.stack([mean_cosine(heads) for heads in given]).mean()
    loss, of_targets = made.losses(batch())
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(of_targets, nll.detach())  # what is reported is the likelihood


def test_its_gradient_makes_heads_less_alike() -> None:
    made = module(penalty=Diversity("outputs", 1.0))

    def penalty() -> Tensor:
        loss, nll = made.losses(batch())
        return (loss - nll).detach().mean()

    before = penalty()
    loss, _ = made.losses(batch())
    (loss - made.likelihood(batch())[0]).mean().backward()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.grad is not None:
                parameter -= 0.05 * parameter.grad
    assert penalty() < before


def test_no_layer_to_watch() -> None:
    made = module(penalty=Diversity("something", 1.0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="what: got 'something', expected one of subspaces, positions, outputs"):
        made.losses(batch())


def test_a_weight_that_adds_nothing() -> None:
    with pytest.raises(ValueError, match="weight: got 0, expected more than 0"):
        Diversity("outputs", 0)
