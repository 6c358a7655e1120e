"""Learning-rate schedules: pure functions of the update, so that a resumed run cannot differ."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def constant(update: int, total: int) -> float:
    """The optimiser's own rate throughout. Factor for update 0, 1, .. of `total`."""
    return 1.0


def trapezoid(update: int, total: int, *, warmup: int, hold: float, final: float) -> float:
    """Linear warm-up over `warmup` updates, full rate until the share `hold` of all updates, then linear decay to
    `final` times the rate at the last one. Returns the factor for update 0, 1, .. of `total`."""
    rise = (update + 1) / max(warmup, 1)
    fall = 1.0 if total <= 1 else (1 - update / (total - 1)) / (1 - hold)
    return min(1.0, rise, max(final, final + (1 - final) * fall))


def halved(update: int, total: int, *, epochs: int, after: int) -> float:
    """Full rate for the first `after` of `epochs` equal shares of all updates, then half of the last one's in each further
    share (Luong et al. 2015, section 4.1: 8 of 12, or 5 of 10 without dropout)."""
    epoch = update * epochs // total
    return 0.5 ** max(0, epoch - after + 1)


def dropped(update: int, total: int, *, at: float, factor: float) -> float:
    """Full rate for the share `at` of all updates, then `factor` times it (Katharopoulos et al. 2020, section 4.1)."""
    return factor if update >= at * total else 1.0


def noam(update: int, total: int, *, d_model: int, warmup: int) -> float:
    """d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) with step = update + 1: a linear rise over `warmup` updates, then a
    fall with the root of the step (Vaswani et al. 2017, section 5.3). It is the rate itself where the optimiser's is 1."""
    step = update + 1
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def staged(update: int, total: int, *, shares: Sequence[float], warmup: float, longest: int) -> float:
    """Stages that take these shares of all updates: the rate is constant within a stage, half of it in the next, after a
    linear warm-up over the share `warmup` of a stage's updates, at most `longest` (Beltagy et al. 2020, section 4.2 and
    appendix B: 10% of the steps, at most 10,000). Raises ValueError for shares that do not add up to 1."""
    if abs(sum(shares) - 1) > 1e-6 or min(shares) <= 0:
        raise ValueError(f"shares of stages: got {list(shares)}, expected positive ones that add up to 1")
    bounds = [0, *(round(total * end) for end in accumulate(shares))]
    stage = min(bisect_right(bounds, update) - 1, len(shares) - 1)
    size = bounds[stage + 1] - bounds[stage]
    rise = (update - bounds[stage] + 1) / max(1, min(round(warmup * size), longest))
    return min(1.0, rise) * 0.5**stage


def rsqrt(update: int, total: int, *, warmup: int) -> float:
    """min(1, number / warmup) / sqrt(max(number, warmup)) with the update's number from 1: a linear rise to warmup^-0.5, then
    a fall with the root (Tay et al. 2020, released configurations, whose rate of 0.05 it multiplies)."""
    number = update + 1
    return min(1.0, number / warmup) / max(number, warmup) ** 0.5


def cosine(update: int, total: int, *, warmup: int) -> float:
    """A linear rise over `warmup` updates times half a cosine over all of them, from 1 to 0."""
    return min(1.0, (update + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * update / max(total, 1)))
