"""The loss: a mean over real target tokens, whatever the padding; schedules; randomness by update."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common.lit.seq2seq import Seq2Seq
from common.lit.training import smoothed
from common.optim import constant, trapezoid
from data.batch import Seq2SeqBatch, shard

V = 7


class Table(torch.nn.Module):
    """Logits that depend on the last word alone, so that every nll can be read off a table."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.logits = torch.nn.Parameter(torch.randn(V, V))
        self.drop = torch.nn.Dropout(0.5)

    def forward(
        self, source: Any, source_mask: Any, target_in: torch.Tensor, target_mask: torch.Tensor
    ) -> torch.Tensor:
        return self.logits[target_in[target_mask]]


def module(**changes: Any) -> Seq2Seq:
    settings: dict[str, Any] = {
        "optimizer": torch.optim.SGD,
        "schedule": constant,
        "total_updates": 10,
        "clip_norm": 1.0,
        "dev_items": 3,
        "seed": 1,
    }
    made = Seq2Seq(Table(), **settings | changes)
    trainer = SimpleNamespace(world_size=1, accumulate_grad_batches=1, datamodule=SimpleNamespace(batch_done=int))
    made._trainer = trainer  # type: ignore[assignment]
    return made


def batch(width: int = 4) -> Seq2SeqBatch:
    """Three sentences of 3, 1 and 2 target tokens, padded to the given width."""
    target = torch.zeros(3, width, dtype=torch.long)
    for row, ids in enumerate([[4, 5, 2], [2], [6, 2]]):
        target[row, : len(ids)] = torch.tensor(ids)
    return Seq2SeqBatch.of(torch.full((3, 2), 2), target)


def by_hand(m: Seq2Seq) -> float:
    """BOS->4->5->EOS, BOS->EOS, BOS->6->EOS: six tokens."""
    log_p = m.model.logits.log_softmax(-1)  # type: ignore[union-attr, operator]
    pairs = [(1, 4), (4, 5), (5, 2), (1, 2), (1, 6), (6, 2)]
    return -sum(log_p[a, b].item() for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("width", [3, 4, 20])
def test_the_loss_is_a_mean_over_real_tokens_whatever_the_padding(width: int) -> None:
    m = module()
    out = m.training_step(batch(width), 0)
    assert out["loss"].item() == pytest.approx(by_hand(m), rel=1e-5)
    assert out["tokens"].item() == 6 and out["nll"].item() == pytest.approx(6 * by_hand(m), rel=1e-5)


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 3), (2, 2)])
def test_shares_of_a_batch_add_up_to_its_loss_and_gradient(world: int, accumulate: int) -> None:
    """Averaged over ranks and micro-batches, as DDP and Lightning do, though the shares hold unequal token counts."""
    whole = module()
    whole.training_step(batch(), 0)["loss"].backward()
    m = module()
    m.trainer.world_size, m.trainer.accumulate_grad_batches = world, accumulate  # type: ignore[misc]
    shares = world * accumulate
    losses = [m.training_step(shard(batch(), i, shares), i)["loss"] / shares for i in range(shares)]
    torch.stack(losses).sum().backward()
    assert sum(losses).item() == pytest.approx(by_hand(m), rel=1e-5)  # type: ignore[union-attr]
    torch.testing.assert_close(m.model.logits.grad, whole.model.logits.grad)


# Label smoothing


def test_smoothed_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/4, the right word the first, epsilon 0.3: it has 0.7 + 0.1, the others 0.1 each."""
    logits = torch.tensor([[2.0, 1.0, 1.0]]) * math.log(2) + 5
    loss, nll = smoothed(logits, torch.tensor([0]), 0.3)
    assert nll.item() == pytest.approx(math.log(2))
    assert loss.item() == pytest.approx(0.8 * math.log(2) + 2 * 0.1 * math.log(4))


def test_smoothed_as_torch() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(40, V, dtype=torch.float64, requires_grad=True), torch.randint(0, V, (40,))
    loss = smoothed(logits, target, 0.1)[0].sum()
    theirs = torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(each, logits)[0] for each in (loss, theirs)))


@pytest.mark.parametrize("width", [3, 20])
def test_smoothing_is_of_the_training_loss_alone_and_never_of_padding(width: int) -> None:
    """0.9 of the nll and 0.1 of the mean over all seven words, of six tokens, whatever the padding; every nll stays."""
    m, plain = module(label_smoothing=0.1), module()
    m.model.load_state_dict(plain.model.state_dict())
    out = m.training_step(batch(width), 0)
    log_p = m.model.logits.log_softmax(-1)  # type: ignore[union-attr, operator]
    read = [1, 4, 5, 1, 1, 6]
    uniform = -sum(log_p[word].mean().item() for word in read) / 6
    assert out["loss"].item() == pytest.approx(0.9 * by_hand(m) + 0.1 * uniform, rel=1e-5)
    assert out["nll"].item() == pytest.approx(6 * by_hand(m), rel=1e-5) and not out["nll"].requires_grad
    torch.testing.assert_close(m.item_nll(batch(width)), plain.item_nll(batch(width)))
    for model in (m, plain):
        model.validation_step(batch(width), 0)
        assert model.dev.compute()["nll_per_token"] == pytest.approx(by_hand(plain), rel=1e-5)


def test_no_target_no_loss() -> None:
    m = module(label_smoothing=0.1)
    empty = shard(batch(), 5, 6)
    assert not empty.target_mask.any()
    out = m.training_step(empty, 0)
    assert out["loss"].item() == out["nll"].item() == 0


@pytest.mark.parametrize("wrong", [-0.1, 1.0])
def test_a_smoothing_that_is_none(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"label_smoothing: got {wrong}, expected from 0 to below 1"):
        module(label_smoothing=wrong)


def test_sentence_nll_is_a_sum_per_sentence() -> None:
    m = module()
    nll, tokens = m.item_nll(batch(9))
    log_p = m.model.logits.log_softmax(-1)  # type: ignore[union-attr, operator]
    assert tokens.tolist() == [3, 1, 2]
    assert nll[2].item() == pytest.approx(-(log_p[1, 6] + log_p[6, 2]).item(), rel=1e-5)
    assert nll.sum().item() == pytest.approx(6 * by_hand(m), rel=1e-5)


def test_randomness_is_a_function_of_seed_and_update() -> None:
    def mask(seed: int, update: int) -> list[float]:
        m = module(seed=seed)
        m.trainer.global_rank = 0  # type: ignore[misc]
        torch.rand(seed + update)  # whatever happened before
        m.on_train_batch_start(batch(), update)
        return m.model.drop(torch.ones(64)).tolist()  # type: ignore[operator]

    assert mask(1, 3) == mask(1, 3)
    assert len({tuple(mask(seed, update)) for seed in (1, 2) for update in (0, 1, 2)}) == 6


def test_clipping_rescales_to_the_norm_and_no_further() -> None:
    m = module(clip_norm=0.5)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for scale, norm in ((3.0, 0.5), (0.1, 0.1)):
        m.model.logits.grad = torch.zeros(V, V)
        m.model.logits.grad[0, 0] = scale  # type: ignore[index]
        m.configure_gradient_clipping(optimizer)
        assert m.model.logits.grad.norm().item() == pytest.approx(norm, rel=1e-4)  # type: ignore[union-attr]


def test_trapezoid_by_hand() -> None:
    """11 updates, 2 of warm-up, full rate to the middle, then straight down to a tenth at the last."""
    rates = [trapezoid(u, 11, warmup=2, hold=0.5, final=0.1) for u in range(11)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.82, 0.64, 0.46, 0.28, 0.1])


def test_trapezoid_is_monotone_on_both_sides_and_never_zero() -> None:
    rates = [trapezoid(u, 500, warmup=50, hold=0.3, final=0.02) for u in range(500)]
    top = rates.index(1.0)
    assert rates[: top + 1] == sorted(rates[: top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[0] == 1 / 50 and math.isclose(rates[-1], 0.02)


def test_what_is_frozen_by_a_hook_is_not_sharded() -> None:
    """Shards are other tensors, without the hook: what it froze would be trained."""
    m = module()
    m._device_mesh = {"data_parallel": None}  # type: ignore[assignment]
    m.model.logits.register_hook(torch.zeros_like)  # type: ignore[union-attr, operator]
    with pytest.raises(ValueError, match="got fsdp, expected cpu, gpu or ddp where a part of logits is frozen"):
        m.configure_model()
