"""Schedules against their closed forms, as the optimiser gets them."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.optim.lr_scheduler import LambdaLR

from common.optim import cosine, dropped, noam, rsqrt, staged

CONF = Path(__file__).parents[2] / "conf"


def rates(updates: int, d_model: int, warmup: int, lr: float = 1.0) -> list[float]:
    """The rates with which an optimiser takes its updates."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight], lr=lr)
    schedule = LambdaLR(optimizer, lambda update: noam(update, updates, d_model=d_model, warmup=warmup))
    used = []
    for _ in range(updates):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return used


def test_noam_of_the_base_model() -> None:
    """512^-0.5 / 4000^1.5 = 1 / (22.627 * 252,982) = 1.7469e-7 at the first update, that times n at the n-th up to the
    4000th, 512^-0.5 / 4000^0.5 = 6.9877e-4; from there with the root: half of it at the 16,000th."""
    used = rates(16000, 512, 4000)
    for update, rate in ((1, 1.7469e-7), (2, 2 * 1.7469e-7), (3999, 3999 * 1.7469e-7), (4000, 6.9877e-4)):
        assert used[update - 1] == pytest.approx(rate, rel=1e-4)
    assert used[16000 - 1] == pytest.approx(6.9877e-4 / 2, rel=1e-4)
    assert used.index(max(used)) == 4000 - 1 and min(used) == used[0] > 0


def test_noam_scales_with_the_model_and_with_the_rate_given() -> None:
    """Twice the rate; four times the width, half the rate: exact powers of two."""
    plain = rates(20, 64, 5)
    assert rates(20, 64, 5, lr=2.0) == pytest.approx([2 * rate for rate in plain])
    assert rates(20, 256, 5) == pytest.approx([rate / 2 for rate in plain])
    assert plain[:6] == pytest.approx([n / 8 / 5**1.5 for n in range(1, 6)] + [1 / 8 / 6**0.5])


def test_noam_from_its_file() -> None:
    config = OmegaConf.create({"model": {"d_model": 256}, "optim": OmegaConf.load(CONF / "optim" / "noam.yaml")})
    optimizer = instantiate(config.optim.optimizer)([torch.nn.Parameter(torch.zeros(1))])
    schedule = instantiate(config.optim.schedule)
    assert isinstance(optimizer, torch.optim.Adam)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (1.0, (0.9, 0.98), 1e-9)
    assert schedule(0, 10) == pytest.approx(1 / 16 / 4000**1.5)
    assert config.optim.label_smoothing == 0.1
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.full((1,), 1e6)
    torch.nn.utils.clip_grad_norm_([weight], config.optim.clip_norm)
    assert weight.grad.item() == 1e6


def test_stages_halve_the_rate_and_warm_up_in_each() -> None:
    """Shares of a half, a quarter and a quarter of 80 updates: 40, 20 and 20; a tenth of them, 4, 2 and 2, is warm-up."""
    factors = [staged(update, 80, shares=(0.5, 0.25, 0.25), warmup=0.1, longest=100) for update in range(80)]
    assert factors[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert factors[39:43] == pytest.approx([1.0, 0.25, 0.5, 0.5])
    assert factors[59:62] == pytest.approx([0.5, 0.125, 0.25]) and factors[-1] == 0.25


def test_the_warm_up_of_a_stage_has_a_longest_length() -> None:
    """A tenth of 1000 updates would be 100: after 10 the rate is whole."""
    factors = [staged(update, 1000, shares=(1.0,), warmup=0.1, longest=10) for update in range(1000)]
    assert factors[8] == pytest.approx(0.9) and set(factors[9:]) == {1.0}


def test_shares_of_stages_add_up_to_one() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        staged(0, 10, shares=(0.5, 0.4), warmup=0.1, longest=10)


def test_the_root_of_the_long_range_arena() -> None:
    """0.05 with a warm-up of 1000: 0.05 / 1000^1.5 at the first update, 0.05 / 31.62 at the 1000th, half of it at the 4000th."""
    for update, rate in ((1, 1.5811e-6), (500, 7.9057e-4), (1000, 1.5811e-3), (4000, 7.9057e-4)):
        assert 0.05 * rsqrt(update - 1, 5000, warmup=1000) == pytest.approx(rate, rel=1e-4)


def test_half_a_cosine() -> None:
    """After warm-up 1, a half in the middle, next to nothing in the end."""
    factors = [cosine(update, 100, warmup=4) for update in range(100)]
    assert factors[0] == 0.25 and factors[50] == pytest.approx(0.5) and factors[-1] < 1e-3
    assert factors[25] == pytest.approx(0.5 * (1 + 0.5**0.5))


def test_the_rate_of_the_copy_task_falls_once() -> None:
    """Katharopoulos et al. 2020, section 4.1: 1e-3, 1e-4 after 3,000 updates, of 10,000 here."""
    factors = [dropped(update, 10_000, at=0.3, factor=0.1) for update in (0, 2_999, 3_000, 9_999)]
    assert factors == [1.0, 1.0, 0.1, 0.1]
